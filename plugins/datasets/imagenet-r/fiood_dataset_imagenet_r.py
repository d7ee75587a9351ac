"""ImageNet-R: renditions of 200 ImageNet-1k classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core import imagenet
from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import image_list
from fiood_core.sources import openood

CLASSES = 200


class ImageNetR(ListedDataset):
    """30,000 pictures in wnid folders; accuracy means something among its 200 classes only."""

    name = "imagenet-r"
    source = "imagenet-r"
    info = Info(
        title="ImageNet-R",
        summary="30,000 renditions of 200 ImageNet-1k classes",
        citation="Hendrycks et al.: The Many Faces of Robustness, 2021, arXiv 2006.16241",
        home="https://github.com/hendrycks/imagenet-r",
        expected_count=30000,
    )
    list_files = (openood("test_imagenet_r.txt", "a9668e25fa5c7d291af4c0ebed6a6b718b87770a45b34121e95be3baf7b43c1c"),)
    archive = Remote(
        "imagenet-r.tar",
        urls=("https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",),
        kind="tar",
        digest="md5:a61312130a589d0ca1a8fca1f2bd3337",
        digest_by_others=True,
    )
    folder = "imagenet-r"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        entries = []
        for path, label in image_list(lists["openood_v1.5/test_imagenet_r.txt"]):
            wnid = path.split("/")[-2]
            if imagenet.class_index(wnid) != int(label):
                raise DataError(
                    f"ImageNet-R's list labels {path} as {label}, its wnid is class {imagenet.class_index(wnid)}"
                )
            entries.append(Entry(path.removeprefix("imagenet_r/"), (int(label),)))
        if len({entry.targets for entry in entries}) != CLASSES:
            raise DataError(f"ImageNet-R's list must have {CLASSES} classes")
        return entries
