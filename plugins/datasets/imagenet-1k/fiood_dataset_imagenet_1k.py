"""ImageNet-1k: validation set, training set, and what is left of the validation set beside Fi-ImageNet-1k."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core import settings
from fiood_core.archive import Remote
from fiood_core.dataset import Dataset, Info, View
from fiood_core.errors import DataError
from fiood_core.imagenet import sorted_labels, val_ids, wnids
from fiood_core.listed import Entry, ListedDataset, github, image_list

CITATION = "Russakovsky et al.: ImageNet Large Scale Visual Recognition Challenge, 2015, arXiv 1409.0575"
LICENCE = "image-net.org terms of access"
HOME = "https://image-net.org"
CLASSES, VAL_IMAGES, TRAIN_IMAGES = 1000, 50_000, 1_281_167
OPENOOD = "benchmark_imglist/imagenet"
LABELS = (
    github(
        "facebookresearch/UnifiedUncertaintyCalibration",
        f"{OPENOOD}/test_imagenet.txt",
        "7e0e05f8aa8e312992bfe342d57b8513dd4e62b68fedb5a1c63b6bca662d047c",
        name="openood_v1.5/test_imagenet.txt",
    ),
    github(
        "facebookresearch/UnifiedUncertaintyCalibration",
        f"{OPENOOD}/val_imagenet.txt",
        "b352c357d25ca94aae787ff7a65aaee0a4c219ab4021481ce3ccc97b88904fea",
        name="openood_v1.5/val_imagenet.txt",
    ),
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
        digests={"ILSVRC2012_img_val.tar": "md5:29b22e2961454d5413ddabcf34fc5622"},
        notes="Subsets are OpenOOD's split of 45,000 (test) and 5,000 (val). ViM's list has the development kit's order.",
    )
    list_files = LABELS
    archives = (
        Remote(
            "ILSVRC2012_img_val.tar",
            kind="tar",
            digest="md5:29b22e2961454d5413ddabcf34fc5622",
            instructions="Get ILSVRC2012_img_val.tar from https://image-net.org (an account is needed) and extract it.",
        ),
    )

    def __init__(
        self, root: str | Path | None = None, lists: str | Path | None = None, labels: str | Path | None = None
    ) -> None:
        super().__init__(root, lists)
        self._labels = None if labels is None else Path(labels).expanduser()
        if self._labels is not None:
            self.list_files = ()  # type: ignore[misc]

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
        _check_val(entries)
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
        expected_count=VAL_IMAGES - 655 - 980,
    )

    def __init__(
        self,
        root: str | Path | None = None,
        lists: str | Path | None = None,
        labels: str | Path | None = None,
        ood_list: str | Path | None = None,
        ambiguous_list: str | Path | None = None,
    ) -> None:
        super().__init__(root, lists, labels)
        given = ((ood_list, "fi_imagenet_1k_ood.txt", 655), (ambiguous_list, "fi_imagenet_1k_ambiguous.txt", 980))
        self._left_out = [(Path(path).expanduser() if path else self.lists / name, n) for path, name, n in given]

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        left_out: set[str] = set()
        for path, count in self._left_out:
            if not path.is_file():
                raise DataError(
                    f"imagenet-1k-id: there is no {path}. Fi-ImageNet-1k's lists are not released yet (arXiv 2609.01027); "
                    "once they are, put both there, or give ood_list= and ambiguous_list="
                )
            ids = val_ids(path)
            if len(ids) != count:
                raise DataError(f"{path} names {len(ids)} validation pictures, Fi-ImageNet-1k's list has {count}")
            if left_out & ids:
                raise DataError(
                    f"{path} names {min(left_out & ids)}, which the other list names too; they are disjoint"
                )
            left_out |= ids
        return [entry for entry in super().entries(lists) if entry.id not in left_out]


class ImageNetTrain(Dataset):
    """The 1,281,167 training pictures, in one folder a wnid.

    Parameters
    ----------
    root : path, optional
        The folder of wnid folders; by default ``datasets/imagenet-1k/train`` in the data home.
    """

    info = Info(
        title="ImageNet-1k training set",
        summary="the 1,281,167 training pictures of ILSVRC2012",
        citation=CITATION,
        licence=LICENCE,
        home=HOME,
        expected_count=TRAIN_IMAGES,
        digests={"ILSVRC2012_img_train.tar": "md5:1d675b47d978889d74fa0da5fadfb00e"},
        notes="OpenOOD's archive has no training pictures.",
    )

    def __init__(self, root: str | Path | None = None) -> None:
        default = settings.home() / "datasets" / "imagenet-1k" / "train"
        self.root = Path(root).expanduser() if root is not None else default
        self._classes: Mapping[str, int] | None = None

    def view(self) -> View:
        problems = self.missing()
        if problems:
            raise DataError("\n".join(problems))
        ids: list[str] = []
        targets: list[tuple[int, ...]] = []
        for index, wnid in enumerate(wnids()):
            files = self._files(wnid)
            ids += [f"{wnid}/{file}" for file in files]
            targets += [(index,)] * len(files)
        return View(source="imagenet-1k/train", ids=ids, targets=targets, canonical=self._classes is None)

    def open(self, image_id: str) -> Path:
        return self.root / image_id

    def missing(self) -> Sequence[str]:
        if not self.root.is_dir():
            return [
                f"imagenet-1k-train: no pictures at {self.root}; get ILSVRC2012_img_train.tar from https://image-net.org (an "
                "account is needed), extract it to one folder a wnid, and give root="
            ]
        expected = self._classes or dict.fromkeys(wnids(), 0)
        absent = [wnid for wnid in expected if not (self.root / wnid).is_dir()]
        if absent:
            return [f"imagenet-1k-train: {len(absent)} class folders are not under {self.root}, {absent[0]} for one"]
        counts = {wnid: len(self._files(wnid)) for wnid in expected}
        if self._classes is not None:
            wrong = [f"{wnid} has {counts[wnid]} of {n}" for wnid, n in self._classes.items() if counts[wnid] != n]
            return [f"imagenet-1k-train: {', '.join(wrong)} pictures under {self.root}"] if wrong else []
        total = sum(counts.values())
        if total != TRAIN_IMAGES:
            return [f"imagenet-1k-train: {total:,} pictures under {self.root}, the set has {TRAIN_IMAGES:,}"]
        return []

    def verify(self) -> Sequence[str]:
        problems = list(self.missing())
        if not self.root.is_dir():
            return problems
        known = set(wnids())
        for folder in sorted(self.root.iterdir()):
            if folder.name not in known:
                problems.append(f"extra: {folder.name}")
                continue
            pattern = re.compile(rf"{folder.name}_\d+\.JPEG")
            for file in sorted(folder.iterdir()):
                if not pattern.fullmatch(file.name):
                    problems.append(f"extra: {folder.name}/{file.name}")
                elif file.stat().st_size == 0:
                    problems.append(f"empty: {folder.name}/{file.name}")
        return problems

    def with_manifest(self, manifest: Mapping[str, object]) -> ImageNetTrain:
        """A stand-in that has ``manifest["classes"]``, a mapping from wnid to number of pictures."""
        classes = manifest.get("classes")
        if not isinstance(classes, Mapping) or not classes:
            raise DataError("imagenet-1k-train: a manifest needs classes, a mapping from wnid to number of pictures")
        other = ImageNetTrain(self.root)
        other._classes = {str(wnid): int(n) for wnid, n in classes.items()}
        return other

    def _files(self, wnid: str) -> list[str]:
        folder = self.root / wnid
        return sorted(p.name for p in folder.glob(f"{wnid}_*.JPEG")) if folder.is_dir() else []


def _check_val(entries: Sequence[Entry]) -> None:
    names = {entry.id for entry in entries}
    expected = {f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, VAL_IMAGES + 1)}
    if names != expected:
        odd = sorted(names ^ expected)
        raise DataError(f"the label list does not name the {VAL_IMAGES:,} validation pictures once each: {odd[:3]}")
    counts = Counter(entry.targets for entry in entries)
    if len(counts) != CLASSES or set(counts.values()) != {VAL_IMAGES // CLASSES}:
        raise DataError(f"the label list must give each of {CLASSES} classes {VAL_IMAGES // CLASSES} pictures")
