"""The feature store: what backbones gave for pictures, kept on disk and mapped into memory.

Layout, under the store's root::

    <backbone>/backbone.json, head.safetensors          what the backbone is called; its head
    <backbone>/statistics/<content>/<key>.safetensors   what was gathered over a training set
    <backbone>/<shelf>/shelf.json                       one source of pictures under one image policy
    <backbone>/<shelf>/<segment>/rows.safetensors       which pictures, in which order: hashes of ids and stamps
    <backbone>/<shelf>/<segment>/<column>/00000.safetensors …
    <backbone>/<shelf>/<segment>/<column>.json          its shards and their digests, written last

A **segment** is an ordered list of pictures, and its name is the digest of that list and of the batch size, so the
batch grid is fixed and an interrupted segment goes on at its first missing shard, bit for bit.  A segment's columns are
separate: one can be added later without touching the others, and one with its manifest is complete.  A view finds each
of its pictures by id and stamp, in complete columns of any segment and in finished shards of abandoned ones.  Every
file is sealed (see :mod:`fiood_core.sealed`); importing this module imports no torch.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fiood_core import __version__, sealed, settings
from fiood_core.errors import StoreError

if TYPE_CHECKING:
    from torch import Tensor

    from fiood_core.head import Head
    from fiood_core.images import ImagePolicy

SHARD_ROWS = 4096
"""Rows of one shard: those of whole blocks, so that a block of a view in the segment's order is one map."""

MISSING = -1

REMOVED = ".removed-"
"""What the name of a segment that is being deleted begins with."""

LOCKS = os.name == "posix"
"""Whether folders can be locked; without, two writers do the same work twice, with one result."""

_PLAIN = ("features", "logits")


class Skip(NamedTuple):
    """A picture that was left out: its row in the segment, its id, and why."""

    row: int
    image_id: str
    reason: str


class FeatureStore:
    """Where features, columns, heads and statistics are kept.

    Parameters
    ----------
    root : Path, optional
        By default ``store`` under the cache folder (``$FIOOD_HOME``).
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = Path(root) if root is not None else settings.home() / "store"

    def shelf(self, backbone_key: str, source: str, policy: ImagePolicy, batch_size: int) -> Shelf:
        """The segments of one backbone, source of pictures and image policy; nothing is written."""
        return Shelf(self.root, folder_name(backbone_key), source, policy, batch_size)

    def head(self, backbone_key: str) -> Head | None:
        """The head that was stored with a backbone's features, or None.

        Raises
        ------
        StoreError
            It is damaged.
        """
        from fiood_core.head import Head

        place = f"{folder_name(backbone_key)}/head.safetensors"
        if not (self.root / place).exists():
            return None
        opened = sealed.read(self.root, place)
        spec = json.loads(opened.metadata["head"])
        bias = opened.tensor("bias").clone() if "bias" in opened.entries else None
        return Head(opened.tensor("weight").clone(), bias, temperature=spec["temperature"], classes=spec["classes"])

    def put_backbone(self, backbone_key: str, title: str, head: Head | None) -> None:
        """Keep a backbone's title, and its head unless that depends on a vocabulary (None).

        Raises
        ------
        StoreError
            Another head is stored under the same key, or the disk is full.
        """
        folder = folder_name(backbone_key)
        known = None if head is None else self.head(backbone_key)
        if head is not None and known is not None and known.digest != head.digest:
            raise StoreError(
                f"the head of {title!r} is not the one stored under its key in {self.root / folder}: weights_digest "
                f"must change with the weights; mend it, or `fiood store remove {folder[:12]}`"
            )
        sealed.sweep(self.root / folder)
        if not (self.root / folder / "backbone.json").exists():
            sealed.write_json(self.root, f"{folder}/backbone.json", {"key": backbone_key, "title": title})
        if head is not None and known is None:
            tensors = {"weight": head.weight} | ({} if head.bias is None else {"bias": head.bias})
            spec = json.dumps({"temperature": head.temperature, "classes": head.classes})
            sealed.write(self.root, f"{folder}/head.safetensors", tensors, {"head": spec})

    def statistics(self, backbone_key: str, content: str) -> StatisticCache:
        """The statistics of one training set.

        Parameters
        ----------
        backbone_key : str
        content : str
            Digest of the training set: :attr:`fiood_core.extract.Extracted.content`, which changes with the view, the
            pictures, the image policy and the head.
        """
        return StatisticCache(self.root, f"{folder_name(backbone_key)}/statistics/{folder_name(content)[:32]}")


class StatisticCache:
    """Finished statistics of one training set, by key."""

    def __init__(self, root: Path, place: str) -> None:
        self._root = root
        self._place = place

    def get(self, key: str) -> Mapping[str, Tensor] | None:
        """A statistic's tensors, mapped from disk; None where it was not kept.

        Raises
        ------
        StoreError
            It is damaged.
        """
        place = self._file(key)
        if not (self._root / place).exists():
            return None
        opened = sealed.read(self._root, place)
        return {name: opened.tensor(name) for name in opened.entries}

    def put(self, key: str, result: Mapping[str, Tensor]) -> None:
        """Keep a statistic's tensors.

        Raises
        ------
        StoreError
            The disk is full.
        """
        sealed.sweep(self._root / self._place)
        sealed.write(self._root, self._file(key), result, {"key": key})

    def _file(self, key: str) -> str:
        return f"{self._place}/{_digest('statistic', __version__, key)}.safetensors"


class Pictures:
    """The pictures that are asked for: a hash of each id and stamp.

    Parameters
    ----------
    ids, stamps : sequence of str
        One stamp for each id; it changes when the picture may have changed.
    """

    def __init__(self, ids: Sequence[str], stamps: Sequence[str]) -> None:
        pairs = zip(ids, stamps, strict=True)
        text = (f"{name}\0{stamp}".encode("utf-8", "surrogateescape") for name, stamp in pairs)
        joined = b"".join(hashlib.blake2b(pair, digest_size=16).digest() for pair in text)
        self.hashes = np.frombuffer(joined, dtype="<u8").reshape(-1, 2)


class Located(NamedTuple):
    """Where the rows of one column lie.

    Attributes
    ----------
    columns : list of StoredColumn
    part : ndarray (n,)
        For each picture the number of its column in ``columns``, or ``MISSING``.
    row : ndarray (n,)
        Its row in that column's segment.
    """

    columns: list[StoredColumn]
    part: np.ndarray
    row: np.ndarray

    @property
    def missing(self) -> np.ndarray:
        """Numbers of the pictures that are nowhere."""
        return np.flatnonzero(self.part == MISSING)

    def add(self, segment: Segment, stored: StoredColumn, wanted: Pictures) -> None:
        """Fill in those missing pictures that a segment's column holds."""
        numbers = self.missing
        rows = segment.find(wanted.hashes[numbers])
        held = (rows != MISSING) & stored.holds(rows)
        if held.any():
            self.part[numbers[held]] = len(self.columns)
            self.row[numbers[held]] = rows[held]
            self.columns.append(stored)

    def skips(self) -> dict[int, Skip]:
        """The pictures that were left out, by their number among those asked for."""
        found = {}
        for number, column in enumerate(self.columns):
            by_row = {skip.row: skip for skip in column.skipped}
            if by_row:
                here = np.flatnonzero(self.part == number)
                hit = here[np.isin(self.row[here], list(by_row))]
                found.update({int(at): by_row[int(self.row[at])] for at in hit})
        return found

    def rows(self, numbers: np.ndarray) -> StoredRows:
        """The values of some of the pictures, none of which is missing or left out."""
        return StoredRows(self.columns, self.part[numbers], self.row[numbers])


class Shelf:
    """The segments of one backbone, one source and one image policy."""

    def __init__(self, root: Path, backbone: str, source: str, policy: ImagePolicy, batch_size: int) -> None:
        self.root = root
        self.batch_size = batch_size
        self.place = f"{backbone}/{_digest('shelf', source, policy.digest)}"
        self._about = {"source": source, "images": policy.digest, "rules": str(policy.record["rules"])}
        self._segments: dict[str, Segment] = {}

    def locate(self, column: str, wanted: Pictures) -> Located:
        """Find each picture in the columns of a key.

        Complete columns come first.  If the pictures that are still missing are what an interrupted segment was begun
        for, that segment is to be resumed; else the finished shards of interrupted segments serve too.

        Parameters
        ----------
        column : str
        wanted : Pictures
        """
        n = len(wanted.hashes)
        located = Located([], np.full(n, MISSING, dtype=np.int32), np.zeros(n, dtype=np.int64))
        for segment in self._segments_with(f"{column_name(column)}.json", wanted):
            if len(located.missing):
                located.add(segment, segment.column(column), wanted)
        if len(located.missing) and not self.segment(wanted.hashes[located.missing]).begun:
            for segment in self._segments_with(f"{column_name(column)}/*.safetensors", wanted):
                if not segment.complete(column) and len(located.missing):
                    located.add(segment, segment.unfinished_column(column), wanted)
        return located

    def segment(self, hashes: np.ndarray) -> Segment:
        """The segment of a list of pictures, whether or not it has been begun."""
        grid = (self.batch_size, SHARD_ROWS)
        name = _digest("segment", grid, hashlib.sha256(hashes.tobytes()).hexdigest())
        return Segment(self.root, f"{self.place}/{name}", hashes, self.batch_size)

    def put_about(self) -> None:
        """Keep what the shelf's source and image policy are."""
        sealed.sweep(self.root / self.place)
        if not (self.root / self.place / "shelf.json").exists():
            sealed.write_json(self.root, f"{self.place}/shelf.json", self._about)

    def _segments_with(self, pattern: str, wanted: Pictures) -> list[Segment]:
        """Segments that have a file: those of just the pictures wanted first, then by name."""
        folder = self.root / self.place
        names = {path.relative_to(folder).parts[0] for path in folder.glob(f"[!.]*/{pattern}")}
        segments = [self._open(name) for name in sorted(names)]
        return sorted(segments, key=lambda segment: not np.array_equal(segment.hashes, wanted.hashes))

    def _open(self, name: str) -> Segment:
        if name not in self._segments:
            self._segments[name] = open_segment(self.root, f"{self.place}/{name}")
        return self._segments[name]


def open_segment(root: Path, place: str) -> Segment:
    """A segment that has been begun.

    Raises
    ------
    StoreError
        Its list of pictures is damaged.
    """
    opened = sealed.read(root, f"{place}/rows.safetensors")
    hashes = opened.raw("rows").view("<u8").reshape(-1, 2)
    return Segment(root, place, hashes, int(opened.metadata["batch_size"]))


def remove_segment(root: Path, place: str) -> None:
    """Delete a segment, whatever state it is in: all of it disappears at once.

    Raises
    ------
    StoreError
        Another process is writing it.
    """
    folder = root / place

    def busy() -> None:
        raise StoreError(f"{folder} is being written by another process; wait for it, or end it")

    with _lock(folder, busy):
        grave = folder.with_name(f"{REMOVED}{folder.name}")
        shutil.rmtree(grave, ignore_errors=True)
        folder.rename(grave)
        shutil.rmtree(grave)


class Segment:
    """An ordered list of pictures, with the columns that were computed for it.

    Parameters
    ----------
    root : Path
    place : str
    hashes : ndarray (n, 2) uint64
    batch_size : int
    """

    def __init__(self, root: Path, place: str, hashes: np.ndarray, batch_size: int) -> None:
        self.root = root
        self.place = place
        self.hashes = hashes
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def begun(self) -> bool:
        """Whether its list of pictures is in the store."""
        return (self.root / self.place / "rows.safetensors").exists()

    @property
    def shards(self) -> int:
        """Number of shards of each column."""
        return -(-len(self) // SHARD_ROWS)

    def span(self, shard: int) -> range:
        """The rows of a shard."""
        return range(shard * SHARD_ROWS, min((shard + 1) * SHARD_ROWS, len(self)))

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """The row of each picture (m, 2), or ``MISSING``."""
        order, first = self._order
        at = np.minimum(np.searchsorted(first, wanted[:, 0]), len(order) - 1)
        rows = order[at]
        return np.where((self.hashes[rows] == wanted).all(axis=1), rows, MISSING)

    @cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.hashes[:, 0], kind="stable")
        return order, self.hashes[order, 0]

    @contextlib.contextmanager
    def writing(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Begin the segment and be its only writer; the lock ends with the process, however that ends.

        Parameters
        ----------
        waiting : callable
            Called once if another process is writing it now.
        """
        folder = self.root / self.place
        with _lock(folder, waiting) as locked:
            for inner in (folder, *(path for path in folder.iterdir() if path.is_dir())):
                sealed.sweep(inner, locked=locked)
            if not self.begun:
                rows = np.ascontiguousarray(self.hashes).view(np.uint8)
                place = f"{self.place}/rows.safetensors"
                sealed.write(self.root, place, {"rows": rows}, {"batch_size": str(self.batch_size)})
            yield

    def complete(self, column: str) -> bool:
        """Whether a column has all its shards and its manifest."""
        return (self.root / self._manifest(column)).exists()

    def column(self, column: str) -> StoredColumn:
        """A complete column.

        Raises
        ------
        StoreError
            Its manifest is damaged, or a shard is missing or of another size.
        """
        manifest = sealed.read_json(self.root, self._manifest(column))
        return StoredColumn(self, manifest)

    def unfinished_column(self, column: str) -> StoredColumn:
        """What there is of a column that was interrupted.

        Raises
        ------
        StoreError
            A shard is damaged.
        """
        return StoredColumn(self, self._survey(column, self.there(column)))

    def there(self, column: str) -> list[int]:
        """The shards of a column that are there, unchecked."""
        return [shard for shard in range(self.shards) if (self.root / self.shard_place(column, shard)).exists()]

    def checked(self, column: str) -> list[int]:
        """The shards of a column that are there, each checked against its digest.

        Raises
        ------
        StoreError
            One is damaged.
        """
        found = self.there(column)
        for shard in found:
            sealed.read(self.root, self.shard_place(column, shard))
        return found

    def write_shard(self, column: str, shard: int, values: np.ndarray, skipped: Sequence[Skip]) -> None:
        """Write one shard of a column.

        Parameters
        ----------
        column : str
        shard : int
        values : ndarray (rows, …)
            Rows of pictures that were left out are NaN; where all were, there are no values (rows, 0).
        skipped : sequence of Skip

        Raises
        ------
        StoreError
            The disk is full, or the place cannot be written.
        """
        metadata = {"column": column, "skipped": json.dumps(skipped)}
        sealed.write(self.root, self.shard_place(column, shard), {"values": values}, metadata)

    def finish(self, column: str) -> None:
        """Write a column's manifest; every shard is there."""
        sealed.write_json(self.root, self._manifest(column), self._survey(column, range(self.shards)))

    def _survey(self, column: str, present: Sequence[int]) -> dict[str, Any]:
        """What the shards of a column hold, as its manifest says it."""
        shards: dict[str, Any] = {}
        skipped: list[Any] = []
        tail = None
        for shard in present:
            opened = sealed.read(self.root, self.shard_place(column, shard))
            shards[str(shard)] = {"sha256": opened.digest, "bytes": opened.path.stat().st_size}
            left_out = json.loads(opened.metadata["skipped"])
            skipped += left_out
            if len(left_out) < len(self.span(shard)):
                tail = opened.entries["values"].shape[1:]
        return {"column": column, "rows": len(self), "tail": tail, "shards": shards, "skipped": skipped}

    def shard_place(self, column: str, shard: int) -> str:
        """Where a shard lies, relative to the store."""
        return f"{self.place}/{column_name(column)}/{shard:05d}.safetensors"

    def _manifest(self, column: str) -> str:
        return f"{self.place}/{column_name(column)}.json"


class StoredColumn:
    """A column of a segment, complete or as far as it was finished.

    Attributes
    ----------
    key : str
    tail : tuple of int or None
        Shape of one row; None where every picture was left out.
    skipped : list of Skip
    """

    def __init__(self, segment: Segment, manifest: Mapping[str, Any]) -> None:
        self.segment = segment
        self.key: str = manifest["column"]
        self.tail = None if manifest["tail"] is None else tuple(manifest["tail"])
        self.skipped = [Skip(*entry) for entry in manifest["skipped"]]
        self._digests = {int(shard): entry["sha256"] for shard, entry in manifest["shards"].items()}
        for shard, entry in manifest["shards"].items():
            self._check_size(segment.root / segment.shard_place(self.key, int(shard)), entry["bytes"])

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Whether the shard of each row is there."""
        if len(self._digests) == self.segment.shards:
            return np.ones(len(rows), dtype=bool)
        return np.isin(rows // SHARD_ROWS, list(self._digests))

    def _check_size(self, path: Path, expected: int) -> None:
        size = path.stat().st_size if path.exists() else None
        if size != expected:
            what = "is missing" if size is None else f"is {size} bytes long instead of {expected}"
            raise StoreError(f"{path} {what}, though its column is complete; {sealed.NEXT_STEP}")

    def read(self, shard: int, start: int, stop: int) -> Tensor:
        """Rows of a shard, mapped.

        Raises
        ------
        StoreError
            The shard is damaged, or is another one than was written.
        """
        place = self.segment.shard_place(self.key, shard)
        return sealed.read(self.segment.root, place, self._digests[shard]).tensor("values", start, stop)


class StoredRows:
    """Rows of stored columns, read slice by slice: :class:`fiood_core.features.Rows`.

    A slice that lies together in one shard is the map itself; any other is gathered.
    """

    def __init__(self, columns: Sequence[StoredColumn], part: np.ndarray, row: np.ndarray) -> None:
        self._columns = columns
        self._part = part
        self._row = row
        tails = {columns[number].tail for number in np.unique(part)}
        if len(tails) != 1:
            place = columns[0].segment.root / Path(columns[0].segment.place).parent
            raise StoreError(
                f"column {columns[0].key!r} has rows of different shapes {sorted(map(str, tails))} in {place}; "
                "remove them with `fiood store remove` and extract again"
            )
        self.shape: tuple[int, ...] = (len(row), *(tails.pop() or ()))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        import torch

        part, row = self._part[rows], self._row[rows]
        shard = row // SHARD_ROWS
        if not len(row):
            return torch.empty(0, *self.shape[1:])
        if len(row) == 1 or ((part == part[0]).all() and (shard == shard[0]).all() and (np.diff(row) == 1).all()):
            start = int(row[0]) % SHARD_ROWS
            together: Tensor = self._columns[part[0]].read(int(shard[0]), start, start + len(row))
            return together
        pieces = np.stack([part.astype(np.int64), shard], axis=1)
        groups, group_of = np.unique(pieces, axis=0, return_inverse=True)
        values = torch.empty(len(row), *self.shape[1:])
        for group, (number, shard_number) in enumerate(groups.tolist()):
            where = np.flatnonzero(group_of.ravel() == group)
            inner = torch.from_numpy(row[where] % SHARD_ROWS)
            values[torch.from_numpy(where)] = self._columns[number].read(shard_number, 0, SHARD_ROWS)[inner]
        return values


def folder_name(key: str) -> str:
    """A folder's name for a key: itself if it is a digest, else its digest, so that no key leaves the store."""
    return key if re.fullmatch(r"[0-9a-f]{32,64}", key) else hashlib.sha256(key.encode()).hexdigest()


def column_name(key: str) -> str:
    """A file's name for a column's key."""
    return key if key in _PLAIN else f"column-{_digest('column', key)[:24]}"


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _lock(folder: Path, waiting: Callable[[], None]) -> Iterator[bool]:
    """Hold a folder's lock; False where the file system has none."""
    if not LOCKS:
        folder.mkdir(parents=True, exist_ok=True)
        yield False
        return
    handle = _open_folder(folder)
    try:
        locked = _acquire(handle, waiting)
        while locked and not _still(handle, folder):  # removed while this process waited
            _release(handle)
            handle = _open_folder(folder)
            locked = _acquire(handle, waiting)
        yield locked
    finally:
        _release(handle)


def _open_folder(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}; free space or make the place writable") from error


def _acquire(handle: int, waiting: Callable[[], None]) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        return False
    return True


def _release(handle: int) -> None:
    """Give the lock up by name: worker processes may hold copies of the handle, and closing one would not do."""
    import fcntl

    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
    os.close(handle)


def _still(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(folder))
    except FileNotFoundError:
        return False
