"""360OpenSet: classes of ILSVRC2010 that ILSVRC2012 dropped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.errors import DataError
from fiood_core.listed import FirstOfEachClass
from fiood_core.lists import csv_columns, github
from fiood_core.sources import IMAGENET_21K, NINCO_SAMPLES

CITATION = "Bendale, Boult: Towards Open Set Deep Networks, 2016, arXiv 1511.06233"
HOME = "https://github.com/abhijitbendale/OSDN"
SYNSETS = github(
    "abhijitbendale/OSDN",
    "openset_imagenet2010_synsets.txt",
    "ba5e0ce1a2422ca7ed22ff25b27c2983d03d18f5b7395401246d5fb0c80031b6",
    commit="c13b7697c52f6748dc29f4387deced4daa6d6239",
    name="osdn_360_synsets.txt",
)
CLEAN = NINCO_SAMPLES
RULE = "Which 50 pictures of a class the papers took is not stated; these are the first 50 names in sorted order."


class OpenSet360(FirstOfEachClass):
    """236 classes of 50 pictures, the count that Fi-ImageNet-1k evaluates.

    The paper's 11,800 is 236 × 50, and 236 of the 360 synsets survive in NINCO's clean sample; that these are the
    paper's classes is inferred, not stated.
    """

    name = "360openset"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    classes = 236
    each = 50
    info = Info(
        title="360OpenSet (236 × 50)",
        summary="the 236 classes of 360OpenSet that survive in NINCO's clean sample, 50 pictures each",
        citation=CITATION,
        licence="pictures: image-net.org terms of access; list: BSD-like",
        home=HOME,
        expected_count=11800,
        notes=f"{RULE} Of 400 checked by NINCO 236 were clean; 21 of the 360 classes are hypernyms of ImageNet-1k's.",
    )
    list_files = (SYNSETS, CLEAN)
    archive = IMAGENET_21K
    folder = None

    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        official = set(synsets(lists["osdn_360_synsets.txt"]))
        found = []
        for path, source in csv_columns(lists["NINCO_popular_datasets_subsamples.csv"], "image_location", "class"):
            match = re.search(r"_(n\d{8})_\d+\.JPEG$", path)
            if source == "360OpenSet" and match:
                found.append(match[1])
        if not set(found) <= official:
            raise DataError(f"NINCO's sample has classes that OSDN's list lacks: {sorted(set(found) - official)[:5]}")
        return sorted(set(found))


class OpenSet360All(FirstOfEachClass):
    """All 360 classes of OSDN's list, 50 pictures each."""

    name = "360openset-all"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    classes = 360
    each = 50
    info = Info(
        title="360OpenSet (360 × 50)",
        summary="all 360 classes of ILSVRC2010 that ILSVRC2012 dropped, 50 pictures each",
        citation=CITATION,
        licence="pictures: image-net.org terms of access; list: BSD-like",
        home=HOME,
        expected_count=18000,
        notes=RULE,
    )
    list_files = (SYNSETS,)
    archive = IMAGENET_21K
    folder = None

    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        return synsets(lists["osdn_360_synsets.txt"])


def synsets(path: Path) -> list[str]:
    """The wnids of OSDN's list, one ``wnid name`` a line."""
    wnids = [line.split(maxsplit=1)[0] for line in path.read_text("utf-8").splitlines() if line.strip()]
    bad = [wnid for wnid in wnids if not re.fullmatch(r"n\d{8}", wnid)]
    if bad or len(set(wnids)) != len(wnids):
        raise DataError(f"{path.name} must name each wnid once, has {bad[:3] or 'duplicates'}")
    return wnids
