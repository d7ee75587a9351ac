"""Files of the store that vouch for themselves: safetensors and JSON, sealed with a digest and their place.

A sealed file holds the SHA-256 of its own bytes (taken with the digest's place filled with zeros) and its place in the
store, so a truncated, zero-filled, altered, swapped or moved file is noticed by whoever reads it.  It is written to a
temporary name, flushed to disk and renamed, so it is there whole or not at all.  The same content gives the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fiood_core.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor

NEXT_STEP = (
    "`fiood store verify` lists every damaged file, `fiood store remove --damaged` takes them out to be made again"
)

DTYPES = {
    "float64": ("F64", 8),
    "float32": ("F32", 4),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int64": ("I64", 8),
    "int32": ("I32", 4),
    "int16": ("I16", 2),
    "int8": ("I8", 1),
    "uint8": ("U8", 1),
    "bool": ("BOOL", 1),
}
"""NumPy's and torch's name of each type, with safetensors' name and the size in bytes."""

MAX_HEADER = 64 * 1024 * 1024
"""Bytes of the largest header or JSON file that is parsed."""

_NAMES = {code: (name, size) for name, (code, size) in DTYPES.items()}
_UNSEALED = "0" * 64
_TEMPORARY = re.compile(r"\..+~(?P<host>[^~]*)~(?P<pid>\d+)~[0-9a-f]{8}\.tmp")
_DAY = 86400.0
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_verified: dict[str, tuple[tuple[int, ...], str]] = {}


class DiskFullError(StoreError):
    """There is no room for a file of the store; those before it are safe."""


class Entry(NamedTuple):
    """A tensor in a file: type, shape, and the range of its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Sealed:
    """An opened safetensors file: its header is read and checked, its tensors are mapped when they are asked for."""

    path: Path
    metadata: Mapping[str, str]
    entries: Mapping[str, Entry]
    data_start: int

    @property
    def digest(self) -> str:
        """The SHA-256 that the file is sealed with."""
        return self.metadata["sha256"]

    def tensor(self, name: str, start: int = 0, stop: int | None = None) -> Tensor:
        """Rows ``start`` to ``stop`` of a tensor, mapped from the file without a copy.

        The map is private: what is written to it is seen by no one else and never reaches the file.
        """
        import torch

        entry = self.entries[name]
        shape = entry.shape
        if shape:
            start, stop, _ = slice(start, stop).indices(shape[0])
            shape = (max(stop - start, 0), *shape[1:])
        dtype = getattr(torch, entry.dtype)
        raw = self.raw(name, start, stop)
        return torch.from_numpy(raw).view(dtype).reshape(shape) if len(raw) else torch.empty(shape, dtype=dtype)

    def raw(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The bytes of rows ``start`` to ``stop`` of a tensor, mapped likewise."""
        entry = self.entries[name]
        first, last = entry.start, entry.stop
        if entry.shape:
            row = math.prod(entry.shape[1:]) * DTYPES[entry.dtype][1]
            start, stop, _ = slice(start, stop).indices(entry.shape[0])
            first, last = entry.start + start * row, entry.start + max(start, stop) * row
        if first == last:
            return np.empty(0, dtype=np.uint8)
        return np.memmap(self.path, np.uint8, mode="c", offset=self.data_start + first, shape=(last - first,))


def write(root: Path, place: str, tensors: Mapping[str, Any], metadata: Mapping[str, str]) -> str:
    """Write tensors (NumPy or torch) as a sealed safetensors file, and give its digest.

    Raises
    ------
    DiskFullError, StoreError
    """
    raw = {name: _raw(value) for name, value in tensors.items()}
    header: dict[str, Any] = {"__metadata__": {"sha256": _UNSEALED, "place": place, **metadata}}
    start, chunks = 0, []
    for name, (dtype, shape, data) in sorted(raw.items(), key=lambda item: (-DTYPES[item[1][0]][1], item[0])):
        header[name] = {"dtype": DTYPES[dtype][0], "shape": shape, "data_offsets": [start, start + data.nbytes]}
        start += data.nbytes
        chunks.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    length = struct.pack("<Q", len(text))
    digest = _sha256([length, text, *chunks])
    write_bytes(root / place, [length, _seal(text, digest), *chunks])
    _remember(root / place, digest)
    return digest


def read(root: Path, place: str, digest: str | None = None) -> Sealed:
    """Open a sealed safetensors file; its bytes are checked once a process, and again when the file has changed.

    Parameters
    ----------
    root : Path
    place : str
    digest : str, optional
        What a manifest says the file is sealed with.

    Raises
    ------
    StoreError
        The file is missing, damaged, or not the one that belongs there.
    """
    path = root / place
    opened = _parsed(path)
    if opened.metadata.get("place") != place:
        raise StoreError(f"{path} belongs at {opened.metadata.get('place')!r}: it was moved or swapped; {NEXT_STEP}")
    if digest is not None and opened.digest != digest:
        raise StoreError(f"{path} is sealed with another digest than its manifest says; {NEXT_STEP}")
    with _reading(path), path.open("rb") as file:
        if _verified.get(str(path)) != (_state(path), opened.digest):
            head = file.read(opened.data_start)
            if _sha256([_unseal(head, opened.digest)], file) != opened.digest:
                raise StoreError(f"{path} does not match its SHA-256, so its bytes were altered; {NEXT_STEP}")
            _remember(path, opened.digest)
    return opened


def write_json(root: Path, place: str, data: Mapping[str, Any]) -> str:
    """Write a sealed JSON file, and give its digest."""
    text = json.dumps({**data, "place": place, "sha256": _UNSEALED}, indent=1, sort_keys=True).encode() + b"\n"
    digest = _sha256([text])
    write_bytes(root / place, [_seal(text, digest)])
    return digest


def read_json(root: Path, place: str) -> dict[str, Any]:
    """The content of a sealed JSON file.

    Raises
    ------
    StoreError
        The file is missing, damaged, or not the one that belongs there.
    """
    path = root / place
    with _reading(path):
        if path.stat().st_size > MAX_HEADER:
            raise StoreError(f"{path} is larger than any such file can be; {NEXT_STEP}")
        text = path.read_bytes()
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("sha256"), str):
            raise StoreError(f"{path} is not a sealed JSON file; {NEXT_STEP}")
    if data.get("place") != place:
        raise StoreError(f"{path} belongs at {data.get('place')!r}: it was moved or swapped; {NEXT_STEP}")
    if _sha256([_unseal(text, data["sha256"])]) != data["sha256"]:
        raise StoreError(f"{path} does not match its SHA-256, so it was altered; {NEXT_STEP}")
    return data


def write_bytes(path: Path, chunks: Iterable[Any]) -> None:
    """Write a file under a temporary name, flush it to disk and rename it.

    Raises
    ------
    DiskFullError
        No room, or a quota or size limit; the temporary file is removed.
    StoreError
        The place cannot be written.
    """
    temporary = path.with_name(f".{path.name}~{socket.gethostname()}~{os.getpid()}~{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _write_error(path, error) from error
        raise
    _sync_folder(path.parent)
    _sync_folder(path.parent.parent)


def make_folder(path: Path) -> None:
    """Make a folder and those above it.

    Raises
    ------
    DiskFullError
        No room, or a quota.
    StoreError
        The place cannot be written, or something else has the name.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(path, error) from error


def sweep(folder: Path, *, locked: bool = False) -> None:
    """Remove temporary files that killed processes left in a folder.

    A file goes if its process no longer runs on this host or it is a day old; under a lock that every writer of the
    folder takes (``locked``), all go.
    """
    if not folder.is_dir():
        return
    for entry in list(os.scandir(folder)):
        match = _TEMPORARY.fullmatch(entry.name)
        with contextlib.suppress(FileNotFoundError):
            if match and (locked or _abandoned(match["host"], int(match["pid"]), entry.stat().st_mtime)):
                os.unlink(entry.path)


def forget() -> None:
    """Check every file anew, whether or not it seems unchanged."""
    _verified.clear()


def _abandoned(host: str, pid: int, modified: float) -> bool:
    if time.time() - modified > _DAY:
        return True
    if host != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _raw(value: Any) -> tuple[str, list[int], Any]:
    """Type, shape and bytes of an array or tensor, without a copy where it is contiguous and on the CPU."""
    if isinstance(value, np.ndarray):
        name, data = value.dtype.name, np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("="))
    else:
        import torch

        name = str(value.dtype).removeprefix("torch.")
        data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    if name not in DTYPES:
        raise StoreError(f"the store cannot hold values of type {name}; it holds {', '.join(DTYPES)}")
    return name, list(value.shape), data.reshape(-1).view(np.uint8)


def _parsed(path: Path) -> Sealed:
    """The header of a safetensors file, distrusted: lengths, offsets and types are checked against the file's size."""
    with _reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(size - 8, MAX_HEADER):
            raise StoreError(f"{path} is truncated or has no valid header ({size} bytes); {NEXT_STEP}")
        header = json.loads(file.read(length), object_pairs_hook=_no_duplicates)
        metadata = header.pop("__metadata__", {})
        if not all(isinstance(v, str) for v in metadata.values()) or "sha256" not in metadata:
            raise StoreError(f"{path} is a safetensors file, but not one that this store sealed; {NEXT_STEP}")
        entries = {name: _entry(spec) for name, spec in header.items()}
        end = 0
        for entry in sorted(entries.values(), key=lambda e: (e.start, e.stop)):
            if entry.start != end:
                raise ValueError("tensors overlap or leave a gap")
            end = entry.stop
        if 8 + length + end != size:
            raise StoreError(f"{path} is {size} bytes long instead of {8 + length + end}: truncated; {NEXT_STEP}")
        return Sealed(path, metadata, entries, 8 + length)


def _entry(spec: Any) -> Entry:
    dtype, size = _NAMES[spec["dtype"]]
    shape, (start, stop) = tuple(spec["shape"]), spec["data_offsets"]
    if not all(type(v) is int and v >= 0 for v in (*shape, start, stop)):
        raise ValueError("a shape or offset is no natural number")
    if stop - start != math.prod(shape) * size or start % size:
        raise ValueError("offsets do not fit the shape")
    return Entry(dtype, shape, start, stop)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")
    return dict(pairs)


@contextlib.contextmanager
def _reading(path: Path) -> Any:
    """Turn whatever goes wrong while a hostile or damaged file is parsed into a :class:`StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing from the store; {NEXT_STEP}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; {NEXT_STEP}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({type(error).__name__}: {error}); {NEXT_STEP}") from error


def _write_error(path: Path, error: OSError) -> StoreError:
    if error.errno in _FULL:
        return DiskFullError(
            f"disk full (or a quota or file-size limit reached) at {path}: {error.strerror}; what was written before "
            "is kept, so free space and run again"
        )
    return StoreError(f"cannot write {path}: {error.strerror}; make the place writable, or set FIOOD_HOME to another")


def _sync_folder(folder: Path) -> None:
    """Make a rename last over a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sha256(chunks: Iterable[Any], file: Any = None) -> str:
    sha = hashlib.sha256()
    for chunk in chunks:
        sha.update(chunk)
    buffer = bytearray(1 << 20) if file is not None else bytearray()
    while file is not None and (count := file.readinto(buffer)):
        sha.update(memoryview(buffer)[:count])
    return sha.hexdigest()


def _seal(text: bytes, digest: str) -> bytes:
    return text.replace(f'"{_UNSEALED}"'.encode(), f'"{digest}"'.encode(), 1)


def _unseal(text: bytes, digest: str) -> bytes:
    return text.replace(f'"{digest}"'.encode(), f'"{_UNSEALED}"'.encode(), 1)


def _state(path: Path) -> tuple[int, ...]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _remember(path: Path, digest: str) -> None:
    with contextlib.suppress(OSError):
        _verified[str(path)] = (_state(path), digest)
