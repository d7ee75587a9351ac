"""SSB-easy: 1000 classes of ImageNet-21k that are semantically far from ImageNet-1k, 50 pictures each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.sources import IMAGENET_21K, SSB_FILES, SSB_SPLITS

CLASSES, EACH = 1000, 50


class SSBEasy(ListedDataset):
    """The easy half of the ImageNet split of the Semantic Shift Benchmark (winter 2021 release)."""

    name = "ssb-easy"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    info = Info(
        title="SSB-easy",
        summary="1000 ImageNet-21k classes far from ImageNet-1k's, 50 named pictures each",
        citation="Vaze et al.: Open-Set Recognition: a Good Closed-Set Classifier is All You Need?, 2022, "
        "arXiv 2110.06207",
        licence="pictures: image-net.org terms of access; lists: not stated",
        home="https://github.com/sgvaze/SSB",
        expected_count=50000,
        notes="Of 400 checked by NINCO 151 were clean; 134 of its classes are hypernyms of ImageNet-1k classes.",
    )
    list_files = (
        SSB_SPLITS,
        SSB_FILES,
    )
    archive = IMAGENET_21K
    folder = None

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        wnids = json.loads(lists["ssb_splits.json"].read_bytes())["unknown_classes"]["Easy"]
        files = json.loads(lists["ssb_val_files.json"].read_bytes())
        if len(set(wnids)) != CLASSES:
            raise DataError(f"ssb_splits.json has {len(set(wnids))} easy classes, the set has {CLASSES}")
        short = [wnid for wnid in wnids if len(files.get(wnid, ())) != EACH]
        if short:
            raise DataError(f"ssb_val_files.json does not name {EACH} pictures of {', '.join(short[:5])}")
        return [Entry(f"{wnid}/{file}", concept=Concept("", wnid)) for wnid in wnids for file in files[wnid]]
