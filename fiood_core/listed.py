"""Datasets that a list defines: the list says which pictures, the archive or the user's own copy supplies them.

A folder is never scanned and called the dataset.  Each entry of the list is looked for by its relative path (under any
top folder, spaces and underscores alike), then, where its content is known, by content; what is missing, empty, extra,
altered or misplaced is reported all at once.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from fiood_core import settings
from fiood_core.archive import Remote, fetch, file_digest, unpack
from fiood_core.dataset import Concept, Dataset, View
from fiood_core.errors import DataError

if TYPE_CHECKING:
    from typing_extensions import Self

SHOWN = 10
"""How many names of one kind a message lists."""


@dataclass(frozen=True)
class Entry:
    """One picture of a list.

    Attributes
    ----------
    id : str
        Relative path with forward slashes: the stable id.
    targets : tuple of int, optional
        ID classes, for a set in the ID label space.
    concept : Concept, optional
    subsets : tuple of str
        Names of the subsets that the picture belongs to.
    digest : str, optional
        ``sha256:…`` of the file, where it is known.
    """

    id: str
    targets: tuple[int, ...] | None = None
    concept: Concept | None = None
    subsets: tuple[str, ...] = ()
    digest: str | None = None


class ListedDataset(Dataset):
    """A dataset whose pictures a list names.

    A plugin gives ``name``, ``info``, the list files, the archives, and :meth:`entries`, which parses the lists.

    Parameters
    ----------
    root : path, optional
        A copy that the user has; by default the data home's folder of the dataset's name.
    lists : path, optional
        Folder that holds the list files; by default ``lists`` in the data home's folder.

    Attributes
    ----------
    source : str
        What the feature store knows the pictures by; equal for datasets that are views of one archive.
    shelf : str
        Folder of the data home in which lists and pictures lie; equal for datasets that share an archive.  The name
        where empty.
    list_files, archives : tuple of Remote
    folder : str
        Sub-folder of the archive in which the pictures lie, for :meth:`verify`'s search for extra files; ``""`` if
        other sets share the archive, so that nothing counts as extra.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    shelf: ClassVar[str] = ""
    list_files: ClassVar[tuple[Remote, ...]] = ()
    archives: ClassVar[tuple[Remote, ...]] = ()
    folder: ClassVar[str] = ""

    def __init__(self, root: str | Path | None = None, lists: str | Path | None = None) -> None:
        self._home = settings.home() / "datasets" / (self.shelf or self.name)
        self.root = Path(root).expanduser() if root is not None else self._home / "pictures"
        self.lists = Path(lists).expanduser() if lists is not None else self._home / "lists"
        self._manifest: tuple[Entry, ...] | None = None

    # -- what a plugin writes ------------------------------------------------------------------------------------

    @abstractmethod
    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        """The pictures, in order, parsed from list files whose digests hold.

        Raises
        ------
        DataError
            A list does not have the form, counts or joins that define the set; the message names the line.
        """

    def aliases(self, image_id: str) -> Sequence[str]:
        """Other relative paths under which copies in circulation keep a picture; none by default."""
        return ()

    # -- what the base class gives -------------------------------------------------------------------------------

    @property
    def canonical(self) -> bool:
        """Whether the list is the set's own, not a stand-in's."""
        return self._manifest is None

    @cached_property
    def listed(self) -> tuple[Entry, ...]:
        """The entries, with count and uniqueness checked.

        Raises
        ------
        DataError
            A list file is missing or altered, or does not give the expected count.
        """
        if self._manifest is not None:
            return self._manifest
        entries = tuple(self.entries(self._list_paths()))
        expected = self.info.expected_count
        if expected is not None and len(entries) != expected:
            raise DataError(f"{self.name}: the lists give {len(entries)} pictures, the set has {expected}")
        return entries

    def view(self) -> View:
        absent = self.missing()
        if absent:
            raise DataError("\n".join(absent))
        entries = self.listed
        subsets: dict[str, list[int]] = defaultdict(list)
        for row, entry in enumerate(entries):
            for subset in entry.subsets:
                subsets[subset].append(row)
        labelled = any(e.targets is not None for e in entries)
        named = any(e.concept is not None for e in entries)
        return View(
            source=self.source,
            ids=[e.id for e in entries],
            targets=[e.targets or () for e in entries] if labelled else None,
            concepts=[e.concept for e in entries] if named else None,
            subsets=dict(subsets),
            canonical=self.canonical,
        )

    def open(self, image_id: str) -> Path:
        try:
            return self._located[image_id]
        except KeyError:
            raise DataError(f"{self.name} has no picture {image_id!r} at {self.root}; run fiood data verify") from None

    def missing(self) -> Sequence[str]:
        try:
            entries = self.listed
        except DataError as error:
            return [str(error)]
        if not self.root.exists():
            return [f"{self.name}: no pictures at {self.root}; {self._how_to_get()}"]
        gone = [e.id for e in entries if e.id not in self._located]
        if not gone:
            return []
        return [
            f"{self.name}: {len(gone)} of {len(entries)} pictures are not under {self.root}: {_some(gone)}; "
            f"{self._how_to_get()}"
        ]

    def verify(self) -> Sequence[str]:
        try:
            entries = self.listed
        except DataError as error:
            return [str(error)]
        if not self.root.exists():
            return self.missing()
        report = [f"missing: {e.id}" for e in entries if e.id not in self._located]
        known = self._recorded()
        for entry in entries:
            place = self._located.get(entry.id)
            if place is None:
                continue
            digest = entry.digest or known.get(entry.id)
            if place.stat().st_size == 0:
                report.append(f"empty: {entry.id} at {place}")
            elif digest is not None and file_digest(place, digest.partition(":")[0]) != digest:
                report.append(f"altered: {entry.id} at {place}")
            elif not self._in_place(entry.id, place):
                report.append(f"misplaced: {entry.id} lies at {place.relative_to(self.root)}")
        return report + [f"extra: {path}" for path in self._extra()]

    def prepare(self, *, offline: bool = False, adopt: str | Path | None = None) -> None:
        """Fetch lists and archives, check, extract and put in place; or adopt a copy by a symbolic link.

        Raises
        ------
        DataError
            Something could not be had or is not what it should be; what was fetched and holds is kept.
        """
        for remote in self.list_files:
            if self._manifest is None:
                fetch(remote, self.lists, offline=offline)
        if adopt is not None:
            self._adopt(Path(adopt).expanduser().resolve())
        elif not self.root.exists():
            self._fetch_pictures(offline)
        problems = self.verify()
        bad = [p for p in problems if not p.startswith(("extra:", "misplaced:"))]
        if bad:
            raise DataError(f"{self.name} at {self.root} is not complete:\n  " + "\n  ".join(bad[:50]))
        self._record()

    def with_manifest(self, manifest: Mapping[str, object]) -> Self:
        """A stand-in with the pictures that ``manifest["entries"]`` lists; its view is not canonical.

        Each entry is a mapping with ``id`` and, as far as known, ``targets``, ``wnid`` and ``name``, ``subsets`` and
        ``sha256``.  ``manifest["archives"]`` may replace the archives: mappings with ``name``, ``urls``, ``kind`` and
        ``digest``.
        """
        other = type(self)(self.root, self.lists)
        entries = manifest.get("entries")
        if not isinstance(entries, Sequence) or not entries:
            raise DataError(f"{self.name}: a manifest needs a non-empty list of entries")
        other._manifest = tuple(_entry(dict(e)) for e in entries)
        archives = manifest.get("archives")
        if isinstance(archives, Sequence):
            other.archives = tuple(Remote(**{**a, "urls": tuple(a["urls"])}) for a in archives)  # type: ignore[misc]
        return other

    # -- pictures ------------------------------------------------------------------------------------------------

    @cached_property
    def _located(self) -> dict[str, Path]:
        """Where each listed picture lies; a picture that is not there has no key."""
        if not self.root.is_dir():
            return {}
        files = self._files
        by_name: dict[str, list[str]] = defaultdict(list)
        for path in files:
            by_name[_plain(path.rpartition("/")[2])].append(path)
        found: dict[str, Path] = {}
        lost: list[Entry] = []
        for entry in self.listed:
            place = _best_match((entry.id, *self.aliases(entry.id)), files, by_name)
            if place is None:
                lost.append(entry)
            else:
                found[entry.id] = self.root / place
        found.update(self._by_content([e for e in lost if e.digest], set(found.values())))
        return found

    @cached_property
    def _files(self) -> frozenset[str]:
        """Relative paths of all files under the root, hidden ones aside."""
        paths = []
        for folder, folders, names in os.walk(self.root, followlinks=True):
            folders[:] = [f for f in folders if not f.startswith(".")]
            base = Path(folder).relative_to(self.root)
            paths += [(base / name).as_posix() for name in names if not name.startswith(".")]
        return frozenset(paths)

    def _by_content(self, lost: Sequence[Entry], taken: set[Path]) -> dict[str, Path]:
        if not lost:
            return {}
        free = [self.root / p for p in sorted(self._files) if self.root / p not in taken]
        content = {file_digest(path): path for path in free}
        return {e.id: content[e.digest] for e in lost if e.digest in content}

    def _in_place(self, image_id: str, place: Path) -> bool:
        tail = _plain(place.relative_to(self.root).as_posix())
        return any(tail.endswith(_plain(name)) for name in (image_id, *self.aliases(image_id)))

    def _extra(self) -> list[str]:
        if not self.folder:
            return []
        used = {path.relative_to(self.root).as_posix() for path in self._located.values()}
        inside = (p for p in self._files if p.startswith(f"{self.folder}/") or f"/{self.folder}/" in p)
        return sorted(p for p in inside if p not in used)

    # -- files that come from elsewhere --------------------------------------------------------------------------

    def _list_paths(self) -> dict[str, Path]:
        paths = {}
        problems = []
        for remote in self.list_files:
            path = self.lists / remote.name
            if not path.is_file():
                where = f"get it from {remote.urls[0]}" if remote.urls else remote.instructions
                problems.append(
                    f"{self.name}: its list {remote.name} is not at {path}; "
                    f"run fiood data prepare {self.name}, or {where}"
                )
            elif remote.digest and file_digest(path, remote.digest.partition(":")[0]) != remote.digest:
                problems.append(
                    f"{self.name}: {path} is altered: it does not have the digest {remote.digest}; "
                    f"remove it and run fiood data prepare {self.name}"
                )
            paths[remote.name] = path
        if problems:
            raise DataError("\n".join(problems))
        return paths

    def _how_to_get(self) -> str:
        bound = [a for a in self.archives if not a.urls]
        if bound:
            return " ".join(a.instructions for a in bound) + f" Then run fiood data prepare {self.name} --adopt FOLDER"
        return (
            f"run fiood data prepare {self.name}, or fiood data prepare {self.name} --adopt FOLDER for a copy you have"
        )

    def _fetch_pictures(self, offline: bool) -> None:
        if not self.archives:
            raise DataError(f"{self.name}: no archive can be fetched; {self._how_to_get()}")
        downloads = self._home / "downloads"
        fetched = [(fetch(remote, downloads, offline=offline), remote.nested) for remote in self.archives]
        if len(fetched) == 1:
            unpack(fetched[0][0], self.root, nested=fetched[0][1])
            return
        staging = self.root.with_name(f".{self.root.name}.parts")
        shutil.rmtree(staging, ignore_errors=True)
        for path, nested in fetched:
            unpack(path, staging / path.name.partition(".")[0], nested=nested)
        os.replace(staging, self.root)

    def _adopt(self, folder: Path) -> None:
        if not folder.is_dir():
            raise DataError(f"{self.name}: there is no folder {folder} to adopt")
        trial = type(self)(folder, self.lists)
        trial._manifest, trial.archives = self._manifest, self.archives  # type: ignore[misc]
        problems = [p for p in trial.verify() if not p.startswith(("extra:", "misplaced:"))]
        if problems:
            raise DataError(f"{self.name}: {folder} is not a complete copy:\n  " + "\n  ".join(problems[:50]))
        if self.root.is_symlink():
            self.root.unlink()
        elif self.root.exists():
            raise DataError(f"{self.name}: {self.root} exists already; remove it to adopt {folder}")
        self.root.parent.mkdir(parents=True, exist_ok=True)
        self.root.symlink_to(folder, target_is_directory=True)
        self.__dict__.pop("_located", None)
        self.__dict__.pop("_files", None)

    # -- what the files were when they were accepted -------------------------------------------------------------

    @property
    def _record_path(self) -> Path:
        return self._home / f"accepted-{self.name}.json"

    def _record(self) -> None:
        digests = {e.id: file_digest(self._located[e.id]) for e in self.listed}
        scratch = self._record_path.with_suffix(".tmp")
        scratch.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps({"root": str(self.root.resolve()), "digests": digests}, indent=0))
        os.replace(scratch, self._record_path)

    def _recorded(self) -> Mapping[str, str]:
        if not self._record_path.is_file():
            return {}
        record: dict[str, Any] = json.loads(self._record_path.read_text())
        digests: dict[str, str] = record["digests"]
        return digests if record["root"] == str(self.root.resolve()) else {}


class FirstOfEachClass(ListedDataset):
    """A set defined by classes, of each of which it has the first pictures by sorted file name.

    Attributes
    ----------
    classes, each : int
        How many classes there are, and pictures of each.
    """

    classes: ClassVar[int]
    each: ClassVar[int]

    @abstractmethod
    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        """The WordNet ids of the classes, in order."""

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        wnids = self.wnids(lists)
        if len(set(wnids)) != self.classes or len(wnids) != self.classes:
            raise DataError(f"{self.name}: the lists give {len(set(wnids))} classes, the set has {self.classes}")
        if not self.root.is_dir():
            raise DataError(f"{self.name}: no pictures at {self.root}; {self._how_to_get()}")
        found = {wnid: self._first(wnid) for wnid in wnids}
        short = [f"{wnid} ({len(files)})" for wnid, files in found.items() if len(files) < self.each]
        if short:
            raise DataError(
                f"{self.name}: {len(short)} classes have fewer than {self.each} pictures under {self.root}: "
                f"{_some(short)}; this copy is another release, or incomplete"
            )
        return [Entry(f"{wnid}/{file}", concept=Concept("", wnid)) for wnid in wnids for file in found[wnid]]

    def _first(self, wnid: str) -> list[str]:
        folder = self.root / wnid
        names = sorted(p.name for p in folder.glob("*.JPEG")) if folder.is_dir() else []
        return names[: self.each]


IMAGENET_21K = Remote(
    "imagenet-21k",
    instructions="Get ImageNet-21k (winter 2021) from https://image-net.org (an account is needed), one folder a wnid.",
)
"""ImageNet-21k is bound to an account, so it is never fetched; the user's copy is adopted."""


def github(repository: str, path: str, sha256: str, *, name: str | None = None) -> Remote:
    """A list file in a public repository, trusted by its digest alone."""
    return Remote(
        name or path.rpartition("/")[2],
        urls=(f"https://raw.githubusercontent.com/{repository}/HEAD/{path}",),
        digest=f"sha256:{sha256}",
        max_bytes=1 << 25,
    )


def image_list(path: Path) -> list[tuple[str, str]]:
    """Lines ``<relative path> <label>``, split at the last space since paths may hold spaces.

    Raises
    ------
    DataError
        A line has no label; the message names it.
    """
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        image, _, label = line.rpartition(" ")
        if not image:
            raise DataError(f"{path.name}:{number}: {line!r} is not <path> <label>")
        rows.append((image, label))
    return rows


def csv_columns(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a CSV file with a header, as tuples in the order asked for.

    Raises
    ------
    DataError
        The header lacks a column; the message names it.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        absent = [c for c in columns if c not in (reader.fieldnames or ())]
        if absent:
            raise DataError(f"{path.name} has no column {absent[0]!r}; its header is {reader.fieldnames}")
        return [tuple(row[c] for c in columns) for row in reader]


def _best_match(names: Sequence[str], files: frozenset[str], by_name: Mapping[str, Sequence[str]]) -> str | None:
    """The one file that shares the longest tail of path parts with one of the names; None if none or ambiguous."""
    for name in names:
        if name in files:
            return name
    for name in names:
        parts = _plain(name).split("/")
        candidates = by_name.get(parts[-1], ())
        full = [c for c in candidates if _plain(c).split("/")[-len(parts) :] == parts]
        if len(full) == 1:
            return full[0]
    return None


def _plain(path: str) -> str:
    """A path as copies in circulation spell it: spaces as underscores."""
    return path.replace(" ", "_")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _entry(fields: dict[str, Any]) -> Entry:
    path = PurePosixPath(str(fields["id"]))
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"manifest entry {str(path)!r} is not a relative path inside the dataset")
    concept = Concept(fields["name"], fields.get("wnid")) if "name" in fields else None
    targets = tuple(fields["targets"]) if "targets" in fields else None
    digest = f"sha256:{fields['sha256']}" if "sha256" in fields else None
    return Entry(str(path), targets, concept, tuple(fields.get("subsets", ())), digest)
