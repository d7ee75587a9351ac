"""MOS Places: 10,000 pictures of nature scenes of Places365."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.download import Remote
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import github, image_list


class Places(ListedDataset):
    """The 10,000 pictures that MOS took from Places365; not Places365's own validation set of 36,500."""

    name = "places"
    source = "mos-places"
    info = Info(
        title="MOS Places",
        summary="10,000 pictures of nature scenes of Places365",
        citation="Huang, Li: MOS: Towards Scaling Out-of-distribution Detection for Large Semantic Space, 2021, "
        "arXiv 2105.01879",
        licence="Places2 terms: non-commercial research and education (according to third parties)",
        home="https://github.com/deeplearning-wisc/large_scale_ood",
        expected_count=10000,
        notes="Of 405 pictures checked by NINCO 153 were clean. 178 pictures carry no scene in their name.",
    )
    list_files = (
        github(
            "ZhikangXu0112/InterNeg",
            "data/benchmark_imglist/imagenet/test_Places.txt",
            "30f5a56b788303a0c4b458566f882d77ba7f0951979a9f67adf4b96fde4db33d",
            commit="647ee79c93b784a51419f6137eaa0a0d31cf1545",
            name="mos_places.txt",
        ),
    )
    archive = Remote(
        "Places.tar.gz",
        urls=(
            "https://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/Places.tar.gz",
            "http://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/Places.tar.gz",
        ),
        kind="gzip",
        digest="md5:b5cb5eba2754ae2a28beea8718db699a",
        digest_by_others=True,
        instructions="OpenOOD has a copy at Google Drive 1fZ8TbPC4JGqUCm-VtvrmkYxqRNp2PoB3.",
    )
    folder = "images"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        return [Entry(path, concept=scene(path)) for path, _ in image_list(lists["mos_places.txt"])]


def scene(path: str) -> Concept | None:
    """The scene in a file's name; None for the 178 pictures that keep Places365's own names."""
    match = re.fullmatch(r"images/[a-z]_(\w+)_\d{8}\.jpg", path)
    return Concept(match[1].replace("_", " ")) if match else None
