"""CLEAN-OOD: NINCO's hand-cleaned samples of eleven popular OOD sets, 2,715 pictures in all."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns
from fiood_core.sources import NINCO_ALL, NINCO_SAMPLES

SOURCES = {
    "iNaturalist_OOD_Plants": 383,
    "OpenImage_O": 368,
    "ImageNet_O": 309,
    "Textures": 288,
    "360OpenSet": 236,
    "ImageNet_1k_OOD_400_ood": 235,
    "COOD": 212,
    "SSB_hard": 208,
    "Species": 172,
    "Places": 153,
    "SSB_easy": 151,
}
"""Pictures kept of each set; they sum to 2,715."""

WNID_NAME = re.compile(r"_(n\d{8})_\d+\.JPEG$")


class CleanOOD(ListedDataset):
    """What hand cleaning left of samples of 400; each source is a subset.

    For the five sets made from ImageNet-21k the pictures are not a subset of the set that is evaluated elsewhere.
    """

    name = "clean-ood"
    source = "ninco"
    shelf = "ninco"
    info = Info(
        title="CLEAN-OOD",
        summary="2,715 pictures: what hand cleaning left of samples of eleven popular OOD sets",
        citation="Bitterwolf, Müller, Hein: In or Out? Fixing ImageNet Out-of-Distribution Detection Evaluation, 2023, "
        "arXiv 2306.00826",
        licence="that of each source",
        home="https://github.com/j-cb/NINCO",
        expected_count=2715,
        notes="Not a subset of the full sets for SSB, 360OpenSet, COOD and IN1k-OOD: other files of the same classes. "
        "41 of the OpenImage-O pictures lie in OpenOOD's validation list.",
    )
    list_files = (NINCO_SAMPLES,)
    archive = NINCO_ALL
    folder = "NINCO_popular_datasets_subsamples"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = csv_columns(lists["NINCO_popular_datasets_subsamples.csv"], "image_location", "class")
        entries = [Entry(path, concept=concept(path, source), subsets=(source,)) for path, source in rows]
        counts = Counter(entry.subsets[0] for entry in entries)
        if counts != SOURCES:
            raise DataError(f"NINCO_popular_datasets_subsamples.csv must have {SOURCES}, has {dict(counts)}")
        return entries


def concept(path: str, source: str) -> Concept | None:
    """What a file's name says of its content; None for OpenImage-O and the plants, whose names are hashes."""
    name = re.sub(rf"^{re.escape(source)}_\d{{3}}_", "", path.rpartition("/")[2])
    wnid = WNID_NAME.search(f"_{name}")
    if wnid and source != "ImageNet_O":
        return Concept("", wnid[1])
    if source == "ImageNet_O":
        return Concept(re.sub(r"^n\d{8}_(.+)_[0-9.]+\.JPEG$", r"\1", name).replace("_", " "))
    if source in {"Textures", "Species", "Places"}:
        label = re.sub(r"_\d+\.\w+$", "", name)
        label = re.sub(r"^[a-z]_", "", label) if source == "Places" else label
        return None if label.startswith("Places365_val") else Concept(label.replace("_", " "))
    return None
