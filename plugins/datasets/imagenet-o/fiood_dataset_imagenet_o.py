"""ImageNet-O: 2,000 pictures on which a ResNet-50 was confidently wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import image_list
from fiood_core.sources import openood

FILE = re.compile(r"(n\d{8})/(.+)_([0-9.]+)\.JPEG")


class ImageNetO(ListedDataset):
    """The folder is the class that ResNet-50 predicted; what a picture shows stands in its file name."""

    name = "imagenet-o"
    source = "imagenet-o"
    info = Info(
        title="ImageNet-O",
        summary="2,000 pictures of ImageNet-21k classes on which a ResNet-50 was confidently wrong",
        citation="Hendrycks et al.: Natural Adversarial Examples, 2021, arXiv 1907.07174",
        licence="MIT according to the Hugging Face copy",
        home="https://github.com/hendrycks/natural-adv-examples",
        expected_count=2000,
        notes="Chosen against a ResNet-50, so unfair to it. Of 400 checked by NINCO 309 were clean. Folder names are "
        "no labels.",
    )
    list_files = (openood("test_imagenet_o.txt", "38daf6282ef5561cea2bf72c01ee3ad2cc6d54d263093b7d1fdaadeb841937d1"),)
    archive = Remote(
        "imagenet-o.tar",
        urls=("https://people.eecs.berkeley.edu/~hendrycks/imagenet-o.tar",),
        kind="tar",
        digest="md5:86bd7a50c1c4074fb18fc5f219d6d50b",
        digest_by_others=True,
    )
    folder = "imagenet-o"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = image_list(lists["openood_v1.5/test_imagenet_o.txt"])
        return [_entry(path.removeprefix("imagenet_o/")) for path, _ in rows]


def _entry(path: str) -> Entry:
    match = FILE.fullmatch(path)
    if match is None:
        raise DataError(f"ImageNet-O's list has {path!r}, which is not <wnid>/<name>_<confidence>.JPEG")
    return Entry(path, concept=Concept(match[2].replace("_", " ")))
