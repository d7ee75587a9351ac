"""The evaluation of the Fi-ImageNet-1k paper: ImageNet-1k against fifteen OOD sets."""

from __future__ import annotations

from collections.abc import Mapping

from fiood_dataset_360openset import OpenSet360
from fiood_dataset_clean_ood import CleanOOD
from fiood_dataset_cood import COOD
from fiood_dataset_fi_imagenet_1k import FiImageNet1k
from fiood_dataset_imagenet_1k import ImageNetID, ImageNetTrain
from fiood_dataset_imagenet_o import ImageNetO
from fiood_dataset_imagenet_ood import ImageNetOOD
from fiood_dataset_in1k_ood import IN1kOOD
from fiood_dataset_inaturalist import INaturalist
from fiood_dataset_ninco import NINCO
from fiood_dataset_openimage_o import OpenImageO
from fiood_dataset_places import Places
from fiood_dataset_species import Species
from fiood_dataset_ssb_easy import SSBEasy
from fiood_dataset_ssb_hard import SSBHard
from fiood_dataset_textures import Textures

from fiood_core import Benchmark, OODSet

POPULAR = (
    *(INaturalist, OpenImageO, OpenSet360, COOD, ImageNetO, Textures),
    *(Places, SSBEasy, SSBHard, Species, IN1kOOD),
)
"""The sets that NINCO's authors found contaminated, in full, in the order of the paper's table 3."""

BY_CLASS = ("pooled", "class-mean", "subsets")


class FiImageNet1kBenchmark(Benchmark):
    """ID: ImageNet-1k's validation set without Fi-ImageNet-1k's 655 OOD and 980 ambiguous pictures.

    Every set is pooled, as in the paper; NINCO also as the mean over its classes and by class, CLEAN-OOD by source, and
    Fi-ImageNet-1k by its fine-grained and ordinary halves.

    Parameters
    ----------
    ood_list, ambiguous_list : path, optional
        Fi-ImageNet-1k's lists; by default those on the shelf of ImageNet-1k.
    """

    def __init__(self, ood_list: str | None = None, ambiguous_list: str | None = None) -> None:
        self._lists = {"ood_list": ood_list, "ambiguous_list": ambiguous_list}

    @property
    def id_test(self) -> ImageNetID:
        return ImageNetID(**self._lists)

    @property
    def id_train(self) -> ImageNetTrain:
        return ImageNetTrain()

    @property
    def ood(self) -> Mapping[str, OODSet]:
        return {
            **{dataset.name: OODSet(dataset(), "popular", ("pooled",)) for dataset in POPULAR},
            "clean-ood": OODSet(CleanOOD(), "clean"),
            "ninco": OODSet(NINCO(), "clean", BY_CLASS),
            "imagenet-ood": OODSet(ImageNetOOD(), "clean", ("pooled",)),
            "fi-imagenet-1k": OODSet(FiImageNet1k(**self._lists), "fi-imagenet-1k"),
        }
