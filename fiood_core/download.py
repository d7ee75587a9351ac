"""Getting files from elsewhere, on the assumption that what comes is hostile.

Nothing is ever half-accepted: a download is a ``.part`` file until its size, magic bytes and digest hold.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

HTML = (b"<!doctype html", b"<html", b"<head")

Progress = Callable[[str, int, "int | None"], None]
"""Told what is done, how much of it, and of how much (None where that is not known)."""


@dataclass(frozen=True)
class Remote:
    """A file that can be fetched.

    Attributes
    ----------
    name : str
        Relative path under which it is kept.
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


def fetch(remote: Remote, folder: Path, *, offline: bool = False, progress: Progress | None = None) -> Path:
    """Download a file, or accept the copy that is already there, and check it.

    Parameters
    ----------
    remote : Remote
    folder : Path
        Created if absent.  A partial download there is resumed if the server still has the same file.
    offline : bool
        Make no network call.
    progress : callable, optional

    Raises
    ------
    DataError
        Every mirror failed, or what came is not the file; the message lists each mirror with its reason.
    """
    target = folder / remote.name
    if target.exists():
        problem = mismatch(remote, target)
        if problem:
            raise DataError(f"{target}: {problem}; remove it and run again, or put the right file there")
        return target
    if not remote.urls:
        raise DataError(f"{remote.name} must be fetched by hand: {remote.instructions} Then put it at {target}")
    if offline:
        raise DataError(
            f"{remote.name} is not at {target}, and the run is offline; get it from {remote.urls[0]} and put it there"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for url in remote.urls:
        try:
            part = _download(url, remote, target, progress)
        except DataError as error:
            reasons.append(f"{url}: {error}")
            continue
        os.replace(part, target)
        return target
    raise DataError(
        f"{remote.name} could not be fetched:\n  "
        + "\n  ".join(reasons)
        + f"\n{remote.instructions or 'Get it by hand.'} Put it at {target} and run again"
    )


def mismatch(remote: Remote, path: Path) -> str | None:
    """What keeps a file from being the one that is asked for; None if nothing does.

    A digest that only third parties state makes a warning, not a mismatch.
    """
    size = path.stat().st_size
    if size == 0:
        return "the file is empty"
    with path.open("rb") as file:
        start = file.read(512)
    html = start.lstrip()[:20].lower().startswith(HTML)
    if remote.kind in MAGIC:
        magic, offset = MAGIC[remote.kind]
        if start[offset : offset + len(magic)] != magic:
            return f"the file is {'an HTML page' if html else 'something else'}, not {remote.kind}"
    elif html:
        return "the file is an HTML page"
    if remote.size is not None and size != remote.size:
        return f"the file has {size} bytes, expected {remote.size}"
    if remote.digest is None:
        return None
    found = file_digest(path, remote.digest.partition(":")[0])
    if found == remote.digest:
        return None
    if not remote.digest_by_others:
        return f"the digest is {found}, expected {remote.digest}"
    warnings.warn(
        f"{path.name}: the digest is {found}, third parties state {remote.digest}; the file list will decide",
        stacklevel=2,
    )
    return None


def file_digest(path: str | Path, algorithm: str = "sha256") -> str:
    """``"<algorithm>:<hex>"`` of a file."""
    sha = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            sha.update(data)
    return f"{algorithm}:{sha.hexdigest()}"


def _download(url: str, remote: Remote, target: Path, progress: Progress | None) -> Path:
    """A checked ``.part`` file of one mirror; one that was resumed and turns out wrong is fetched again from zero."""
    part = target.with_name(f"{target.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part")
    validator = part.with_suffix(".validator")
    while True:
        resumed = _receive(url, remote, part, validator, progress)
        problem = mismatch(remote, part)
        if problem is None:
            validator.unlink(missing_ok=True)
            return part
        part.unlink()
        validator.unlink(missing_ok=True)
        if not resumed:
            raise DataError(f"{problem}; what came was removed")


def _receive(url: str, remote: Remote, part: Path, validator: Path, progress: Progress | None) -> bool:
    """Fetch what is missing of a file; whether something was there before."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "fiood"})
    if request.type not in ("http", "https"):
        raise DataError("only http and https are fetched")
    have = _resumable(remote, part, validator)
    if have:
        request.add_header("Range", f"bytes={have}-")
        if validator.exists():
            request.add_header("If-Range", validator.read_text("ascii"))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
            start = reply.headers.get("Content-Range", "")
            if have and (reply.status != 206 or not start.startswith(f"bytes {have}-")):
                have = 0  # the server cannot resume, or has another file by now: begin again
            _save(reply, remote, part, validator, have, progress)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # the file is shorter than what we hold
            part.unlink()
            return _receive(url, remote, part, validator, progress)
        account = "; it may ask for an account" if error.code in (401, 403) else ""
        raise DataError(f"the server says {error.code} {error.reason}{account}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        kept = f"; {part.stat().st_size} bytes are kept, run again to go on" if part.exists() else ""
        raise DataError(f"{reason or type(error).__name__}{kept}") from error
    return have > 0


def _resumable(remote: Remote, part: Path, validator: Path) -> int:
    """Bytes of a partial download that may be gone on from; what cannot be told to be of the same file is removed."""
    if not part.exists():
        validator.unlink(missing_ok=True)
        return 0
    if validator.exists() or remote.digest is not None:
        return part.stat().st_size
    part.unlink()
    return 0


def _save(reply: Any, remote: Remote, part: Path, validator: Path, have: int, progress: Progress | None) -> None:
    length = reply.headers.get("Content-Length", "")
    total = have + int(length) if length.isdigit() else remote.size
    limit = remote.size if remote.size is not None else remote.max_bytes
    if total is not None and total > limit:
        part.unlink(missing_ok=True)
        raise DataError(f"the server announces {total} bytes, more than the {limit} expected")
    if not have:
        _note_validator(reply, validator)
    done = have
    with _writable(part, "ab" if have else "wb") as file:
        while data := reply.read(CHUNK):
            done += len(data)
            if done > limit:
                file.close()
                part.unlink()
                raise DataError(f"more than the expected {limit} bytes came; what came was removed")
            _write(file, data, part)
            if progress is not None:
                progress(remote.name, done, total)
    if total is not None and done < total:
        raise DataError(f"the connection ended after {done} of {total} bytes; they are kept, run again to go on")


def _note_validator(reply: Any, validator: Path) -> None:
    """Keep what tells whether the server still has the same file; weak tags do not."""
    tag = reply.headers.get("ETag", "")
    found = reply.headers.get("Last-Modified", "") if tag.startswith("W/") or not tag else tag
    validator.unlink(missing_ok=True)
    with suppress(UnicodeEncodeError):
        if found:
            validator.write_text(found, "ascii")


def _writable(part: Path, mode: str) -> Any:
    try:
        return part.open(mode)
    except OSError as error:
        raise DataError(f"{part} cannot be written: {error.strerror}") from error


def _write(file: Any, data: bytes, part: Path) -> None:
    try:
        file.write(data)
    except OSError as error:
        raise DataError(f"{part} cannot be written: {error.strerror}; make room and run again to go on") from error
