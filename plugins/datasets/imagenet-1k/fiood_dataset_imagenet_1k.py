"""ImageNet-1k: validation set, training set, and what is left of the validation set beside Fi-ImageNet-1k."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fiood_core.dataset import Info, View
from fiood_core.download import Progress, Remote
from fiood_core.errors import DataError
from fiood_core.imagenet import VAL_IMAGES, class_index, require_val_names, sorted_labels, val_ids, wnids
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import image_list
from fiood_core.locate import scan
from fiood_core.shelved import ShelvedDataset, some
from fiood_core.sources import (
    FI_AMBIGUOUS,
    FI_AMBIGUOUS_IMAGES,
    FI_OOD,
    FI_OOD_IMAGES,
    IMAGENET_VAL,
    openood,
)

if TYPE_CHECKING:
    from typing_extensions import Self

CITATION = "Russakovsky et al.: ImageNet Large Scale Visual Recognition Challenge, 2015, arXiv 1409.0575"
LICENCE = "image-net.org terms of access"
HOME = "https://image-net.org"
CLASSES, TRAIN_IMAGES = 1000, 1_281_167
LABELS = (
    openood("test_imagenet.txt", "7e0e05f8aa8e312992bfe342d57b8513dd4e62b68fedb5a1c63b6bca662d047c"),
    openood("val_imagenet.txt", "b352c357d25ca94aae787ff7a65aaee0a4c219ab4021481ce3ccc97b88904fea"),
)


class ImageNetVal(ListedDataset):
    """The 50,000 validation pictures; class ``i`` is the ``i``-th wnid in sorted order.

    Parameters
    ----------
    root, lists : path, optional
        As for every listed dataset; flat or in wnid folders.
    labels : path, optional
        A list ``<file> <label>`` to take labels from, instead of OpenOOD's.  The development kit's order is
        recognised and converted; any other order is refused.
    """

    name = "imagenet-1k"
    source = "imagenet-1k/val"
    shelf = "imagenet-1k"
    info = Info(
        title="ImageNet-1k",
        summary="the 50,000 validation pictures of ILSVRC2012",
        citation=CITATION,
        licence=LICENCE,
        home=HOME,
        expected_count=VAL_IMAGES,
        notes="Subsets are OpenOOD's split of 45,000 (test) and 5,000 (val). ViM's list of labels has the development "
        "kit's order.",
    )
    list_files: Sequence[Remote] = LABELS
    archive = IMAGENET_VAL

    def __init__(
        self, root: str | Path | None = None, lists: str | Path | None = None, labels: str | Path | None = None
    ) -> None:
        super().__init__(root, lists)
        self._labels = None if labels is None else Path(labels).expanduser()
        if self._labels is not None:
            self.list_files = ()

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        if self._labels is not None:
            labels = sorted_labels(image_list(self._labels), self._labels.name)
            entries = [Entry(name, (label,)) for name, label in labels.items()]
        else:
            entries = [
                Entry(path.rpartition("/")[2], (int(label),), subsets=(f"openood-{part}",))
                for part in ("test", "val")
                for path, label in image_list(lists[f"openood_v1.5/{part}_imagenet.txt"])
            ]
        require_val_names([entry.id for entry in entries], "the label list")
        _require_even(entries)
        return sorted(entries, key=lambda entry: entry.id)


class ImageNetID(ImageNetVal):
    """The validation set without Fi-ImageNet-1k's 655 OOD and 980 ambiguous pictures: 48,365.

    Parameters
    ----------
    ood_list, ambiguous_list : path, optional
        Fi-ImageNet-1k's two lists; any text in which each line names its picture as ``ILSVRC2012_val_<8 digits>``.
    """

    name = "imagenet-1k-id"
    info = Info(
        title="ImageNet-1k ID set of Fi-ImageNet-1k",
        summary="48,365 validation pictures: without the 655 OOD and 980 ambiguous ones",
        citation="Fi-ImageNet-1k, 2026, arXiv 2609.01027",
        licence=LICENCE,
        home=HOME,
        expected_count=VAL_IMAGES - FI_OOD_IMAGES - FI_AMBIGUOUS_IMAGES,
    )

    folder = None

    def __init__(
        self,
        root: str | Path | None = None,
        lists: str | Path | None = None,
        labels: str | Path | None = None,
        ood_list: str | Path | None = None,
        ambiguous_list: str | Path | None = None,
    ) -> None:
        super().__init__(root, lists, labels)
        self.list_files = (*self.list_files, FI_OOD, FI_AMBIGUOUS)
        text = self.lists / Path(FI_OOD.name).with_suffix(".txt")
        for remote, path in ((FI_OOD, ood_list or (text if text.is_file() else None)), (FI_AMBIGUOUS, ambiguous_list)):
            if path is not None:
                self.given_lists[remote.name] = Path(path).expanduser()

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        left_out: set[str] = set()
        for remote, count in ((FI_OOD, FI_OOD_IMAGES), (FI_AMBIGUOUS, FI_AMBIGUOUS_IMAGES)):
            path = lists[remote.name]
            ids = val_ids(path)
            if len(ids) != count:
                raise DataError(f"{path} names {len(ids)} validation pictures, Fi-ImageNet-1k's list has {count}")
            if left_out & ids:
                raise DataError(f"both of Fi-ImageNet-1k's lists name {min(left_out & ids)}; they must be disjoint")
            left_out |= ids
        return [entry for entry in super().entries(lists) if entry.id not in left_out]


class ImageNetTrain(ShelvedDataset):
    """The 1,281,167 training pictures, in one folder a wnid.

    No list of them is needed: a class's pictures are the files of its folder that bear its wnid, and their number is
    held to the set's.

    Parameters
    ----------
    root : path, optional
        The folder of wnid folders; by default ``train`` on ImageNet-1k's shelf.
    """

    name = "imagenet-1k-train"
    shelf = "imagenet-1k"
    place = "train"
    info = Info(
        title="ImageNet-1k training set",
        summary="the 1,281,167 training pictures of ILSVRC2012",
        citation=CITATION,
        licence=LICENCE,
        home=HOME,
        expected_count=TRAIN_IMAGES,
        notes="OpenOOD's archive has no training pictures.",
    )
    archive = Remote(
        "ILSVRC2012_img_train.tar",
        kind="tar",
        digest="md5:1d675b47d978889d74fa0da5fadfb00e",
        nested=True,
        instructions="Get ILSVRC2012_img_train.tar from https://image-net.org (an account is needed).",
    )
    source = "imagenet-1k/train"
    class_wnids = wnids()
    _counts: Mapping[str, int] | None = None

    def __init__(self, root: str | Path | None = None) -> None:
        super().__init__(root)

    def view(self) -> View:
        problems = self.missing()
        if problems:
            raise DataError("\n".join(problems))
        ids: list[str] = []
        targets: list[tuple[int, ...]] = []
        for wnid, files in self._files.items():
            ids += [f"{wnid}/{file}" for file in files]
            targets += [(class_index(wnid) or 0,)] * len(files)
        return View(source=self.source, ids=ids, targets=targets, canonical=self.canonical)

    def open(self, image_id: str) -> Path:
        return self.root / image_id

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        root = str(self.root)
        stats = (
            os.stat(f"{root}/{image_id}") for image_id in ids
        )  # a Path for each of a million takes four times as long
        return [f"{stat.st_size}:{stat.st_mtime_ns}" for stat in stats]

    def missing(self) -> Sequence[str]:
        if not self.root.is_dir():
            return [f"{self.name}: no pictures at {self.root}; {self.how_to_get}"]
        counts = {wnid: len(files) for wnid, files in self._files.items()}
        if self._counts is not None:
            wrong = [f"{wnid} has {counts[wnid]} of {n}" for wnid, n in self._counts.items() if counts[wnid] != n]
            return [f"{self.name}: {some(wrong)} pictures under {self.root}; {self.how_to_get}"] if wrong else []
        absent = [wnid for wnid, count in counts.items() if not count]
        total = sum(counts.values())
        if absent:
            return [f"{self.name}: {len(absent)} classes have no pictures under {self.root}: {some(absent)}"]
        if total != TRAIN_IMAGES:
            return [f"{self.name}: {total:,} pictures under {self.root}, the set has {TRAIN_IMAGES:,}"]
        return []

    def verify(self, progress: Progress | None = None) -> Sequence[str]:
        problems = [f"missing: {problem}" for problem in self.missing()]
        for done, entry in enumerate(scan(self.root), 1):
            known = self._files.get(entry.name)
            if known is None:
                problems.append(f"extra: {entry.name}")
                continue
            listed = set(known)
            for file in scan(self.root / entry.name):
                if file.name not in listed:
                    problems.append(f"extra: {entry.name}/{file.name}")
                elif file.stat().st_size == 0:
                    problems.append(f"empty: {entry.name}/{file.name}")
            if progress is not None:
                progress("classes checked", done, len(self._files))
        return problems

    def with_manifest(self, manifest: Mapping[str, object]) -> Self:
        """A stand-in that has ``manifest["classes"]``, a mapping from wnid to number of pictures.

        ``manifest["archive"]``, a mapping with the fields of a :class:`~fiood_core.download.Remote`, replaces the
        archive.
        """
        classes = manifest.get("classes")
        if not isinstance(classes, Mapping) or not classes or any(class_index(str(w)) is None for w in classes):
            raise DataError(f"{self.name}: a manifest needs classes, a mapping from wnid to number of pictures")
        counts = {str(wnid): int(classes[wnid]) for wnid in sorted(classes)}
        other = self.stand_in(manifest)
        other._counts = counts
        return other

    @cached_property
    def _files(self) -> Mapping[str, Sequence[str]]:
        """File names of each class, sorted."""
        return {
            wnid: [entry.name for entry in scan(self.root / wnid) if _is_of(entry.name, wnid)]
            for wnid in (self._counts or wnids())
        }


def _is_of(name: str, wnid: str) -> bool:
    return name.startswith(f"{wnid}_") and name.endswith(".JPEG")


def _require_even(entries: Sequence[Entry]) -> None:
    counts = Counter(entry.targets for entry in entries)
    if len(counts) != CLASSES or set(counts.values()) != {VAL_IMAGES // CLASSES}:
        raise DataError(f"the label list must give each of {CLASSES} classes {VAL_IMAGES // CLASSES} pictures")
