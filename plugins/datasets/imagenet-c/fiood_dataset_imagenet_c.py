"""ImageNet-C: corrupted validation pictures, as OpenOOD samples them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from fiood_core import imagenet
from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import image_list
from fiood_core.sources import openood

KINDS, SEVERITIES = 15, {"1", "2", "3", "4", "5"}


class ImageNetC(ListedDataset):
    """10,000 validation pictures, each under one of 15 corruptions at one of 5 severities; both are subsets."""

    name = "imagenet-c"
    source = "imagenet-c"
    info = Info(
        title="ImageNet-C (OpenOOD's 10,000)",
        summary="10,000 validation pictures, each under one corruption at one severity",
        citation="Hendrycks, Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and "
        "Perturbations, 2019, arXiv 1903.12261",
        licence="CC-BY-4.0 according to third parties",
        home="https://zenodo.org/record/2235448",
        expected_count=10000,
        notes="The full set has 75 × 50,000 pictures. OpenOOD feeds these without resize or crop.",
    )
    list_files = (openood("test_imagenet_c.txt", "d31f2b2fb1b242e8e200b94be5de3405ba9165eaa16a260632ba2c9200acdabe"),)
    archive = Remote(
        "imagenet_c.zip",
        kind="zip",
        instructions="Get OpenOOD's imagenet_c archive (Google Drive 1JeXL9YH4BO8gCJ631c5BHbaSsl-lekHt), or the "
        "archives of https://zenodo.org/record/2235448.",
    )
    folder = "imagenet_c"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        entries = []
        for path, label in image_list(lists["openood_v1.5/test_imagenet_c.txt"]):
            _, kind, severity, _ = path.split("/")
            entries.append(
                Entry(path.removeprefix("imagenet_c/"), (int(label),), subsets=(kind, f"severity-{severity}"))
            )
        kinds = {entry.subsets[0] for entry in entries}
        severities = {entry.subsets[1].removeprefix("severity-") for entry in entries}
        if len(kinds) != KINDS or severities != SEVERITIES:
            raise DataError(f"ImageNet-C's list must have {KINDS} corruptions at 5 severities, has {sorted(kinds)}")
        return entries

    def aliases(self, image_id: str) -> Sequence[str]:
        """The authors' layout, with a folder for each class."""
        target = self._targets.get(image_id)
        folder, _, name = image_id.rpartition("/")
        return (f"{folder}/{imagenet.wnids()[target[0]]}/{name}",) if target else ()

    @cached_property
    def _targets(self) -> Mapping[str, tuple[int, ...]]:
        return {entry.id: entry.targets or () for entry in self.listed}
