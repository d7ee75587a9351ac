"""Several vocabularies, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fiood_core import registry, spec
from fiood_core.errors import ParameterError
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext, normalised, recorded


class Union(Vocabulary):
    """Labels of each part in turn; of labels equal in normal form the first stays.

    A part with one list gives it to every replicate; parts with several must have the same number.

    Parameters
    ----------
    parts : sequence of str or mapping
        Specifications of vocabularies, e.g. ``["wordnet(m=5000)", "llm-siblings"]``.
    """

    def __init__(self, parts: Sequence[str | Mapping[str, Any]]) -> None:
        if isinstance(parts, str) or len(parts) < 2:
            raise ParameterError(f"parts must list at least two vocabularies, got {parts!r}")
        specs = [spec.parse(part) for part in parts]
        self.titles = [str(part) for part in specs]
        self.parts: list[Vocabulary] = [registry.create("vocabulary", name, **given) for name, given in specs]
        self.needs_embeddings = any(part.needs_embeddings for part in self.parts)
        self.needs_ood = any(part.needs_ood for part in self.parts)

    @property
    def replicates(self) -> int:  # type: ignore[override]
        """As many as the parts have."""
        counts = {part.replicates for part in self.parts} - {1}
        if len(counts) > 1:
            raise ParameterError(f"parts of a union have {sorted(counts)} generations; give them the same number")
        return counts.pop() if counts else 1

    @property
    def content(self) -> str:  # type: ignore[override]
        """What the parts come from."""
        return " ".join(part.content for part in self.parts)

    def labels(self, context: VocabularyContext) -> Labels:
        """The parts' labels, joined."""
        lists = [part.labels(context if part.replicates > 1 else replace(context, replicate=0)) for part in self.parts]
        joined: dict[str, str] = {}
        for name in (name for labels in lists for name in labels.names):
            joined.setdefault(normalised(name), name)
        records = [{"part": title, **labels.record} for title, labels in zip(self.titles, lists, strict=True)]
        return recorded(joined.values(), context, parts=records)
