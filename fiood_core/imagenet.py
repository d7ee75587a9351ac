"""The thousand classes of ImageNet-1k: class ``i`` is the ``i``-th WordNet id in sorted order.

Folder order, the ILSVRC development kit's ids and file names are other orders; a label is looked up here by its wnid.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

WNID = re.compile(r"n\d{8}")
"""A noun's WordNet 3.0 id."""


@cache
def wnids() -> tuple[str, ...]:
    """The 1000 WordNet ids of ImageNet-1k, sorted: entry ``i`` is class ``i``."""
    text = resources.files("fiood_core").joinpath("data/imagenet_wnids.txt").read_text("ascii")
    return tuple(text.split())


def class_index(wnid: str) -> int | None:
    """The class of a WordNet id, or None where it is not one of the thousand."""
    return _indices().get(wnid)


@cache
def _indices() -> dict[str, int]:
    return {wnid: index for index, wnid in enumerate(wnids())}
