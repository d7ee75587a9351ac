"""NINCO: 5,879 hand-checked pictures of 64 classes that contain no ImageNet-1k object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns, github
from fiood_core.sources import NINCO_ALL

CLASSES = 64


class NINCO(ListedDataset):
    """The OOD classes of NINCO; each class is a subset, so a metric can be pooled or taken per class.

    NINCO's paper averages the metrics of classes; Fi-ImageNet-1k pools the 5,879 pictures.
    """

    name = "ninco"
    source = "ninco"
    shelf = "ninco"
    info = Info(
        title="NINCO",
        summary="5,879 pictures in 64 classes, each checked by hand to contain no ImageNet-1k object",
        citation="Bitterwolf, Müller, Hein: In or Out? Fixing ImageNet Out-of-Distribution Detection Evaluation, 2023, "
        "arXiv 2306.00826",
        licence="CC-BY-4.0 according to third parties; pictures from eight sources, so treat as research only",
        home="https://github.com/j-cb/NINCO",
        expected_count=5879,
        notes="199 paths have spaces; OpenOOD's copies have underscores; one picture is a GIF. 50 of 64 classes have a "
        "counterpart in ImageNet-21k.",
    )
    list_files = (
        github(
            "j-cb/NINCO",
            "data/NINCO_OOD_classes.csv",
            "1da2b2965a35b04632462acc2a2aec05db3f2fe0ce0576e35fbc5f5a6b3b201a",
        ),
        github(
            "j-cb/NINCO",
            "data/NINCO_class_names.csv",
            "00f7f0901c3c056f18417d7e3aad6c2fb522b811951eda57926d197a8090b93e",
        ),
    )
    archive = NINCO_ALL
    folder = "NINCO_OOD_classes"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        names = _print_names(lists["NINCO_class_names.csv"])
        entries = []
        for path, label in csv_columns(lists["NINCO_OOD_classes.csv"], "image_location", "class"):
            entries.append(Entry(path, concept=Concept(names.get(label, label.replace("_", " "))), subsets=(label,)))
        classes = {entry.subsets for entry in entries}
        if len(classes) != CLASSES:
            raise DataError(f"NINCO_OOD_classes.csv has {len(classes)} classes, NINCO has {CLASSES}")
        return entries

    def aliases(self, image_id: str) -> Sequence[str]:
        """OpenOOD's layout, ``ninco/<class>/<file>``."""
        return (image_id.replace("NINCO_OOD_classes/", "ninco/", 1),)


def _print_names(path: Path) -> dict[str, str]:
    rows = csv_columns(path, "filename", "printname", "printname add-on in parentheses")
    return {file: f"{name} ({extra})" if extra else name for file, name, extra in rows if file and name}
