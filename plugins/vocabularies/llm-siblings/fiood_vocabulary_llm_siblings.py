"""Near siblings of each ID class from a language model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from fiood_core import wordnet
from fiood_core.errors import ParameterError
from fiood_core.generation import Conversation, GeneratedVocabulary, parse_items
from fiood_core.vocabulary import Labels, VocabularyContext, normalised, recorded, without

Dedupe = Literal["pool", "per_class"]

PROMPT = (
    "Name {count} specific categories that are visually similar siblings of '{name}': things that one could mistake "
    "for it in a photo, at the same level of detail. None may be a synonym of '{name}', a kind of it, or broader. "
    "Answer with a list of exactly {count} distinct items, one a line, each line beginning with '- ', and nothing else."
)
"""Written for fiood: the prompt of Fi-ImageNet-1k is published as a figure only."""


class LLMSiblings(GeneratedVocabulary):
    """Twenty siblings a class, less ID names and their WordNet synonyms; ten generations, or all of them merged.

    Parameters
    ----------
    per_class : int
        Siblings to ask for, and to read of a reply.
    merged : bool
        One list from all generations, instead of a list for each.
    k : int, optional
        Of the merged siblings of a class, keep this many of one seeded permutation: lists are nested in ``k``.
    dedupe : {"pool", "per_class"}
        Whether a name that is a sibling of several classes is one label, or one label a class.
    seed : int
        Of the permutations.
    source : str, optional
        WordNet 3.0, for synonyms of classes that have a WordNet id; see :func:`fiood_core.wordnet.load`.
    generations : str, optional
        The generation file; by default ``generations/llm-siblings.jsonl`` under the cache folder.
    """

    kind = "llm-siblings"
    default_replicates = 10

    def __init__(
        self,
        per_class: int = 20,
        *,
        merged: bool = False,
        k: int | None = None,
        dedupe: Dedupe = "pool",
        seed: int = 0,
        source: str | None = None,
        generations: str | Path | None = None,
    ) -> None:
        if per_class < 1 or (k is not None and k < 1):
            raise ParameterError(f"per_class and k must be at least 1, got {per_class} and {k}")
        if dedupe not in ("pool", "per_class"):
            raise ParameterError(f"dedupe must be 'pool' or 'per_class', got {dedupe!r}")
        if k is not None and not merged:
            raise ParameterError("k truncates the merged pool; give merged=True too")
        self.per_class, self.merged, self.k, self.dedupe, self.seed = per_class, merged, k, dedupe, seed
        self.source = source
        super().__init__(generations)

    @property
    def replicates(self) -> int:  # type: ignore[override]
        """Generations in the file; one if they are merged."""
        return 1 if self.merged else super().replicates

    def conversations(self, id_names: Sequence[str]) -> Sequence[Conversation]:
        """One question for each distinct name."""
        return tuple(
            Conversation(
                name, (PROMPT.replace("{count}", str(self.per_class)).replace("{name}", name),), self.per_class
            )
            for name in dict.fromkeys(id_names)
        )

    def labels(self, context: VocabularyContext) -> Labels:
        """The pool of one generation, or of all."""
        banned = [*context.id_names, *self._synonyms(context)]
        generations = range(self.file.replicates) if self.merged else [context.replicate]
        siblings: dict[str, list[str]] = {name: [] for name in dict.fromkeys(context.id_names)}
        for generation in generations:
            for name, replies in self.replies(replace(context, replicate=generation)).items():
                siblings[name] += [item for reply in replies for item in parse_items(reply)[: self.per_class]]
        named = sum(map(len, siblings.values()))
        if self.k is not None:
            siblings = truncated(siblings, banned, self.k, self.seed)
        pool, removed = gpt_pool(siblings, banned, self.dedupe)
        return recorded(
            pool,
            context,
            named=named,
            removed_by_ban=removed,
            size_by_class=len(gpt_pool(siblings, banned, "per_class")[0]),
            banned=len(set(map(normalised, banned))),
            **self.provenance,
        )

    def _synonyms(self, context: VocabularyContext) -> list[str]:
        """All words of the ID classes' synsets."""
        if context.id_wnids is None:
            return []
        lexicon = wordnet.load(self.source)
        return [word for wnid in context.id_wnids for word in lexicon.synonyms(wnid)]


def gpt_pool(
    siblings: Mapping[str, Iterable[str]], banned: Iterable[str], dedupe: Dedupe = "pool"
) -> tuple[list[str], int]:
    """Siblings of all classes in class order, and how many the ban removed.

    Parameters
    ----------
    siblings : mapping from class to names as they came
    banned : iterable of str
        ID names and synonyms; none may stay, whichever class named it.
    dedupe : {"pool", "per_class"}
        Whether a repeat counts once over all classes, or once in each.
    """
    out = set(map(normalised, banned))
    removed = sum(normalised(name) in out for names in siblings.values() for name in names)
    lists = [without(names, out) for names in siblings.values()]
    pool = [name for names in lists for name in names]
    return (list(dict.fromkeys(pool)) if dedupe == "pool" else pool), removed


def truncated(
    siblings: Mapping[str, Iterable[str]], banned: Iterable[str], k: int, seed: int = 0
) -> dict[str, list[str]]:
    """Of each class's allowed siblings, in order of first appearance, the first ``k`` of one seeded permutation."""
    out = set(map(normalised, banned))
    kept = {}
    for index, (name, names) in enumerate(siblings.items()):
        allowed = without(names, out)
        order = np.random.default_rng([seed, index]).permutation(len(allowed))
        kept[name] = [allowed[i] for i in order[:k]]
    return kept
