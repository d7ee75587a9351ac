"""The dataset interface: a verified view of a source of pictures."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fiood_core._lookup import make_callable
from fiood_core.errors import DataError

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import Self

API_VERSION = 1


@dataclass(frozen=True)
class Info:
    """What is known of a dataset without its pictures.

    Attributes
    ----------
    title, summary : str
    citation : str
        Paper, with its arXiv number or address.
    licence, home : str
        Licence as far as known, and where the data comes from.
    expected_count : int, optional
        Pictures of the canonical set.
    digests : mapping from file name to SHA-256 (or ``md5:…``)
    notes : str
        Known contamination, traps, what was decided.
    """

    title: str
    summary: str = ""
    citation: str = ""
    licence: str = "not stated"
    home: str = ""
    expected_count: int | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    notes: str = ""


@dataclass(frozen=True)
class Concept:
    """What an OOD picture shows: a name, and its WordNet id where there is one.

    The name is empty where the id alone is known; WordNet has the words then.
    """

    name: str
    wnid: str | None = None


@dataclass(frozen=True)
class View:
    """The pictures of a dataset, in a fixed order.

    Attributes
    ----------
    source : str
        What the feature store is keyed by: equal for views whose ids mean the same pictures.
    ids : sequence of str
        Stable ids, unique within the source; for files, relative paths with forward slashes.
    targets : sequence of tuples of int, or None
        The ID classes of each picture (one, several, or none) where the view is labelled in the ID label space.
    concepts : sequence of Concept or None, or None
        What each picture shows, where the view is out of distribution and labelled.
    subsets : mapping from subset name to sequence of row numbers
    canonical : bool
        False for a test stand-in made by ``with_manifest``; its results cannot be published.
    """

    source: str
    ids: Sequence[str]
    targets: Sequence[tuple[int, ...]] | None = None
    concepts: Sequence[Concept | None] | None = None
    subsets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    canonical: bool = True

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise DataError(f"view of {self.source!r} names {twice!r} twice; ids must be unique")
        for what, values in (("targets", self.targets), ("concepts", self.concepts)):
            if values is not None and len(values) != len(self.ids):
                raise DataError(f"view of {self.source!r} has {len(self.ids)} ids but {len(values)} {what}")
        for name, target in zip(self.ids, self.targets or (), strict=False):
            if target and min(target) < 0:
                raise DataError(f"view of {self.source!r}: {name!r} has the class {min(target)}; no class is ()")
        for subset, rows in self.subsets.items():
            if len(rows) and not 0 <= min(rows) <= max(rows) < len(self.ids):
                raise DataError(f"view of {self.source!r}: subset {subset!r} has rows outside 0 to {len(self.ids) - 1}")

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: Sequence[int]) -> View:
        """The view of some of its pictures, in the order of ``rows``; subsets keep what is left of them."""
        place = {int(old): new for new, old in enumerate(rows)}
        return replace(
            self,
            ids=[self.ids[row] for row in rows],
            targets=None if self.targets is None else [self.targets[row] for row in rows],
            concepts=None if self.concepts is None else [self.concepts[row] for row in rows],
            subsets={name: [place[row] for row in of if row in place] for name, of in self.subsets.items()},
        )

    @property
    def digest(self) -> str:
        """SHA-256 over ids, targets, concepts and subsets, in order: what a result is keyed by."""
        sha = hashlib.sha256(b"fiood view 1\n")
        for row, name in enumerate(self.ids):
            target = () if self.targets is None else tuple(map(int, self.targets[row]))
            concept = None if self.concepts is None else self.concepts[row]
            label = None if concept is None else (concept.name, concept.wnid)
            sha.update(f"{(name, target, label)!a}\n".encode())
        for name in sorted(self.subsets):
            sha.update(f"{(name, list(map(int, self.subsets[name])))!a}\n".encode())
        return sha.hexdigest()


class Dataset(ABC):
    """A set of pictures with stable ids.

    Attributes
    ----------
    info : Info
    class_names, class_wnids : sequence of str or None
        Name, or WordNet id, of each class that the views' targets count; what a zero-shot classifier is made from.

    ``view`` may need files; ``info`` never does.  ``root`` is where the pictures lie, by default a folder of the
    dataset's name under the data home.
    """

    api_version: ClassVar[int] = API_VERSION
    info: Info
    class_names: Sequence[str] | None = None
    class_wnids: Sequence[str] | None = None

    @abstractmethod
    def view(self) -> View:
        """The pictures, in order.

        Raises
        ------
        DataError
            Something is missing or altered; the message says all that is, and what to do.
        """

    @abstractmethod
    def open(self, image_id: str) -> Path | Image.Image:
        """Where a picture lies, or the picture itself where the dataset is not made of files."""

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        """For each id a string that changes when the picture may have: size and time of change of its file."""
        stamps = []
        for image_id in ids:
            place = self.open(image_id)
            if not isinstance(place, Path):
                raise DataError(f"{type(self).__name__} opens pictures that are no files; it must give stamps() too")
            try:
                stat = place.stat()
            except OSError:  # decoding will say what is wrong, by the image policy
                stamps.append("absent")
                continue
            stamps.append(f"{stat.st_size}:{stat.st_mtime_ns}")
        return stamps

    def missing(self) -> Sequence[str]:
        """Everything that keeps the dataset from being read, one sentence each with the next step; empty if none."""
        return ()

    def prepare(self, *, offline: bool = False) -> None:
        """Get the dataset ready: download, verify, extract.  By default there is nothing to do."""

    def verify(self) -> Sequence[str]:
        """Every missing, empty, extra, altered or misplaced file; empty if all is well."""
        return self.missing()

    def with_manifest(self, manifest: Mapping[str, object]) -> Self:
        """A stand-in with another list and other digests, for tests; its view is not canonical."""
        raise DataError(f"{type(self).__name__} has no manifest that could be replaced")


class PartOf(Dataset):
    """A dataset whose pictures are some of another's; only its ``view`` differs.

    Parameters
    ----------
    dataset : Dataset
        The whole.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    @property
    def class_names(self) -> Sequence[str] | None:  # type: ignore[override]
        """The whole's."""
        return self.dataset.class_names

    @property
    def class_wnids(self) -> Sequence[str] | None:  # type: ignore[override]
        """The whole's."""
        return self.dataset.class_wnids

    def open(self, image_id: str) -> Path | Image.Image:
        return self.dataset.open(image_id)

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        return self.dataset.stamps(ids)

    def missing(self) -> Sequence[str]:
        absent = self.dataset.missing()
        if absent:
            return absent
        try:
            self.view()
        except DataError as error:
            return [str(error)]
        return ()


make_callable(__name__)
