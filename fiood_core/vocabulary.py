"""The vocabulary interface: names of classes outside the ID label space."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fiood_core._lookup import make_callable

if TYPE_CHECKING:
    from torch import Tensor

    from fiood_core.dataset import View

API_VERSION = 1


@dataclass(frozen=True)
class VocabularyContext:
    """What a vocabulary may look at.

    Attributes
    ----------
    id_names : sequence of str
        One name a class.
    id_wnids : sequence of str or None
    embed : callable, optional
        From labels to unit ensemble embeddings (n, D), cached; mining needs it.
    id_embeddings : Tensor (C, D), optional
    ood : View, optional
        The OOD set, for the oracle only.
    replicate : int
        Which of several independent generations.
    """

    id_names: Sequence[str]
    id_wnids: Sequence[str] | None = None
    embed: Callable[[Sequence[str]], Tensor] | None = None
    id_embeddings: Tensor | None = None
    ood: View | None = None
    replicate: int = 0


@dataclass(frozen=True)
class Labels:
    """An ordered list of labels with its provenance.

    Attributes
    ----------
    names : tuple of str
    record : dict
        How the list was made: sizes before and after each filter, overlap with the ID names, source digests.
    """

    names: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def digest(self) -> str:
        """SHA-256 of the names, one a line, in order."""
        return hashlib.sha256("".join(f"{name}\n" for name in self.names).encode()).hexdigest()


def normalised(name: str) -> str:
    """A name as names are compared: spaces for underscores, single spaces, lower-case."""
    return " ".join(name.replace("_", " ").split()).lower()


def without(names: Iterable[str], banned: Iterable[str]) -> list[str]:
    """Names in normal form, each once, without those that equal a banned one; order is kept."""
    out = set(map(normalised, banned))
    return [name for name in dict.fromkeys(map(normalised, names)) if name and name not in out]


def recorded(names: Iterable[str], context: VocabularyContext, **record: Any) -> Labels:
    """A list with its size, digest and overlap with the ID names in its record."""
    labels = Labels(tuple(names))
    known = set(map(normalised, context.id_names))
    overlap = [name for name in labels.names if normalised(name) in known]
    facts = {"size": len(labels), "digest": labels.digest, "overlap": len(overlap), "overlap_examples": overlap[:10]}
    return Labels(labels.names, {**record, **facts})


class Vocabulary(ABC):
    """A source of labels.

    Attributes
    ----------
    replicates : int
        How many independent lists there are.
    needs_embeddings, needs_ood : bool
        Whether :meth:`labels` reads ``context.embed`` / ``context.ood``, so that a plan knows what must come first.
    content : str
        Digest of the files that the labels come from, if any: kept scores are good as long as it stays.
    """

    api_version: ClassVar[int] = API_VERSION
    replicates: int = 1
    needs_embeddings: bool = False
    needs_ood: bool = False
    content: str = ""

    @abstractmethod
    def labels(self, context: VocabularyContext) -> Labels:
        """The labels for a context.

        Raises
        ------
        DataError
            A file or generation that the vocabulary is made from is missing; the message says how to get it.
        """


make_callable(__name__)
