"""Names of the ImageNet-1k classes, keyed by WordNet id."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from fiood_core import imagenet
from fiood_core.errors import DataError, ParameterError
from fiood_core.text import distinct
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext, recorded

DIGEST = "8800e39242cbed4c6889376e20a49cfdaf4f84a773a6686d15c3b39972ef94c4"
"""SHA-256 of OpenAI's thousand names in class order, one a line."""

FIXES = {"n04008634": "projectile", "n04355933": "sunglass"}
"""The second missile and the first sunglasses, told from their namesakes (openai/CLIP issue 465)."""

NameList = Literal["openai-fixed", "openai"]


class ImageNetNames(Vocabulary):
    """OpenAI's names of the thousand classes, as open_clip carries them; for heads over the ID classes.

    Parameters
    ----------
    list : {"openai-fixed", "openai"}
        Thousand distinct names, or the list as published, in which "missile" and "sunglasses" each name two classes.
    """

    def __init__(self, list: NameList = "openai-fixed") -> None:
        if list not in ("openai-fixed", "openai"):
            raise ParameterError(f"list must be 'openai-fixed' or 'openai', got {list!r}")
        self.list: NameList = list

    def names(self, wnids: Sequence[str] | None = None) -> list[str]:
        """One name a class, by default of all thousand classes in order.

        Raises
        ------
        DataError
            A WordNet id is none of ImageNet-1k's, or open_clip's list cannot be found or is another.
        """
        by_wnid = dict(zip(imagenet.wnids(), _openai_names(), strict=True))
        if self.list == "openai-fixed":
            by_wnid.update(FIXES)
        unknown = [wnid for wnid in wnids or () if wnid not in by_wnid]
        if unknown:
            raise DataError(f"{unknown[0]!r} is no class of ImageNet-1k ({len(unknown)} such ids); it has no name here")
        return [by_wnid[wnid] for wnid in wnids or imagenet.wnids()]

    def labels(self, context: VocabularyContext) -> Labels:
        """Distinct names of all thousand classes, in order."""
        names, classes = distinct(self.names())
        shared = sum(len(indices) > 1 for indices in classes)
        return recorded(names, context, list=self.list, source=DIGEST, names_of_several_classes=shared)


@cache
def _openai_names() -> tuple[str, ...]:
    """The list in open_clip's source, read without importing open_clip."""
    spec = importlib.util.find_spec("open_clip")
    if spec is None or not spec.submodule_search_locations:
        raise DataError("OpenAI's class names come with open_clip; pip install open-clip-torch")
    place = Path(spec.submodule_search_locations[0]) / "zero_shot_metadata.py"
    names = _assigned(place, "IMAGENET_CLASSNAMES")
    if hashlib.sha256("".join(f"{name}\n" for name in names).encode()).hexdigest() != DIGEST:
        raise DataError(f"{place} holds another list than OpenAI's; install another version of open-clip-torch")
    return names


def _assigned(place: Path, variable: str) -> tuple[str, ...]:
    """A literal that a Python file assigns to a module variable."""
    if place.is_file():
        for node in ast.parse(place.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in node.targets):
                return tuple(map(str, ast.literal_eval(node.value)))
    raise DataError(f"{place} assigns no {variable}; install another version of open-clip-torch")
