"""COOD as an OOD set: 207 classes of ImageNet-21k, 50 pictures each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.listed import FirstOfEachClass
from fiood_core.lists import csv_columns
from fiood_core.sources import IMAGENET_21K, NINCO_SAMPLES

LOST = {"n09838621", "n09980985", "n10146104", "n10187491", "n10568358"}
"""Person classes of NINCO's sample that the winter 2021 release lacks (two of the five are assumed)."""


class COOD(FirstOfEachClass):
    """The classes of NINCO's clean COOD sample that the winter 2021 release has.

    10,350 = 207 × 50 is the count that Fi-ImageNet-1k evaluates; that these are its classes is inferred, not stated.
    COOD's own benchmark of graded severity is the benchmark ``cood``, not this set.
    """

    name = "cood"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    classes = 207
    each = 50
    info = Info(
        title="COOD (207 × 50)",
        summary="207 ImageNet-21k classes of COOD's pool, 50 pictures each",
        citation="Galil, Dabbah, El-Yaniv: A framework for benchmarking Class-out-of-distribution detection, 2023, "
        "arXiv 2302.11893",
        licence="pictures: image-net.org terms of access",
        home="https://github.com/mdabbah/COOD_benchmarking",
        expected_count=10350,
        notes="Which 50 pictures of a class the paper took is not stated; these are the first 50 in sorted order. "
        "No class is a hypernym or hyponym of an ImageNet-1k class.",
    )
    list_files = (NINCO_SAMPLES,)
    archive = IMAGENET_21K
    folder = None

    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        found = set()
        for path, source in csv_columns(lists["NINCO_popular_datasets_subsamples.csv"], "image_location", "class"):
            match = re.search(r"_(n\d{8})_\d+\.JPEG$", path)
            if source == "COOD" and match:
                found.add(match[1])
        return sorted(found - LOST)
