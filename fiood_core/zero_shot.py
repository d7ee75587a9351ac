"""The text side of a run: ID names as a vision-language model's classes, vocabularies as its negative labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from fiood_core import registry
from fiood_core.errors import InputError
from fiood_core.head import Head
from fiood_core.text import LabelEmbeddings, distinct, zero_shot_head
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.dataset import Dataset, View

IMAGENET_NAMES = "imagenet-names"


def class_names(dataset: Dataset) -> tuple[str, ...]:
    """One name for each class that a dataset's targets count.

    The dataset's own names; else, where its classes have WordNet ids, those of the vocabulary ``imagenet-names``; else
    the concepts of pictures that have a class index too.

    Raises
    ------
    InputError
        A class has no name, or two.
    """
    if dataset.class_names is not None:
        return tuple(dataset.class_names)
    if dataset.class_wnids is not None:
        names: list[str] = registry.create("vocabulary", IMAGENET_NAMES).names(dataset.class_wnids)
        return tuple(names)
    named = _named_in(dataset)
    if not named or sorted(named) != list(range(len(named))):
        raise InputError(
            f"a vision-language model needs a name for each class, and {dataset.info.title} gives {len(named)}; put "
            "its pictures into folders named by WordNet id, or list them with class indices from 0 and concepts"
        )
    return tuple(named[index] for index in range(len(named)))


def _named_in(dataset: Dataset) -> dict[int, str]:
    """Names of the classes whose pictures have a concept beside their one class index."""
    view = dataset.view()
    found: dict[int, str] = {}
    for target, concept in zip(view.targets or (), view.concepts or (), strict=False):
        if len(target) == 1 and concept is not None and found.setdefault(target[0], concept.name) != concept.name:
            raise InputError(
                f"{dataset.info.title} calls class {target[0]} both {found[target[0]]!r} and {concept.name!r}; "
                "use one name"
            )
    return found


def labels_for(
    vocabulary: Vocabulary,
    names: Sequence[str],
    wnids: Sequence[str] | None = None,
    *,
    embeddings: LabelEmbeddings | None = None,
    replicate: int = 0,
    ood: View | None = None,
) -> Labels:
    """A vocabulary's labels for some ID names; what it does not declare to need is not shown to it.

    Raises
    ------
    InputError
        It mines with a model's embeddings, and none are given.
    """
    needs = vocabulary.needs_embeddings
    if needs and embeddings is None:
        raise InputError("this vocabulary mines its labels with a model's text embeddings; name a backbone")
    return vocabulary.labels(
        VocabularyContext(
            id_names=tuple(names),
            id_wnids=wnids,
            embed=embeddings if needs else None,
            id_embeddings=embeddings(distinct(names)[0]) if needs and embeddings is not None else None,
            ood=ood if vocabulary.needs_ood else None,
            replicate=replicate,
        )
    )


@dataclass(frozen=True)
class ZeroShot:
    """One vision-language model with the classes of one ID set.

    Attributes
    ----------
    backbone : VisionLanguageBackbone
        Loaded only if text embeddings are missing.
    dataset : Dataset
        The ID test set, for its classes.
    device : str or torch.device
    progress : bool
        Whether to show a bar while labels are embedded.
    """

    backbone: VisionLanguageBackbone
    dataset: Dataset
    device: torch.device | str = "cpu"
    progress: bool = False

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name a class."""
        return class_names(self.dataset)

    @cached_property
    def embeddings(self) -> LabelEmbeddings:
        """Text embeddings of this model, kept on disk."""
        return LabelEmbeddings(self.backbone, self.device, progress=self.progress)

    @cached_property
    def head(self) -> Head:
        """Distinct ID names as a head; equal names share a row that stands for all their classes."""
        return zero_shot_head(self.names, self.embeddings, self.backbone.temperature)

    def labels(self, vocabulary: Vocabulary, replicate: int = 0, ood: View | None = None) -> Labels:
        """A vocabulary's labels for these classes, this model and an OOD set."""
        wnids = self.dataset.class_wnids
        return labels_for(vocabulary, self.names, wnids, embeddings=self.embeddings, replicate=replicate, ood=ood)

    def negatives(self, labels: Labels) -> Head:
        """Labels as a head over the same features; a repeated label counts again.

        Raises
        ------
        InputError
            There are none.
        """
        if not len(labels):
            raise InputError("the vocabulary is empty for this set; every score against it would be the same")
        return zero_shot_head(labels.names, self.embeddings, self.backbone.temperature, once=False)
