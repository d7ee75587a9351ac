"""ImageNet-OOD: 31,802 pictures of 637 ImageNet-21k classes without semantic ambiguity."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import github
from fiood_core.sources import IMAGENET_21K

CLASSES = 637
FILE = re.compile(r"(n\d{8})/\1_\d+\.JPEG")


class ImageNetOOD(ListedDataset):
    """The released list; 599 classes have 50 pictures, the others 47 to 49."""

    name = "imagenet-ood"
    source = "imagenet-21k"
    shelf = "imagenet-21k"
    info = Info(
        title="ImageNet-OOD",
        summary="31,802 pictures of 637 ImageNet-21k classes, chosen to be free of semantic ambiguity",
        citation="Yang, Zhang, Russakovsky: ImageNet-OOD: Deciphering Modern Out-of-Distribution Detection Algorithms, "
        "2024, arXiv 2310.01755",
        licence="pictures: image-net.org terms of access; list: not stated",
        home="https://github.com/princetonvisualai/imagenetood",
        expected_count=31802,
        notes="Two classes are hypernyms and one is a hyponym of ImageNet-1k classes.",
    )
    list_files = (
        github(
            "princetonvisualai/imagenetood",
            "imagenetood.txt",
            "80192c520a1789778b56d9342346a61c4cde3a2c3db12abc8512839145f886a0",
            commit="a8ff81750902b73340163d4d7c643f528ce3bae7",
        ),
    )
    archive = IMAGENET_21K
    folder = None

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        entries = []
        for number, path in enumerate(lists["imagenetood.txt"].read_text("ascii").splitlines(), 1):
            match = FILE.fullmatch(path)
            if match is None:
                raise DataError(f"imagenetood.txt:{number}: {path!r} is not <wnid>/<wnid>_<n>.JPEG")
            entries.append(Entry(path, concept=Concept("", match[1])))
        classes = {entry.concept for entry in entries}
        if len(classes) != CLASSES:
            raise DataError(f"imagenetood.txt has {len(classes)} classes, the set has {CLASSES}")
        return entries
