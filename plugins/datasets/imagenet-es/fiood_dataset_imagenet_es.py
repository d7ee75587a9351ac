"""ImageNet-ES: pictures of a screen under controlled light and camera settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core import imagenet
from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.locate import walk

PLACE = re.compile(r"(?:.*/)?es-test/(param_control|auto_exposure)/(l1|l5)/param_(\d+)/(n\d{8})/([^/]+)")
PER_SETTING, SETTINGS, CLASSES = 1000, 2 * (27 + 5), 200


class ImageNetES(ListedDataset):
    """The test part without its references: 2 lights × (27 + 5) settings × 1000 pictures of 200 classes.

    No list of it could be obtained, so the tree itself is held to these counts; the sampled references are left out.
    """

    name = "imagenet-es"
    source = "imagenet-es"
    info = Info(
        title="ImageNet-ES",
        summary="64,000 pictures of 200 classes under 64 settings of light and camera",
        citation="Baek et al.: Unexplored Faces of Robustness and Out-of-Distribution, 2024, arXiv 2404.15882",
        home="https://github.com/Edw2n/ImageNet-ES",
        expected_count=64000,
        notes="The classes are 200 of Tiny ImageNet, all in ImageNet-1k.",
    )
    archive = Remote(
        "ImageNet-ES.zip",
        urls=("https://huggingface.co/datasets/Edw2n/ImageNet-ES/resolve/main/ImageNet-ES.zip",),
        kind="zip",
    )
    folder = None

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        if not self.root.is_dir():
            raise DataError(f"imagenet-es: no pictures at {self.root}; {self.how_to_get}")
        entries = []
        for path in sorted(walk(self.root)):
            place = PLACE.fullmatch(path)
            if place is None:
                continue
            mode, light, _, wnid, _ = place.groups()
            label = imagenet.class_index(wnid)
            if label is None:
                raise DataError(f"imagenet-es: {path} lies under {wnid}, which is no ImageNet-1k class")
            entries.append(Entry(path[path.index("es-test/") :], (label,), subsets=(mode, light)))
        counts = Counter(entry.id.rsplit("/", 2)[0] for entry in entries)
        classes = {entry.targets for entry in entries}
        if len(counts) != SETTINGS or set(counts.values()) != {PER_SETTING} or len(classes) != CLASSES:
            raise DataError(
                f"imagenet-es at {self.root} has {len(counts)} settings, {len(classes)} classes and {len(entries):,} "
                f"pictures; the set has {SETTINGS} settings of {PER_SETTING} pictures in {CLASSES} classes"
            )
        return entries
