"""Getting files from elsewhere, and taking archives apart, on the assumption that both are hostile.

Nothing is ever half-accepted: a download is a ``.part`` file until its size, magic bytes and digest hold, and an
archive is extracted into a temporary folder that is renamed when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fiood_core.errors import DataError

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30

MAGIC = {
    "gzip": (b"\x1f\x8b", 0),
    "zip": (b"PK\x03\x04", 0),
    "tar": (b"ustar", 257),
    "xz": (b"\xfd7zXZ\x00", 0),
    "bzip2": (b"BZh", 0),
}
"""Bytes, and their offset, that a file of each kind carries."""


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched.

    Attributes
    ----------
    name : str
        File name under which it is kept.
    urls : tuple of str
        Mirrors, tried in order; empty for a file bound to an account, which ``instructions`` says how to get.
    kind : str
        A key of :data:`MAGIC`, or ``"text"``.
    size : int, optional
        Bytes.
    digest : str, optional
        ``"sha256:…"`` or ``"md5:…"``.
    digest_by_others : bool
        Whether the digest is known only from third parties: then a mismatch warns, and the file list decides.
    max_bytes : int
        What a download may not exceed where the size is not known.
    nested : bool
        Whether it is an archive of archives, one a class, each to be extracted to a folder of its own name.
    instructions : str
        What to get from where, for files that cannot be fetched without an account.
    """

    name: str
    urls: tuple[str, ...] = ()
    kind: str = "text"
    size: int | None = None
    digest: str | None = None
    digest_by_others: bool = False
    max_bytes: int = 1 << 40
    nested: bool = False
    instructions: str = ""


@dataclass(frozen=True)
class Limits:
    """What an archive may hold: members, bytes in all, and bytes out per byte in."""

    members: int = 5_000_000
    total_bytes: int = 1 << 42
    ratio: int = 200


def fetch(
    remote: Remote,
    folder: Path,
    *,
    offline: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Path:
    """Download a file, or accept the copy that is already there, and check it.

    Parameters
    ----------
    remote : Remote
    folder : Path
        Created if absent.  A partial download there is resumed.
    offline : bool
        Make no network call.
    progress : callable, optional
        Called with bytes so far and bytes in all (None if unknown).

    Raises
    ------
    DataError
        Every mirror failed, or what came is not the file; the message lists each mirror with its reason.
    """
    target = folder / remote.name
    if target.exists():
        _check(remote, target)
        return target
    if not remote.urls:
        raise DataError(f"{remote.name} must be fetched by hand: {remote.instructions} Then put it at {target}")
    if offline:
        raise DataError(f"{remote.name} is not at {target}, and the run is offline; get it from {remote.urls[0]}")
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in remote.urls:
        part = folder / f"{remote.name}.part"
        try:
            _download(url, remote, part, progress)
            _check(remote, part)
        except DataError as error:
            reasons.append(f"{url}: {error}")
            continue
        os.replace(part, target)
        return target
    raise DataError(
        f"{remote.name} could not be fetched:\n  " + "\n  ".join(reasons) + f"\nGet it by hand and put it at {target}"
    )


def unpack(archive: Path, target: Path, *, nested: bool = False, limits: Limits | None = None) -> None:
    """Extract a tar or zip archive into a folder that appears only when it is complete.

    With ``nested`` the members are archives themselves, and each becomes a folder of its name without suffix.

    Raises
    ------
    DataError
        The archive is damaged, or holds a path that escapes, a link that points out, a device, or more than
        ``limits``; nothing is left behind.
    """
    if target.exists():
        raise DataError(f"{target} exists already; remove it to extract {archive.name} again")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _extract(archive, scratch, limits or Limits())
        for inner in sorted(scratch.rglob("*.tar")) if nested else ():
            unpack(inner, inner.with_suffix(""), limits=limits)
            inner.unlink()
        os.replace(scratch, target)
    except OSError as error:
        raise DataError(f"{archive} could not be extracted to {target}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """``"<algorithm>:<hex>"`` of a file."""
    sha = hashlib.new(algorithm)
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            sha.update(data)
    return f"{algorithm}:{sha.hexdigest()}"


def _download(url: str, remote: Remote, part: Path, progress: Callable[[int, int | None], None] | None) -> None:
    import requests

    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as reply:
            if reply.status_code == 416 or (have and reply.status_code == 200):
                have = 0  # the server cannot resume, or has nothing past what we hold: begin again
            if reply.status_code == 416:
                part.unlink()
                raise DataError("the partial download was longer than the file; it was removed, run again")
            if reply.status_code >= 400:
                raise DataError(f"the server says {reply.status_code} {reply.reason}")
            _save(reply, remote, part, have, progress)
    except requests.RequestException as error:
        kept = f"; {part.stat().st_size} bytes are kept and will be resumed" if part.exists() else ""
        raise DataError(f"{type(error).__name__}: {error}{kept}") from error


def _save(
    reply: Any, remote: Remote, part: Path, have: int, progress: Callable[[int, int | None], None] | None
) -> None:
    length = reply.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else remote.size
    limit = remote.size if remote.size is not None else remote.max_bytes
    if total is not None and total > limit:
        part.unlink(missing_ok=True)
        raise DataError(f"the server announces {total} bytes, more than the {limit} expected")
    done = have
    with part.open("ab" if have else "wb") as file:
        for data in reply.iter_content(CHUNK):
            done += len(data)
            if done > limit:
                file.close()
                part.unlink()
                raise DataError(f"more than the expected {limit} bytes came; what came was removed")
            file.write(data)
            if progress is not None:
                progress(done, total)
    if total is not None and done < total:
        raise DataError(f"the connection ended after {done} of {total} bytes; run again to resume")


def _check(remote: Remote, path: Path) -> None:
    """Raise unless a file is what it should be; one that is not is removed if it was ours (a ``.part`` file)."""
    problem = _problem(remote, path)
    if problem is None:
        return
    if path.suffix == ".part":
        path.unlink()
        raise DataError(f"{problem}; what came was removed")
    raise DataError(f"{path}: {problem}; remove it and run again, or put the right file there")


def _problem(remote: Remote, path: Path) -> str | None:
    size = path.stat().st_size
    if size == 0:
        return "the file is empty"
    with path.open("rb") as file:
        start = file.read(512)
    if remote.kind in MAGIC:
        magic, offset = MAGIC[remote.kind]
        if start[offset : offset + len(magic)] != magic:
            seen = (
                "an HTML page" if start.lstrip()[:15].lower().startswith((b"<!doctype", b"<html")) else "something else"
            )
            return f"the file is {seen}, not {remote.kind}"
    elif start.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "the file is an HTML page"
    if remote.size is not None and size != remote.size:
        return f"the file has {size} bytes, expected {remote.size}"
    if remote.digest is not None:
        algorithm, _, _ = remote.digest.partition(":")
        found = file_digest(path, algorithm)
        if found != remote.digest:
            if not remote.digest_by_others:
                return f"the digest is {found}, expected {remote.digest}"
            warnings.warn(
                f"{path.name}: the digest is {found}, third parties state {remote.digest}; the file list will decide",
                stacklevel=2,
            )
    return None


@dataclass
class _Budget:
    """Counts what comes out of an archive against the limits."""

    limits: Limits
    packed: int
    members: int = 0
    written: int = 0

    def member(self) -> None:
        self.members += 1
        if self.members > self.limits.members:
            raise DataError(f"the archive has more than {self.limits.members} members")

    def wrote(self, count: int) -> None:
        self.written += count
        allowed = min(self.limits.total_bytes, max(self.packed * self.limits.ratio, 1 << 26))
        if self.written > allowed:
            raise DataError(f"the archive unpacks to more than {allowed} bytes; it looks like a decompression bomb")


def _extract(archive: Path, scratch: Path, limits: Limits) -> None:
    budget = _Budget(limits, archive.stat().st_size)
    try:
        for name, kind, source in _members(archive):
            budget.member()
            destination = scratch / _safe(name, archive)
            if kind == "dir":
                destination.mkdir(parents=True, exist_ok=True)
                continue
            if kind != "file" or source is None:
                raise DataError(f"{archive.name} holds {name!r}, a {kind}; only files and folders are extracted")
            destination.parent.mkdir(parents=True, exist_ok=True)
            with source() as packed, destination.open("xb") as out:
                while data := packed.read(CHUNK):
                    budget.wrote(len(data))
                    out.write(data)
    except FileExistsError as error:
        raise DataError(f"{archive.name} holds {Path(str(error.filename)).name!r} twice") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zipfile.LargeZipFile, RuntimeError, ValueError) as error:
        raise DataError(f"{archive.name} is damaged: {error}; remove it and fetch it again") from error
    except OSError as error:
        if error.errno is None or "CRC" in str(error) or type(error).__name__ == "BadGzipFile":
            raise DataError(f"{archive.name} is damaged: {error}; remove it and fetch it again") from error
        raise


def _members(archive: Path) -> Iterator[tuple[str, str, Callable[[], Any] | None]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as bundle:
            for info in bundle.infolist():
                mode = info.external_attr >> 16
                kind = "dir" if info.is_dir() else "symbolic link" if stat.S_ISLNK(mode) else "file"
                yield info.filename, kind, partial(bundle.open, info)
        return
    with tarfile.open(archive, mode="r:*") as tape:
        for member in tape:
            kind = (
                "dir" if member.isdir() else "file" if member.isreg() else "link" if member.islnk() else "special file"
            )
            kind = "symbolic link" if member.issym() else kind
            yield member.name, kind, partial(_opened, tape, member)


@contextmanager
def _opened(tape: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[IO[bytes]]:
    source = tape.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    with source:
        yield source


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in name or (path.parts and path.parts[0].endswith(":")):
        raise DataError(f"{archive.name} holds the path {name!r}, which leads out of the folder; it was not extracted")
    return path
