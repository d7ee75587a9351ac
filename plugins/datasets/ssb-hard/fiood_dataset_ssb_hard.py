"""SSB-hard: 980 classes of ImageNet-21k that are semantically near to ImageNet-1k, 50 pictures each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.sources import IMAGENET_21K, SSB_FILES, SSB_SPLITS

CLASSES, EACH = 980, 50


class SSBHard(ListedDataset):
    """The hard half of the ImageNet split of the Semantic Shift Benchmark (winter 2021 release)."""

    name = "ssb-hard"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    info = Info(
        title="SSB-hard",
        summary="980 ImageNet-21k classes near to ImageNet-1k's, 50 named pictures each",
        citation="Vaze et al.: Open-Set Recognition: a Good Closed-Set Classifier is All You Need?, 2022, "
        "arXiv 2110.06207",
        licence="pictures: image-net.org terms of access; lists: not stated",
        home="https://github.com/sgvaze/SSB",
        expected_count=49000,
        notes="Of 400 checked by NINCO 208 were clean; 32 of its classes are hypernyms and 160 hyponyms of ImageNet-1k "
        "classes. 20 person classes of the fall 2011 release are gone.",
    )
    list_files = (
        SSB_SPLITS,
        SSB_FILES,
    )
    archive = IMAGENET_21K
    folder = None

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        wnids = json.loads(lists["ssb_splits.json"].read_bytes())["unknown_classes"]["Hard"]
        files = json.loads(lists["ssb_val_files.json"].read_bytes())
        if len(set(wnids)) != CLASSES:
            raise DataError(f"ssb_splits.json has {len(set(wnids))} hard classes, the set has {CLASSES}")
        short = [wnid for wnid in wnids if len(files.get(wnid, ())) != EACH]
        if short:
            raise DataError(f"ssb_val_files.json does not name {EACH} pictures of {', '.join(short[:5])}")
        return [Entry(f"{wnid}/{file}", concept=Concept("", wnid)) for wnid in wnids for file in files[wnid]]
