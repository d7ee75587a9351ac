"""The thousand classes of ImageNet-1k: class ``i`` is the ``i``-th WordNet id in sorted order.

Folder order, the ILSVRC development kit's ids and file names are other orders; a label is looked up here by its wnid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from fiood_core.errors import DataError

WNID = re.compile(r"n\d{8}")
"""A noun's WordNet 3.0 id."""

VAL_ID = re.compile(r"ILSVRC2012_val_\d{8}")

VAL_IMAGES = 50_000

KNOWN = (65, 970, 230, 809, 516, 57, 334, 415, 674, 332)
"""Classes of the first ten validation pictures, in sorted order: what a label list is recognised by."""


@cache
def wnids() -> tuple[str, ...]:
    """The 1000 WordNet ids of ImageNet-1k, sorted: entry ``i`` is class ``i``."""
    return _read("imagenet_wnids.txt")


@cache
def devkit_wnids() -> tuple[str, ...]:
    """The same ids in the order of the ILSVRC2012 development kit: entry ``i`` is its class ``i + 1``."""
    return _read("imagenet_devkit_wnids.txt")


def val_name(text: str) -> str:
    """File name of the validation picture that a text names, e.g. ``ILSVRC2012_val_00000001.JPEG``.

    Raises
    ------
    DataError
        The text names none.
    """
    match = VAL_ID.search(text)
    if match is None:
        raise DataError(f"{text!r} names no validation picture (ILSVRC2012_val_ and eight digits)")
    return f"{match[0]}.JPEG"


def val_ids(path: Path) -> set[str]:
    """File names of the validation pictures that a text file names, one a line; other lines are ignored."""
    return {val_name(line) for line in path.read_text("utf-8").splitlines() if VAL_ID.search(line)}


def require_val_names(names: Sequence[str], what: str) -> None:
    """Raise unless names are those of the 50,000 validation pictures, once each.

    Raises
    ------
    DataError
    """
    expected = {f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, VAL_IMAGES + 1)}
    if set(names) != expected or len(names) != VAL_IMAGES:
        odd = sorted(set(names) ^ expected)[:3] or "one of them twice"
        raise DataError(f"{what} does not name the {VAL_IMAGES:,} validation pictures once each: {odd}")


def sorted_labels(rows: Iterable[tuple[str, str]], what: str) -> dict[str, int]:
    """Classes in sorted order from a label list of validation pictures, ``(path, label)`` a row.

    The development kit's order, which ViM's list has, is recognised by the first ten pictures and converted.

    Raises
    ------
    DataError
        The list lacks those pictures, or has yet another order.
    """
    labels = {val_name(path): int(label) for path, label in rows}
    first = tuple(labels.get(f"ILSVRC2012_val_{number:08d}.JPEG", -1) for number in range(1, len(KNOWN) + 1))
    if first == KNOWN:
        return labels
    order = [class_index(wnid) or 0 for wnid in devkit_wnids()]
    if all(0 <= label < len(order) for label in labels.values()) and tuple(order[label] for label in first) == KNOWN:
        return {name: order[label] for name, label in labels.items()}
    raise DataError(
        f"{what} labels the first validation pictures {first}, which is neither sorted wnids {KNOWN} nor the "
        "development kit's order; labels must be places in the sorted list of wnids"
    )


def class_index(wnid: str) -> int | None:
    """The class of a WordNet id, or None where it is not one of the thousand."""
    return _indices().get(wnid)


@cache
def _indices() -> dict[str, int]:
    return {wnid: index for index, wnid in enumerate(wnids())}


def _read(name: str) -> tuple[str, ...]:
    return tuple(resources.files("fiood_core").joinpath(f"data/{name}").read_text("ascii").split())
