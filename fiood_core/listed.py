"""Datasets that a list defines: the list says which pictures, the archive or the user's own copy supplies them.

A folder is never scanned and called the dataset.  Each entry of the list is looked for by its relative path (under any
top folder, spaces and underscores alike), then, where its content is known, by content; what is missing, empty, extra,
altered or misplaced is reported all at once.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from fiood_core.dataset import Concept, View
from fiood_core.download import Progress, file_digest
from fiood_core.errors import DataError
from fiood_core.imagenet import wnids
from fiood_core.locate import Located, Wanted, locate, scan, walk
from fiood_core.shelved import ShelvedDataset, some

if TYPE_CHECKING:
    from typing_extensions import Self


PROBES = 20
"""Classes by which the folder of class folders is found."""


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


class ListedDataset(ShelvedDataset):
    """A dataset whose pictures a list names.

    A plugin gives ``name``, ``source``, ``info``, the list files, the archive, and :meth:`entries`, which parses the
    lists.

    Attributes
    ----------
    folder : str or None
        Folder of the archive in which the pictures lie, ``""`` for the whole of it: files in it that no entry names are
        extra.  None where other sets share it, so that nothing counts as extra.
    """

    folder: ClassVar[str | None] = ""
    class_wnids = wnids()  # ImageNet-1k's, whose classes the targets of every listed set count
    _manifest: tuple[Entry, ...] | None = None

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

    @cached_property
    def listed(self) -> tuple[Entry, ...]:
        """The entries, with their number checked.

        Raises
        ------
        DataError
            A list file is missing or altered, or does not give the expected count.
        """
        if self._manifest is not None:
            return self._manifest
        entries = tuple(self.entries(self.list_paths()))
        expected = self.info.expected_count
        if expected is not None and len(entries) != expected:
            raise DataError(f"{self.name}: the lists give {len(entries)} pictures, the set has {expected}")
        return entries

    def remarks(self) -> Sequence[str]:
        """What the list files say that ``info`` cannot know, one sentence each; shown by ``fiood data info``.

        Raises
        ------
        DataError
            A list file is missing or altered.
        """
        return ()

    def concepts(self) -> Counter[Concept]:
        """How many pictures the lists have of each concept; the pictures themselves are not needed.

        Raises
        ------
        DataError
            A list file is missing or altered.
        """
        return Counter(entry.concept for entry in self.listed if entry.concept is not None)

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
            return self.root / self._located.places[image_id]
        except KeyError:
            raise DataError(
                f"{self.name} has no picture {image_id!r} at {self.root}; run fiood data verify {self.name}"
            ) from None

    def missing(self) -> Sequence[str]:
        try:
            entries = self.listed
        except DataError as error:
            absent = str(error).splitlines()
            if not self.root.exists() and self.list_files and not any(str(self.root) in line for line in absent):
                absent.append(self._no_pictures)
            return absent
        if not self.root.exists():
            return [self._no_pictures]
        located = self._located
        gone = [e.id for e in entries if e.id not in located.places and e.id not in located.ambiguous]
        absent = []
        if gone:
            absent.append(
                f"{self.name}: {len(gone)} of {len(entries)} pictures are not under {self.root}: {some(gone)}; "
                f"{self.how_to_get}"
            )
        if located.ambiguous:
            first, places = next(iter(located.ambiguous.items()))
            absent.append(
                f"{self.name}: several files under {self.root} could be {len(located.ambiguous)} of its pictures, for "
                f"one {first}: {some(places)}; give the folder of one copy as root="
            )
        return absent

    def verify(self, progress: Progress | None = None) -> Sequence[str]:
        try:
            entries = self.listed
        except DataError:
            return [f"missing: {sentence}" for sentence in self.missing()]
        if not self.root.exists():
            return [f"missing: {sentence}" for sentence in self.missing()]
        located = self._located
        known = self._accepted
        report = []
        for done, entry in enumerate(entries, 1):
            place = located.places.get(entry.id)
            if place is None:
                several = located.ambiguous.get(entry.id)
                report.append(f"ambiguous: {entry.id} could be {some(several)}" if several else f"missing: {entry.id}")
                continue
            report += _findings(entry, self.root / place, place, known, entry.id in located.misplaced)
            if progress is not None and done % 100 == 0:
                progress("pictures checked", done, len(entries))
        return report + [f"extra: {path}" for path in self._extra()]

    def with_manifest(self, manifest: Mapping[str, object]) -> Self:
        """A stand-in for tests: the pictures that ``manifest["entries"]`` lists; its view is not canonical.

        Its files lie apart from the canonical set's, and its features are stored under another source.

        Parameters
        ----------
        manifest : mapping
            ``entries`` is a list of mappings with ``id`` and, as far as known, ``targets``, ``wnid`` and ``name``,
            ``subsets`` and ``sha256``.  ``archive``, a mapping with the fields of :class:`~fiood_core.download.Remote`
            (``name``, ``urls``, ``kind``, ``digest``, …), replaces the archive.

        Raises
        ------
        DataError
            The manifest has no entries, or one that is no relative path.
        """
        entries = manifest.get("entries")
        if not isinstance(entries, Sequence) or not entries:
            raise DataError(f"{self.name}: a manifest needs a non-empty list of entries")
        listed = tuple(_entry(each) for each in entries)
        other = self.stand_in(manifest)
        other._manifest = listed
        return other

    # -- pictures ------------------------------------------------------------------------------------------------

    @property
    def _no_pictures(self) -> str:
        return f"{self.name}: no pictures at {self.root}; {self.how_to_get}"

    @cached_property
    def _located(self) -> Located:
        known = self._accepted
        wanted = []
        for entry in self.listed:
            digest, size = known.get(entry.id, (entry.digest, None))
            wanted.append(Wanted(entry.id, self._names(entry.id), entry.digest or digest, size))
        return locate(self.root, wanted)

    def _names(self, image_id: str) -> tuple[str, ...]:
        """Where copies keep a picture, also below a root that is its top folder itself."""
        names = (image_id, *self.aliases(image_id))
        top = f"{self._root_name}/"
        return (*names, *(name.removeprefix(top) for name in names if name.startswith(top)))

    def _extra(self) -> list[str]:
        if self.folder is None:
            return []
        several = self._located.ambiguous.values()
        used = {*self._located.places.values(), *(place for places in several for place in places)}
        inside = f"/{self.folder}/" if self.folder else "/"
        return [p for p in walk(self.root) if inside in f"/{self._root_name}/{p}" and p not in used]

    @cached_property
    def _root_name(self) -> str:
        return self.root.resolve().name

    # -- what the files were when they were accepted -------------------------------------------------------------

    @property
    def _record(self) -> Path:
        """Where the digests of accepted pictures are kept, for each root by itself."""
        of_root = hashlib.sha256(str(self.root.resolve()).encode()).hexdigest()[:12]
        return self._home / "accepted" / f"{self.name}-{of_root}.json"

    def accept(self, progress: Progress | None = None) -> None:
        """Keep the digest and size of each picture, by which :meth:`verify` knows an altered or moved one."""
        known = self._accepted
        if known.keys() >= {entry.id for entry in self.listed}:
            return
        digests = {}
        for done, entry in enumerate(self.listed, 1):
            path = self.open(entry.id)
            digests[entry.id] = known.get(entry.id) or (file_digest(path), path.stat().st_size)
            if progress is not None and done % 100 == 0:
                progress("digests taken", done, len(self.listed))
        self._record.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._record.with_suffix(".tmp")
        scratch.write_text(json.dumps(digests, indent=0), encoding="utf-8")
        os.replace(scratch, self._record)
        self.__dict__.pop("_accepted", None)

    @cached_property
    def _accepted(self) -> Mapping[str, tuple[str, int]]:
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            return {image_id: (str(digest), int(size)) for image_id, (digest, size) in record.items()}
        except (OSError, ValueError, TypeError, AttributeError):  # none, or one that was tampered with
            return {}


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

    def concepts(self) -> Counter[Concept]:
        if self._manifest is not None:
            return super().concepts()
        return Counter({Concept("", wnid): self.each for wnid in self.wnids(self.list_paths())})

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        wnids = self.wnids(lists)
        if len(set(wnids)) != self.classes or len(wnids) != self.classes:
            raise DataError(f"{self.name}: the lists give {len(set(wnids))} classes, the set has {self.classes}")
        if not self.root.is_dir():
            raise DataError(self._no_pictures)
        top = class_folder(self.root, wnids)
        found = {wnid: first_files(top / wnid, self.each) for wnid in wnids}
        short = [f"{wnid} ({len(files)})" for wnid, files in found.items() if len(files) < self.each]
        if short:
            raise DataError(
                f"{self.name}: {len(short)} classes have fewer than {self.each} pictures under {self.root}: "
                f"{some(short)}; this copy is another release, or incomplete"
            )
        return [Entry(f"{wnid}/{file}", concept=Concept("", wnid)) for wnid in wnids for file in found[wnid]]


def class_folder(root: Path, wnids: Sequence[str]) -> Path:
    """The folder that holds the classes' folders: the root, else the one of its folders that has most of them."""
    probes = wnids[:PROBES]
    if any((root / wnid).is_dir() for wnid in probes):
        return root
    candidates = [root, *(root / entry.name for entry in scan(root) if entry.is_dir())]
    return max(candidates, key=lambda folder: sum((folder / wnid).is_dir() for wnid in probes))


def first_files(folder: Path, count: int) -> list[str]:
    """The first ``*.JPEG`` files of a folder by name."""
    return [entry.name for entry in scan(folder) if entry.name.endswith(".JPEG")][:count]


def _findings(entry: Entry, path: Path, place: str, known: Mapping[str, tuple[str, int]], misplaced: bool) -> list[str]:
    accepted, size = known.get(entry.id, (None, None))
    digest = entry.digest or accepted
    actual = path.stat().st_size
    if actual == 0:
        return [f"empty: {entry.id} at {place}"]
    if digest is not None and (size not in (None, actual) or file_digest(path, digest.partition(":")[0]) != digest):
        return [f"altered: {entry.id} at {place}"]
    return [f"misplaced: {entry.id} lies at {place}"] if misplaced else []


def _entry(fields_of: Any) -> Entry:
    if not isinstance(fields_of, Mapping) or not isinstance(fields_of.get("id"), str):
        raise DataError(f"manifest entry {fields_of!r} is no mapping with an 'id'")
    unknown = set(fields_of) - {"id", "targets", "wnid", "name", "subsets", "sha256"}
    if unknown:
        raise DataError(f"manifest entry {fields_of['id']!r} has the unknown field {min(unknown)!r}")
    path = PurePosixPath(fields_of["id"])
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"manifest entry {str(path)!r} is not a relative path inside the dataset")
    named = "name" in fields_of or "wnid" in fields_of
    concept = Concept(fields_of.get("name", ""), fields_of.get("wnid")) if named else None
    targets = tuple(fields_of["targets"]) if "targets" in fields_of else None
    digest = f"sha256:{fields_of['sha256']}" if "sha256" in fields_of else None
    return Entry(fields_of["id"], targets, concept, tuple(fields_of.get("subsets", ())), digest)
