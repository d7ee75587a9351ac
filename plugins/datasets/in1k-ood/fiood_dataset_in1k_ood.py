"""IN1k-OOD: 1000 animal classes of ImageNet-10k, the first 50 pictures of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Info
from fiood_core.download import Remote
from fiood_core.listed import FirstOfEachClass
from fiood_core.lists import github


class IN1kOOD(FirstOfEachClass):
    """PASCL's OOD test set for ImageNet-LT: of each class the first 50 names in sorted order."""

    name = "in1k-ood"
    source = "imagenet-10k"
    classes = 1000
    each = 50
    info = Info(
        title="IN1k-OOD",
        summary="1000 ImageNet-10k classes, the first 50 pictures of each in sorted order",
        citation="Wang et al.: Partial and Asymmetric Contrastive Learning for Out-of-Distribution Detection in "
        "Long-Tailed Recognition, 2022, arXiv 2207.01160",
        licence="pictures: image-net.org terms of access; list: Apache-2.0",
        home="https://github.com/amazon-science/long-tailed-ood-detection",
        expected_count=50000,
        notes="All classes are animals; 138 are hypernyms and 131 hyponyms of ImageNet-1k classes. Of 400 checked by "
        "NINCO 235 were clean.",
    )
    list_files = (
        github(
            "amazon-science/long-tailed-ood-detection",
            "utils/datasets/imagenet_ood_test_1k_wnid_list.txt",
            "048569927d2667ae3e19e191891aaf5cd615c90b1a85d91bc5ea762acee28a7a",
            commit="632111b8c03597568b1439b3a83fa03deb690c4b",
            name="pascl_in1k_ood_wnids.txt",
        ),
    )
    archive = Remote(
        "imagenet10k_eccv2010.tar",
        kind="tar",
        nested=True,
        instructions="Get imagenet10k_eccv2010.tar from https://image-net.org (an account is needed) and extract it "
        "to one folder a wnid.",
    )

    folder = None

    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        return lists["pascl_in1k_ood_wnids.txt"].read_text("ascii").split()
