"""ImageNet-V2: a new test set for ImageNet-1k's classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import image_list
from fiood_core.sources import openood


class ImageNetV2(ListedDataset):
    """OpenOOD's copy; the label is the folder's number, never its place among folder names sorted as strings."""

    name = "imagenet-v2"
    source = "imagenet-v2"
    info = Info(
        title="ImageNet-V2",
        summary="10,000 new pictures of ImageNet-1k's classes",
        citation="Recht et al.: Do ImageNet Classifiers Generalize to ImageNet?, 2019, arXiv 1902.10811",
        licence="code MIT, which does not cover the pictures (Flickr)",
        home="https://github.com/modestyachts/ImageNetV2",
        expected_count=10000,
        notes="Which of the three official sets OpenOOD's copy is, is not stated.",
    )
    list_files = (openood("test_imagenet_v2.txt", "44f4322a5a44f1ccdb9449eae9c26bf12d831c459c23f726e5aabedcd8b0a0bf"),)
    archive = Remote(
        "imagenet_v2.zip",
        kind="zip",
        instructions="Get OpenOOD's imagenet_v2 archive (Google Drive 1akg2IiE22HcbvTBpwXQoD7tgfPCdkoho).",
    )
    folder = "imagenet_v2"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        entries = []
        for path, label in image_list(lists["openood_v1.5/test_imagenet_v2.txt"]):
            if path.split("/")[-2] != label:
                raise DataError(f"ImageNet-V2's list labels {path} as {label}; the label is the folder's number")
            entries.append(Entry(path.removeprefix("imagenet_v2/"), (int(label),)))
        return entries
