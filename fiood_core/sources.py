"""Archives and lists that several dataset distributions share."""

from __future__ import annotations

from fiood_core.download import Remote
from fiood_core.lists import github

IMAGENET_VAL = Remote(
    "ILSVRC2012_img_val.tar",
    kind="tar",
    digest="md5:29b22e2961454d5413ddabcf34fc5622",
    instructions="Get ILSVRC2012_img_val.tar from https://image-net.org (an account is needed).",
)

FI_NOT_RELEASED = (
    "Fi-ImageNet-1k's lists are not released yet (arXiv 2609.01027: upon acceptance). When they are, get them from its "
    "authors, or give them as ood_list= and ambiguous_list=."
)
FI_OOD = Remote("fi_imagenet_1k_ood.csv", instructions=FI_NOT_RELEASED)
FI_AMBIGUOUS = Remote("fi_imagenet_1k_ambiguous.txt", instructions=FI_NOT_RELEASED)
FI_OOD_IMAGES, FI_AMBIGUOUS_IMAGES = 655, 980
"""Validation pictures that Fi-ImageNet-1k takes out: out of distribution, and ambiguous."""

IMAGENET_21K = Remote(
    "imagenet-21k",
    kind="tar",
    nested=True,
    instructions="Get ImageNet-21k (winter 2021) from https://image-net.org (an account is needed), one folder a wnid.",
)

NINCO_ALL = Remote(
    "NINCO_all.tar.gz",
    urls=("https://zenodo.org/record/8013288/files/NINCO_all.tar.gz",),
    kind="gzip",
    digest="md5:b9ffae324363cd900a81ce3c367cd834",
    digest_by_others=True,
    instructions="Its authors have a copy at Google Drive 1lGH9aWDZLGpniqs4JHkgM0Yy4_DsQ0rx.",
)

NINCO_SAMPLES = github(
    "j-cb/NINCO",
    "data/NINCO_popular_datasets_subsamples.csv",
    "97c44ff7f79604987d81243a2d6d8ca7ff8ee89bed15605ac34d7801898c05dd",
)
"""NINCO's hand-cleaned samples of eleven sets, with the class that each was drawn from."""

SSB_SPLITS = github(
    "sgvaze/SSB",
    "SSB/splits/imagenet_ssb_splits.json",
    "90644c5a2c267800e22bf660cc56fd58e4683fac42f27923dc10189e8a08666d",
    commit="ffded7c76f6d0b44164093e15cf104bc7bb0d288",
    name="ssb_splits.json",
)

SSB_FILES = github(
    "sgvaze/SSB",
    "SSB/splits/imagenet_21k_val_files.json",
    "19d9f6a9aef5555bbe1793accf62280b9e2f38ee260a70b738246cb92cfdfad7",
    commit="5f8db894779552532d54bdaf69a20d67437a2f68",
    name="ssb_val_files.json",
)


def openood(name: str, sha256: str) -> Remote:
    """One of OpenOOD v1.5's lists for ImageNet-1k, from a public repository that holds them."""
    return github(
        "facebookresearch/UnifiedUncertaintyCalibration",
        f"benchmark_imglist/imagenet/{name}",
        sha256,
        name=f"openood_v1.5/{name}",
        commit="67189131ba897e9482df88bddeffbef4bc8db807",
    )
