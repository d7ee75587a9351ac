"""NINCO's OOD unit tests: 17 kinds of synthetic pictures, 400 of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns, github
from fiood_core.sources import NINCO_ALL

KINDS, EACH = 17, 400


class NINCOUnitTests(ListedDataset):
    """Noise, monochrome, stripes and blobs that a detector should never take for a class."""

    name = "ninco-unit-tests"
    source = "ninco"
    shelf = "ninco"
    info = Info(
        title="NINCO OOD unit tests",
        summary="6,800 synthetic pictures of 17 kinds, half of each kind with JPEG artefacts",
        citation="Bitterwolf, Müller, Hein: In or Out? Fixing ImageNet Out-of-Distribution Detection Evaluation, 2023, "
        "arXiv 2306.00826",
        licence="CC-BY-4.0 according to third parties",
        home="https://github.com/j-cb/NINCO",
        expected_count=6800,
        notes="The authors' generator used an unseeded random state: only their files are the set.",
    )
    list_files = (
        github(
            "j-cb/NINCO",
            "data/NINCO_OOD_unit_tests.csv",
            "5ce2d121a7b485313e09865ef42f38dffda8dd94df4917b4105c174d14c76918",
        ),
    )
    archive = NINCO_ALL
    folder = "NINCO_OOD_unit_tests"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = csv_columns(lists["NINCO_OOD_unit_tests.csv"], "image_location", "class")
        entries = [Entry(path, concept=Concept(kind), subsets=(kind,)) for path, kind in rows]
        counts = Counter(entry.subsets[0] for entry in entries)
        if len(counts) != KINDS or set(counts.values()) != {EACH}:
            raise DataError(
                f"NINCO_OOD_unit_tests.csv must have {EACH} pictures of each of {KINDS} kinds, has {dict(counts)}"
            )
        return entries
