"""Names to text embeddings to a head: what makes a vision-language model a classifier.

A label is put into templates, each prompt is embedded and normalised, the mean over templates is normalised again.
Without that last step labels would differ in length, which biases every score that compares or sums them.  Embeddings
are kept on disk under the text tower, the templates and the list of labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fiood_core import sealed, settings
from fiood_core.errors import InputError, StoreError
from fiood_core.features import FeatureSet
from fiood_core.head import Head, as_floating
from fiood_core.progress import progress_bar

if TYPE_CHECKING:
    from fiood_core.backbone import VisionLanguageBackbone

TEMPLATES = (
    "{}",
    "a photo of a {}.",
    "a bad photo of a {}.",
    "a photo of many {}.",
    "a photo of the large {}.",
    "a photo of the small {}.",
    "a cropped photo of a {}.",
    "a close-up photo of a {}.",
)
"""The eight templates of Fi-ImageNet-1k (arXiv 2609.01027, appendix G), in order, for ID names and negatives alike."""

TEMPERATURE = 0.01
"""τ of every zero-shot head, whatever scale a model was trained with."""

SHARD_LABELS = 1024
"""Labels of one file of the cache: what an interruption can lose."""

BATCH_TEXTS = 256


def render_prompts(label: str, templates: Sequence[str] = TEMPLATES) -> list[str]:
    """The prompts of a label; only ``{}`` is replaced, so a label may hold braces, and no grammar is mended."""
    return [template.replace("{}", label) for template in templates]


def text_ensemble(embeddings: Any) -> Tensor:
    """Unit embedding (…, D) of a label from its prompts' embeddings (…, T, D): normalise, average, normalise.

    Raises
    ------
    InputError
        Prompts cancel out or have no length.
    """
    units = F.normalize(as_floating(embeddings, "embeddings"), dim=-1)
    mean = units.mean(dim=-2)
    if not bool((torch.linalg.vector_norm(mean, dim=-1) > 0).all()):
        raise InputError("prompt embeddings of a label are zero or cancel out; check how the text tower was loaded")
    return F.normalize(mean, dim=-1)


def posterior(cosines: Any, temperature: float = TEMPERATURE) -> Tensor:
    """Zero-shot posterior (…, C) in float64 of cosines (…, C) between an image and the names."""
    return torch.softmax(as_floating(cosines, "cosines").double() / temperature, dim=-1)


def distinct(names: Sequence[str]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Distinct names in order of first appearance, and for each the classes that bear it.

    A name that occurs twice would halve its posterior and tie its own margin at 0.
    """
    classes: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        classes.setdefault(name, []).append(index)
    return list(classes), [tuple(indices) for indices in classes.values()]


def from_cosines(
    id_cosines: Any,
    negative_cosines: Any = None,
    *,
    temperature: float = TEMPERATURE,
    columns: dict[str, Any] | None = None,
) -> FeatureSet:
    """A feature set with given cosines, for scoring numbers at hand.

    The cosines stand as features before heads that read them off.

    Parameters
    ----------
    id_cosines : array (n, C)
        Between images and ID names.
    negative_cosines : array (n, M), optional
        Between images and negative labels.
    temperature : float
    columns : mapping from column key to array (n,), optional
    """
    given = as_floating(id_cosines, "id_cosines").double()
    negative = given[:, :0] if negative_cosines is None else as_floating(negative_cosines, "negative_cosines").double()
    features = torch.cat([given, negative], dim=1)
    rows = torch.eye(features.shape[1], dtype=torch.float64)
    head, negatives = (Head(part, temperature=temperature) for part in (rows[: given.shape[1]], rows[given.shape[1] :]))
    return FeatureSet(
        features=features,
        head=head,
        negatives=None if negative_cosines is None else negatives,
        columns=columns,
    )


class LabelEmbeddings:
    """Text embeddings of lists of labels by one model, kept on disk.

    Parameters
    ----------
    backbone : VisionLanguageBackbone
        Loaded only if something is missing.
    device : str or torch.device
        Where it is loaded then.
    templates : sequence of str
    root : Path, optional
        By default ``text`` under the cache folder (``$FIOOD_HOME``).
    progress : bool
        Whether to show a bar while labels are embedded.
    """

    def __init__(
        self,
        backbone: VisionLanguageBackbone,
        device: torch.device | str = "cpu",
        *,
        templates: Sequence[str] = TEMPLATES,
        root: Path | None = None,
        progress: bool = False,
    ) -> None:
        self.backbone = backbone
        self.device = device
        self.templates = tuple(templates)
        self.root = root or settings.home() / "text"
        self.progress = progress

    def __call__(self, labels: Sequence[str]) -> Tensor:
        """Unit embeddings (n, D) float32 of labels, in order; what is missing is encoded and kept.

        An interrupted list goes on at its first missing shard, with the same bits.
        """
        if not labels:
            raise InputError("there are no labels to embed; the list is empty")
        shards = []
        with self._bar(labels) as bar:
            for start in range(0, len(labels), SHARD_LABELS):
                part = labels[start : start + SHARD_LABELS]
                shards.append(self._shard(f"{self._folder(labels)}/{start // SHARD_LABELS:05d}", part))
                bar.update(len(part))
        return shards[0] if len(shards) == 1 else torch.cat(shards)

    def _bar(self, labels: Sequence[str]) -> Any:
        hidden = not self.progress or not self.missing(labels)
        title = self.backbone.card.title
        return progress_bar(total=len(labels), desc=f"labels · {title}", unit="label", disable=hidden)

    def missing(self, labels: Sequence[str]) -> int:
        """How many labels of a list are not kept yet; loads nothing."""
        places = range(0, len(labels), SHARD_LABELS)
        return sum(
            len(labels[start : start + SHARD_LABELS])
            for start in places
            if not (self.root / f"{self._folder(labels)}/{start // SHARD_LABELS:05d}.safetensors").exists()
        )

    def _folder(self, labels: Sequence[str]) -> str:
        key = _digest([self.backbone.text_digest, *self.templates])
        return f"{key[:32]}/{_digest(labels)[:32]}"

    def _shard(self, stem: str, labels: Sequence[str]) -> Tensor:
        place = f"{stem}.safetensors"
        if (self.root / place).exists():
            try:
                return sealed.read(self.root, place).tensor("embeddings")
            except StoreError:
                (self.root / place).unlink(missing_ok=True)  # a damaged cache file is made again
        sealed.write(self.root, place, {"embeddings": self._encode(labels)}, {"labels": _digest(labels)})
        return sealed.read(self.root, place).tensor("embeddings")  # the map, so that a long list is in memory once

    def _encode(self, labels: Sequence[str]) -> Tensor:
        self.backbone.load(self.device)
        prompts = [prompt for label in labels for prompt in render_prompts(label, self.templates)]
        with torch.inference_mode():
            rows = [
                self.backbone.encode_text(prompts[start : start + BATCH_TEXTS]).float().cpu()
                for start in range(0, len(prompts), BATCH_TEXTS)
            ]
            embeddings = torch.cat(rows)
            if not bool(torch.isfinite(embeddings).all()):
                raise InputError(
                    f"the text tower gave NaN or infinite values, among {labels[0]!r} and the labels after"
                )
            return text_ensemble(embeddings.reshape(len(labels), len(self.templates), -1))


def zero_shot_head(
    names: Sequence[str], embeddings: LabelEmbeddings, temperature: float = TEMPERATURE, *, once: bool = True
) -> Head:
    """Names as a head over unit image embeddings.

    Parameters
    ----------
    names : sequence of str
        One a class, or negative labels.
    embeddings : LabelEmbeddings
    temperature : float
    once : bool
        Give equal names one row that stands for all their classes; without it a repeated label counts again.
    """
    rows, classes = distinct(names) if once else (list(names), None)
    return Head(embeddings(rows), temperature=temperature, classes=classes if len(rows) < len(names) else None)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
