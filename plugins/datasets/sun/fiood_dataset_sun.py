"""MOS SUN: 10,000 pictures of nature scenes of SUN397."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import github, image_list


class SUN(ListedDataset):
    """The 10,000 pictures that MOS took from SUN397."""

    name = "sun"
    source = "mos-sun"
    info = Info(
        title="MOS SUN",
        summary="10,000 pictures of nature scenes of SUN397",
        citation="Huang, Li: MOS: Towards Scaling Out-of-distribution Detection for Large Semantic Space, 2021, "
        "arXiv 2105.01879",
        licence="not stated",
        home="https://github.com/deeplearning-wisc/large_scale_ood",
        expected_count=10000,
        notes="Not checked by NINCO. File names carry no label; SUN397's tree has them.",
    )
    list_files = (
        github(
            "ZhikangXu0112/InterNeg",
            "data/benchmark_imglist/imagenet/test_SUN.txt",
            "67acef6f7ccec8f3bfdd37572de93c93b9847c34ad7f5b998e24126bdfbe6c6b",
            commit="647ee79c93b784a51419f6137eaa0a0d31cf1545",
            name="mos_sun.txt",
        ),
    )
    archive = Remote(
        "SUN.tar.gz",
        urls=(
            "https://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/SUN.tar.gz",
            "http://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/SUN.tar.gz",
        ),
        kind="gzip",
        digest="md5:8469c3ada62211477954ec1be53b12d0",
        digest_by_others=True,
        instructions="OpenOOD has a copy at Google Drive 1ISK0STxWzWmg-_uUr4RQ8GSLFW7TZiKp.",
    )
    folder = "images"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        return [Entry(path) for path, _ in image_list(lists["mos_sun.txt"])]
