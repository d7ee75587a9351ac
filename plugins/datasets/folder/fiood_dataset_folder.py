"""Any folder of pictures, or a list of them, as a dataset."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from fiood_core import Concept, Dataset, Info, View
from fiood_core.errors import DataError
from fiood_core.imagenet import WNID, class_index, wnids

PICTURES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".mpo"),
    *(".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)
"""File name extensions of pictures, in lower case; upper case counts too."""

COLUMNS = ("path", "label", "wnid", "concept")
"""Columns of a list that mean something; ``path`` is required, others are ignored."""

INDICES = re.compile(r"-1|\d{1,9}(;\d{1,9})*", re.ASCII)
"""A label that is one class index or several, or -1 for none."""

MAX_LIST_BYTES = 1 << 30
"""Largest list that is read."""

SHOWN = 10
"""How many names of one kind a message lists."""


@dataclass
class _Scan:
    """What lies under a folder: relative paths with forward slashes, each sorted."""

    pictures: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Entry:
    """A line of a list, its cells stripped; ``""`` where a column is absent."""

    line: int
    path: str
    label: str
    wnid: str
    concept: str


class Folder(Dataset):
    """The pictures under a folder, in the order of their relative paths; or those that a CSV file names, in its order.

    Labels never come from the order of folders.  In a folder, a picture under a sub-folder named by a WordNet id
    (``n01440764``) has that ImageNet-1k class as its target, or that id as its concept where it is none of the
    thousand; any other picture has no label.  In a CSV file with a header,

    * ``path`` is relative to the folder, with forward slashes, and stays inside it;
    * ``label`` is a class index, several separated by ``;``, empty or -1 for none; or, if it holds no numbers, a name
      of what the picture shows (its concept);
    * ``wnid`` counts where there are no class indices; ``concept`` is always a name.

    A list without any of these takes labels from wnid folders.  Hidden files are skipped, symbolic links followed.

    Parameters
    ----------
    path : path
        A folder, or a CSV file, whose own folder is then the root.
    labels : path, optional
        A CSV file whose paths are relative to ``path``.

    Attributes
    ----------
    root : Path
    """

    def __init__(self, path: str | Path, labels: str | Path | None = None) -> None:
        place = _absolute(path)
        self.list = _absolute(labels) if labels is not None else None
        if self.list is None and place.suffix.lower() == ".csv" and not place.is_dir():
            self.list, place = place, place.parent
        self.root = place
        self.info = Info(title=(self.list or place).name, home=str(self.list or place), notes="the user's own pictures")

    def view(self) -> View:
        return self._view

    @property
    def class_wnids(self) -> Sequence[str] | None:  # type: ignore[override]
        """ImageNet-1k's, where targets come from WordNet ids; None where a list counts classes of its own."""
        counted = self.list is not None and _all_indices(self.list, self._entries)
        return None if counted else wnids()

    @cached_property
    def _view(self) -> View:
        absent = self.missing()
        if absent:
            raise DataError("\n".join(absent))
        ids = self._scan.pictures if self.list is None else [entry.path for entry in self._entries]
        labels = self._labels(ids)
        targets = [target for target, _ in labels]
        concepts = [concept for _, concept in labels]
        return View(
            source=f"folder:{hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()}",
            ids=ids,
            targets=targets if any(targets) else None,
            concepts=concepts if any(concepts) else None,
        )

    def open(self, image_id: str) -> Path:
        problem = _outside(image_id)
        if problem:
            raise DataError(f"{image_id!r} {problem}; ids of {self.root} are relative paths inside it")
        return self.root / image_id

    def missing(self) -> Sequence[str]:
        if not self.root.is_dir():
            return [f"there is no folder {self.root}; give a folder of pictures, or a list that ends in .csv"]
        try:
            if self.list is None:
                return self._missing_pictures()
            gone = [entry.path for entry in self._entries if not self.open(entry.path).is_file()]
        except DataError as error:
            return [str(error)]
        if gone:
            return [
                f"{len(gone)} of {len(self._entries)} pictures that {self.list} names are not under {self.root}: "
                f"{_some(gone)}; add them, or take them out of the list"
            ]
        return []

    def verify(self) -> Sequence[str]:
        report = list(self.missing())
        if report or not self.root.is_dir():
            return report
        scan = self._scan
        listed = scan.pictures if self.list is None else [entry.path for entry in self._entries]
        others = [name for name in scan.others if self.root / name != self.list]
        report += [f"not a picture by its name: {name}" for name in others]
        report += [f"symbolic link to a folder above itself, not followed: {name}" for name in scan.loops]
        report += [f"empty: {name}" for name in listed if self.open(name).stat().st_size == 0]
        report += [f"not in the list: {name}" for name in sorted(set(scan.pictures) - set(listed))]
        return report + self._duplicates(listed)

    @cached_property
    def _scan(self) -> _Scan:
        scan = _Scan()
        try:
            _walk(self.root, "", frozenset(), scan)
        except OSError as error:
            raise DataError(f"{error.filename} cannot be read: {error.strerror}; check its permissions") from error
        for names in (scan.pictures, scan.broken, scan.others, scan.loops):
            names.sort()
        return scan

    @cached_property
    def _entries(self) -> list[_Entry]:
        assert self.list is not None
        try:
            entries = list(_read(self.list))
        except OSError as error:
            raise DataError(f"the list {self.list} cannot be read: {error.strerror}; check the path") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{self.list} is not a CSV file in UTF-8: {error}; save it as one") from error
        if not entries:
            raise DataError(f"{self.list} names no picture; add lines below its header")
        return entries

    def _missing_pictures(self) -> list[str]:
        scan = self._scan
        report = []
        if not scan.pictures:
            report.append(f"{self.root} holds no picture ({' '.join(PICTURES)}); check the path")
        if scan.broken:
            report.append(f"{self.root}: no files, or links to nothing: {_some(scan.broken)}; mend or remove them")
        odd = [ascii(name) for name in scan.pictures if not _plain(name)]
        if odd:
            report.append(f"{self.root}: names that are not printable UTF-8: {_some(odd)}; rename them")
        return report

    def _labels(self, ids: Sequence[str]) -> list[tuple[tuple[int, ...], Concept | None]]:
        """For each picture its targets and its concept."""
        if self.list is None or not any(e.label or e.wnid or e.concept for e in self._entries):
            return [_from_wnid(_wnid_folder(name)) for name in ids]
        indices = _all_indices(self.list, self._entries)
        labels = []
        for entry in self._entries:
            name = entry.concept or ("" if indices else entry.label)
            target, concept = _from_wnid(entry.wnid or None)
            if name:
                target, concept = (), Concept(name, entry.wnid or None)
            if indices:
                target = _targets(entry.label)
            labels.append((target, None if target and not name else concept))
        return labels

    def _duplicates(self, names: Sequence[str]) -> list[str]:
        by_size: dict[int, list[str]] = defaultdict(list)
        for name in names:
            by_size[self.open(name).stat().st_size].append(name)
        first: dict[str, str] = {}
        report = []
        for name in (name for group in by_size.values() if len(group) > 1 for name in group):
            digest = hashlib.sha256(self.open(name).read_bytes()).hexdigest()
            if digest in first:
                report.append(f"the same picture twice: {first[digest]} and {name}")
            first.setdefault(digest, name)
        return report


def _walk(folder: Path, prefix: str, above: frozenset[tuple[int, int]], scan: _Scan) -> None:
    state = folder.stat()
    identity = (state.st_dev, state.st_ino)
    if identity in above:
        scan.loops.append(prefix.removesuffix("/"))
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                _walk(folder / entry.name, f"{prefix}{entry.name}/", above | {identity}, scan)
            elif Path(entry.name).suffix.lower() not in PICTURES:
                scan.others.append(prefix + entry.name)
            elif entry.is_file():
                scan.pictures.append(prefix + entry.name)
            else:
                scan.broken.append(prefix + entry.name)


def _read(place: Path) -> Iterator[_Entry]:
    if place.stat().st_size > MAX_LIST_BYTES:
        raise DataError(f"{place} is larger than {MAX_LIST_BYTES >> 20} MiB; split it")
    seen: dict[str, int] = {}
    with place.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        if "path" not in (rows.fieldnames or ()):
            raise DataError(f"{place} needs a header line with a 'path' column; others are {', '.join(COLUMNS[1:])}")
        for row in rows:
            path = row["path"] or ""
            cells = ((row.get(column) or "").strip() for column in COLUMNS[1:])
            entry = _Entry(rows.line_num, path, *cells)
            problem = _outside(path) or (path in seen and f"stands in line {seen[path]} too")
            if None in row or None in row.values():
                problem = "has more or fewer cells than the header"
            elif entry.wnid and not WNID.fullmatch(entry.wnid):
                problem = f"has the wnid {entry.wnid!r}, which is not n and eight digits"
            if problem:
                raise DataError(f"{place} line {entry.line}: {path!r} {problem}; correct the line")
            seen[path] = entry.line
            yield entry


def _outside(path: str) -> str:
    """What keeps a path from naming a picture inside the folder; empty if nothing does."""
    parts = PurePosixPath(path)
    if not path:
        return "is empty"
    if not _plain(path):
        return "is not printable UTF-8"
    if parts.is_absolute() or ".." in parts.parts:
        return "leaves the folder, to which paths are relative"
    return "" if str(parts) == path else f"should be written {str(parts)!r}"


def _plain(name: str) -> bool:
    """Whether a name has no control characters and no bytes that are not UTF-8."""
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in name)


def _wnid_folder(name: str) -> str | None:
    """The WordNet id of the innermost folder that is named by one."""
    folders = name.split("/")[:-1]
    return next((part for part in reversed(folders) if WNID.fullmatch(part)), None)


def _from_wnid(wnid: str | None) -> tuple[tuple[int, ...], Concept | None]:
    if wnid is None:
        return (), None
    index = class_index(wnid)
    return ((), Concept(wnid, wnid)) if index is None else ((index,), None)


def _all_indices(place: Path, entries: Sequence[_Entry]) -> bool:
    """Whether the labels are class indices; false where they are names or absent."""
    numbers = [entry for entry in entries if INDICES.fullmatch(entry.label)]
    names = [entry for entry in entries if entry.label and not INDICES.fullmatch(entry.label)]
    if numbers and names:
        raise DataError(
            f"{place} line {names[0].line}: label {names[0].label!r} is no class index, unlike line "
            f"{numbers[0].line}'s; write indices (several as 3;7, none as an empty cell), "
            "or put names in the 'concept' column"
        )
    for entry in names:
        if _is_number(entry.label):
            raise DataError(f"{place} line {entry.line}: label {entry.label!r} is no class index; write whole numbers")
    return bool(numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _targets(label: str) -> tuple[int, ...]:
    return () if label in ("", "-1") else tuple(sorted({int(part) for part in label.split(";")}))


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(Path(path).expanduser()))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
