"""Taking archives apart, on the assumption that they are hostile.

An archive is extracted into a temporary folder that is renamed when it is complete, so that nothing is half-accepted.
"""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fiood_core.download import CHUNK, MAGIC, Progress
from fiood_core.errors import DataError

SMALLEST_BOMB = 1 << 26
"""Bytes that any archive may unpack to, however small it is."""


@dataclass(frozen=True)
class Limits:
    """What an archive may hold: members, bytes in all, and bytes out per byte in."""

    members: int = 5_000_000
    total_bytes: int = 1 << 42
    ratio: int = 200


def unpack(
    archive: Path,
    target: Path,
    *,
    nested: bool = False,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> None:
    """Extract a tar or zip archive into a folder that appears only when it is complete.

    With ``nested``, members that are tar archives become folders of their name without suffix; they are read as they
    come, so that no disk is needed for them.

    Raises
    ------
    DataError
        The archive is damaged, or holds a path that escapes, a link, a device, or more than ``limits``; nothing is
        left behind.
    """
    if target.exists():
        raise DataError(f"{target} exists already; remove it to extract {archive.name} again")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _Extraction(archive, limits or Limits(), nested, progress).into(scratch)
        scratch.chmod(0o755)
        os.replace(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Let one process at a time work on a folder; another one waits.

    Raises
    ------
    DataError
        The folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / ".lock").open("a+b")
    except OSError as error:
        raise DataError(f"{folder} cannot be written: {error.strerror}; set FIOOD_HOME to a place that can") from error
    with opened as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file lets go


@dataclass
class _Extraction:
    """One archive on its way out, counted against its limits."""

    archive: Path
    limits: Limits
    nested: bool
    progress: Progress | None
    members: int = 0
    written: int = 0

    def into(self, scratch: Path) -> None:
        packed = self.archive.stat().st_size
        self.allowed = min(self.limits.total_bytes, max(packed * self.limits.ratio, SMALLEST_BOMB))
        damaged = f"{self.archive.name} is damaged"
        try:
            with self.archive.open("rb") as file:
                is_zip = file.read(4) == MAGIC["zip"][0]
            self._take(_zip_members(self.archive) if is_zip else _tar_members(name=self.archive), scratch, "")
        except FileExistsError as error:
            raise DataError(f"{self.archive.name} holds {Path(str(error.filename)).name!r} twice") from error
        except (tarfile.TarError, zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"{damaged}: {error}") from error
        except (EOFError, RuntimeError, ValueError) as error:
            raise DataError(f"{damaged}: {error}") from error
        except OSError as error:
            if error.errno is None:  # what the decompressors raise
                raise DataError(f"{damaged}: {error}") from error
            raise DataError(f"{self.archive.name} could not be extracted: {error.strerror}; see to the disk") from error

    def _take(self, members: Iterator[_Member], scratch: Path, inside: str) -> None:
        for member in members:
            self._count_member()
            destination = scratch / self._safe(f"{inside}{member.name}")
            if member.kind == "folder":
                destination.mkdir(parents=True, exist_ok=True)
            elif member.kind != "file":
                raise DataError(
                    f"{self.archive.name} holds {member.name!r}, a {member.kind}; only files and folders are extracted"
                )
            elif self.nested and not inside and member.name.endswith(".tar"):
                with member.open() as packed:
                    self._take(_tar_members(fileobj=packed), scratch, member.name.removesuffix(".tar") + "/")
            else:
                self._write(member, destination)

    def _write(self, member: _Member, destination: Path) -> None:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as packed, destination.open("xb") as out:
            while data := packed.read(CHUNK):
                self._count_bytes(len(data))
                out.write(data)

    def _count_member(self) -> None:
        self.members += 1
        if self.members > self.limits.members:
            raise DataError(f"{self.archive.name} has more than {self.limits.members} members")
        if self.progress is not None and self.members % 100 == 0:
            self.progress(f"files out of {self.archive.name}", self.members, None)

    def _count_bytes(self, count: int) -> None:
        self.written += count
        if self.written > self.allowed:
            raise DataError(
                f"{self.archive.name} unpacks to more than {self.allowed} bytes; it looks like a decompression bomb"
            )

    def _safe(self, name: str) -> PurePosixPath:
        path = PurePosixPath(name.replace("\\", "/"))
        drive = bool(path.parts) and path.parts[0].endswith(":")
        if path.is_absolute() or ".." in path.parts or "\0" in name or drive:
            raise DataError(
                f"{self.archive.name} holds the path {name!r}, which leads out of the folder; nothing was extracted"
            )
        return path


@dataclass(frozen=True)
class _Member:
    name: str
    kind: str
    open: Callable[[], AbstractContextManager[Any]]


def _zip_members(archive: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            link = stat.S_ISLNK(info.external_attr >> 16)
            kind = "folder" if info.is_dir() else "symbolic link" if link else "file"
            yield _Member(info.filename, kind, partial(bundle.open, info))


def _tar_members(*, name: Path | None = None, fileobj: Any = None) -> Iterator[_Member]:
    with tarfile.open(name=name, fileobj=fileobj, mode="r:*" if fileobj is None else "r|*") as tape:
        for member in tape:
            yield _Member(member.name, _tar_kind(member), partial(_opened, tape, member))


def _tar_kind(member: tarfile.TarInfo) -> str:
    if member.isdir():
        return "folder"
    if member.isreg():
        return "file"
    if member.issym() or member.islnk():
        return "symbolic link" if member.issym() else "hard link"
    return "special file"


@contextmanager
def _opened(tape: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[IO[bytes]]:
    source = tape.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    with source:
        yield source
