"""Does a vocabulary behave?  Checked with a few names, made-up embeddings and a made-up OOD set as its context."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fiood_core.dataset import Concept, View
from fiood_core.errors import ConformanceError, DataError
from fiood_core.registry import API_WINDOW
from fiood_core.testing.outcome import ConformanceReport, Skipped, Subject, check, require
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext

ID_NAMES = ("goldfish", "great white shark", "hen", "bald eagle", "tabby cat", "teapot", "fire truck", "umbrella")
ID_WNIDS = (
    "n01443537", "n01484850", "n01514859", "n01614925", "n02123045", "n04398044", "n03345487", "n04507155",
)  # fmt: skip
OOD_NAMES = ("red maple leaf", "gondola", "sea anemone", "Teapot", "oil lamp", "gondola")
EMBEDDING = 32


def check_vocabulary(target: Any, parameters: Mapping[str, Any] | None = None) -> ConformanceReport:
    """Run every conformance check on a vocabulary.

    Parameters
    ----------
    target : str, class, factory or instance
    parameters : mapping, optional
        For a name, class or factory.

    Raises
    ------
    ConformanceFailure
        One or more checks failed; the message has a line for each.
    """
    return check("vocabulary", target, parameters, VocabularySubject, CHECKS)


class VocabularySubject(Subject[Vocabulary]):
    """A way to make the vocabulary, and its labels for the kit's context."""

    @cached_property
    def labels(self) -> Labels:
        """Labels of one instance; skips the check where what they are made from is missing."""
        return self.labels_of(self.make())

    def labels_of(self, vocabulary: Vocabulary, context: VocabularyContext | None = None) -> Labels:
        """Labels of an instance."""
        try:
            return vocabulary.labels(context or toy_context())
        except DataError as reason:
            raise Skipped(f"the vocabulary's data is not here: {reason}") from None


def toy_context() -> VocabularyContext:
    """Eight ImageNet classes, an OOD set of six pictures, and embeddings that depend on the text alone."""
    concepts = [Concept(name) for name in OOD_NAMES]
    ood = View("toy", [f"{i}.png" for i in range(len(concepts))], concepts=concepts)
    return VocabularyContext(ID_NAMES, ID_WNIDS, embed=_embed, id_embeddings=_embed(ID_NAMES), ood=ood)


def gives_labels(subject: VocabularySubject) -> None:
    """``labels`` gives a Labels with at least one name."""
    found = subject.labels
    require(isinstance(found, Labels), f"labels gave a {type(found).__name__}; it must give fiood_core.Labels")
    require(len(found) > 0, "the vocabulary is empty")


def names(subject: VocabularySubject) -> None:
    """Names are distinct strings without surrounding or doubled space."""
    found = subject.labels.names
    require(isinstance(found, tuple), f"names are a {type(found).__name__}; they must be a tuple")
    for name in found:
        require(
            isinstance(name, str) and bool(name) and name == " ".join(name.split()),
            f"name {name!r} is empty or has surrounding, doubled or control space; clean it",
        )
    seen: set[str] = set()
    twice = next((n for n in found if n in seen or seen.add(n)), None)  # type: ignore[func-returns-value]
    require(twice is None, f"name {twice!r} occurs twice; keep the first")


def repeatable(subject: VocabularySubject) -> None:
    """Another instance gives the same list in the same order."""
    again = subject.labels_of(subject.make())
    require(
        again.names == subject.labels.names and again.digest == subject.labels.digest,
        "another instance gives other names, or another order; sort sets, and seed generators of your own",
    )


def record(subject: VocabularySubject) -> None:
    """The record tells how the list was made, as plain JSON, overlap with the ID names included."""
    found = subject.labels.record
    require(bool(found), "record is empty; say where the names come from and how many each filter left")
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConformanceError(f"record is no plain JSON: {error}") from error
    known = {name.casefold() for name in ID_NAMES}
    shared = sorted(name for name in subject.labels.names if name.casefold() in known)
    require(
        not shared or any("overlap" in key for key in found),
        f"{len(shared)} names are ID names too ({', '.join(shared[:3])}); leave them out, or count them in "
        "record['overlap']",
    )


def context_unchanged(subject: VocabularySubject) -> None:
    """The context is read, not written."""
    context = toy_context()
    assert context.id_embeddings is not None
    before = context.id_embeddings.clone()
    subject.labels_of(subject.make(), context)
    require(torch.equal(context.id_embeddings, before), "labels changed context.id_embeddings; work on a copy")


def declarations(subject: VocabularySubject) -> None:
    """What ``needs_embeddings`` and ``needs_ood`` leave out is not read; replicates are there."""
    vocabulary = subject.make()
    context = toy_context()
    if not vocabulary.needs_embeddings:
        context = replace(context, embed=None, id_embeddings=None)
    if not vocabulary.needs_ood:
        context = replace(context, ood=None)
    try:
        found = subject.labels_of(vocabulary, context)
    except Skipped:
        raise
    except Exception as error:
        raise ConformanceError(
            f"with only what it declares to need, labels raised {type(error).__name__}: {error}; set needs_embeddings "
            "or needs_ood"
        ) from error
    require(
        found.names == subject.labels.names,
        "labels depend on embeddings or the OOD set without declaring it; set needs_embeddings or needs_ood",
    )
    count = vocabulary.replicates
    require(type(count) is int and count >= 1, f"replicates is {count!r}; it must be an integer from 1")
    last = subject.labels_of(vocabulary, replace(toy_context(), replicate=count - 1))
    require(len(last) > 0, f"replicate {count - 1} is empty")
    low, high = API_WINDOW
    require(low <= vocabulary.api_version <= high, f"api_version {vocabulary.api_version} is outside {low} to {high}")


CHECKS = {
    "gives labels": gives_labels,
    "names": names,
    "repeatable": repeatable,
    "record": record,
    "context unchanged": context_unchanged,
    "declarations": declarations,
}
"""Every check of a vocabulary, in order, by the name that reports show."""


def _embed(texts: Sequence[str]) -> Tensor:
    """Unit vectors (n, 32) that depend on the text alone."""
    rows = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        rows.append(torch.randn(EMBEDDING, generator=torch.Generator().manual_seed(seed)))
    return torch.nn.functional.normalize(torch.stack(rows), dim=1) if rows else torch.empty(0, EMBEDDING)
