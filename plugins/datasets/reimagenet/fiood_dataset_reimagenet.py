"""ReImageNet: ImageNet-1k's validation set with several labels a picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiood_core import imagenet
from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.sources import IMAGENET_VAL

GATED = "Get it from https://huggingface.co/datasets/vrg-prague/ReImageNet (access is granted on request)."
CLASSES = 1000


@dataclass(frozen=True)
class Flags:
    """What the annotation file says of pictures without a class, counted and not assumed.

    Attributes
    ----------
    empty, minus_one : int
        Pictures whose label list is empty, or holds only -1.
    others : mapping from flag name to number of pictures
    """

    empty: int
    minus_one: int
    others: Mapping[str, int]


class ReImageNet(ListedDataset):
    """Targets are all labels of a picture and every class merged with one of them, so top-1 is multi-label top-1.

    Pictures without a valid label have no targets and count for no accuracy.

    Parameters
    ----------
    root, lists : path, optional
        As for ``imagenet-1k``; ``lists`` holds ``reannotation.jsonl`` and ``class_update_config.json``.
    """

    name = "reimagenet"
    source = "imagenet-1k/val"
    shelf = "imagenet-1k"
    info = Info(
        title="ReImageNet",
        summary="the 50,000 validation pictures of ImageNet-1k with several labels a picture",
        citation="ReImageNet, 2026, arXiv 2608.13783",
        licence="CC-BY-4.0 by its card; its gate says research only, no redistribution",
        home="https://huggingface.co/datasets/vrg-prague/ReImageNet",
        expected_count=50000,
        notes="How many pictures have no class differs between the paper and copies of the file; flags() counts them.",
    )
    list_files = (
        Remote("reannotation.jsonl", instructions=GATED),
        Remote("class_update_config.json", instructions=GATED),
    )
    archive = IMAGENET_VAL

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        merged = _merged(lists["class_update_config.json"])
        entries = []
        for record in _records(lists["reannotation.jsonl"]):
            labels = {label for label in record["reannotated_labels"] if label >= 0}
            targets = sorted({other for label in labels for other in merged.get(label, {label})})
            entries.append(Entry(Path(record["image_name"]).name, tuple(targets)))
        imagenet.require_val_names([entry.id for entry in entries], "reannotation.jsonl")
        return sorted(entries, key=lambda entry: entry.id)

    def remarks(self) -> Sequence[str]:
        """The counts of :meth:`flags`."""
        found = self.flags()
        others = "".join(f", {count:,} with {name}" for name, count in sorted(found.others.items()))
        return (f"pictures without a label: {found.empty:,} empty, {found.minus_one:,} labelled -1{others}",)

    def flags(self) -> Flags:
        """How many pictures carry which sign of having no class.

        Raises
        ------
        DataError
            The annotation file is missing.
        """
        records = _records(self.list_paths()["reannotation.jsonl"])
        labels = [set(record["reannotated_labels"]) for record in records]
        others: Counter[str] = Counter()
        for record in records:
            boxes = record.get("bboxes") or ()
            others.update({key for box in boxes for key, value in box.items() if key.endswith("_flag") and value})
        return Flags(sum(not found for found in labels), sum(found == {-1} for found in labels), dict(others))


def _records(path: Path) -> list[dict[str, Any]]:
    records = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            labels = record["reannotated_labels"]
            valid = isinstance(record["image_name"], str) and all(-1 <= int(label) < CLASSES for label in labels)
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path.name}:{number} is no ReImageNet record: {error!r}") from error
        if not valid:
            raise DataError(f"{path.name}:{number} has a label outside the {CLASSES} classes")
        records.append(record)
    return records


def _merged(path: Path) -> dict[int, set[int]]:
    """For each class that is merged with others, all classes of its group."""
    groups: dict[int, set[int]] = {}
    try:
        pairs = [[int(c) for c in pair] for pair in json.loads(path.read_text("utf-8"))["equivalent_classes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path.name} has no list of equivalent_classes: {error!r}") from error
    for pair in pairs:
        group = set().union(*(groups.get(c, {c}) for c in pair))
        for member in group:
            groups[member] = group
    return groups
