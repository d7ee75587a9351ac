"""Fi-ImageNet-1k: 655 validation pictures of ImageNet-1k that show none of its classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core import imagenet, wordnet
from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns
from fiood_core.sources import FI_AMBIGUOUS, FI_AMBIGUOUS_IMAGES, FI_OOD, FI_OOD_IMAGES, IMAGENET_VAL

LABELS, FINE, ANIMALS = 522, 358, 380
COLUMNS = ("val_id", "ood_label", "fine_grained", "reimagenet_flag", "original_wnid")
FLAGS = {"no_class": 205, "uncertain": 450}
"""OOD pictures by what ReImageNet had said of them."""

FINE_FLAGS = {"no_class": 117, "uncertain": 241}
"""The same of the fine-grained pictures."""

ANIMAL_CLASSES = 398
"""ImageNet-1k's first 398 classes are its animals."""


class FiImageNet1k(ListedDataset):
    """The pictures, with their labels, from the list file; nothing is assumed until the authors release it.

    The list is a CSV with the columns ``val_id``, ``ood_label``, ``fine_grained`` (0 or 1), ``reimagenet_flag``
    (``no_class`` or ``uncertain``) and ``original_wnid``; the ambiguous list names 980 further pictures, one a line.
    All counts of the paper are enforced.

    Parameters
    ----------
    root, lists : path, optional
        As for ``imagenet-1k``.
    ood_list, ambiguous_list : path, optional
        By default ``fi_imagenet_1k_ood.csv`` and ``fi_imagenet_1k_ambiguous.txt`` in ``lists``.
    """

    name = "fi-imagenet-1k"
    source = "imagenet-1k/val"
    shelf = "imagenet-1k"
    info = Info(
        title="Fi-ImageNet-1k",
        summary="655 ImageNet-1k validation pictures that show none of its classes, under 522 labels",
        citation="Fi-ImageNet-1k, 2026, arXiv 2609.01027",
        licence="not stated; pictures: image-net.org terms of access",
        home="https://arxiv.org/abs/2609.01027",
        expected_count=FI_OOD_IMAGES,
        notes="To be released upon acceptance. Subsets: fine-grained (358) and ordinary (297).",
    )
    list_files = (FI_OOD, FI_AMBIGUOUS)
    archive = IMAGENET_VAL
    folder = None

    def __init__(
        self,
        root: str | Path | None = None,
        lists: str | Path | None = None,
        ood_list: str | Path | None = None,
        ambiguous_list: str | Path | None = None,
    ) -> None:
        super().__init__(root, lists)
        for remote, path in ((FI_OOD, ood_list), (FI_AMBIGUOUS, ambiguous_list)):
            if path is not None:
                self.given_lists[remote.name] = Path(path).expanduser()

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = csv_columns(lists[FI_OOD.name], *COLUMNS)
        _check(rows)
        ids = [imagenet.val_name(row[0]) for row in rows]
        _check_ambiguous(lists[FI_AMBIGUOUS.name], set(ids))
        return [
            Entry(name, concept=Concept(label), subsets=("fine-grained" if fine == "1" else "ordinary",))
            for name, (_, label, fine, _, _) in zip(ids, rows, strict=True)
        ]


def _check(rows: Sequence[tuple[str, ...]]) -> None:
    """The paper's arithmetic."""
    if len(rows) != FI_OOD_IMAGES:
        raise DataError(f"fi-imagenet-1k: the list has {len(rows)} rows, the set has {FI_OOD_IMAGES} pictures")
    if any(not label.strip() for _, label, *_ in rows):
        raise DataError("fi-imagenet-1k: a row has no ood_label")
    odd = [row[0] for row in rows if row[2] not in {"0", "1"} or row[3] not in FLAGS]
    if odd:
        raise DataError(
            f"fi-imagenet-1k: {odd[0]}: fine_grained must be 0 or 1, reimagenet_flag one of {sorted(FLAGS)}"
        )
    fine = [row for row in rows if row[2] == "1"]
    animals = [row for row in rows if (imagenet.class_index(row[4]) or 0) < ANIMAL_CLASSES]
    foreign = [row[4] for row in rows if imagenet.class_index(row[4]) is None]
    if foreign:
        raise DataError(f"fi-imagenet-1k: original_wnid {foreign[0]!r} is no ImageNet-1k class")
    for what, found, expected in (
        ("distinct pictures", len({imagenet.val_name(row[0]) for row in rows}), FI_OOD_IMAGES),
        ("distinct labels", len({row[1].casefold() for row in rows}), LABELS),
        ("fine-grained pictures", len(fine), FINE),
        ("flags", dict(Counter(row[3] for row in rows)), FLAGS),
        ("flags of fine-grained pictures", dict(Counter(row[3] for row in fine)), FINE_FLAGS),
        ("pictures of animal classes", len(animals), ANIMALS),
    ):
        if found != expected:
            raise DataError(f"fi-imagenet-1k: {what}: the list has {found}, the paper {expected}")
    lemmas = wordnet.load()
    names = {name.casefold() for wnid in imagenet.wnids() for name in lemmas.synonyms(wnid)}
    inside = [label for _, label, *_ in rows if label.casefold() in names]
    if inside:
        raise DataError(f"fi-imagenet-1k: the label {inside[0]!r} names an ImageNet-1k class")


def _check_ambiguous(path: Path, ood: set[str]) -> None:
    ambiguous = imagenet.val_ids(path)
    if len(ambiguous) != FI_AMBIGUOUS_IMAGES:
        raise DataError(f"{path} names {len(ambiguous)} pictures, the paper has {FI_AMBIGUOUS_IMAGES} ambiguous ones")
    if ambiguous & ood:
        raise DataError(f"{path} names {min(ambiguous & ood)}, which is on the OOD list too")
