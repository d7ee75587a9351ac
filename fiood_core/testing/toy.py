"""Small made-up problems on which every detector must behave: separable, seeded, and quick.

Each problem is a classifier that knows eight classes.  The far set activates what no class uses and hardly what the
classes do, so that logits, norms, directions, residuals and distances all tell it from the in-distribution set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fiood_core.backbone import Backbone
from fiood_core.column import Column
from fiood_core.features import FeatureSet
from fiood_core.head import Head
from fiood_core.testing.networks import (
    CLASSES,
    backbone_for,
    compute_columns,
    flat_pictures,
    gratings,
    nearest_mean_head,
)

DIM = 32
TRAIN_ROWS, TEST_ROWS = 1200, 160


@dataclass(frozen=True)
class Toy:
    """A training set and two test sets of one problem; arrays are float32 and writeable."""

    name: str
    train: FeatureSet
    inside: FeatureSet
    far: FeatureSet


def copied(data: FeatureSet, dtype: type = np.float32) -> FeatureSet:
    """A feature set with arrays of its own, in a floating dtype."""

    def copy(rows: object) -> np.ndarray | None:
        return None if rows is None else np.array(rows, dtype=dtype)

    return FeatureSet(
        features=copy(data.features),
        labels=None if data.labels is None else data.labels.numpy().copy(),
        logits=copy(data.logits),
        head=data.head,
        columns={key: copy(value) for key, value in data.columns.items()},
        negatives=data.negatives,
    )


def taken(data: FeatureSet, rows: np.ndarray) -> FeatureSet:
    """Some rows of a feature set, in the given order."""
    return FeatureSet(
        features=None if data.features is None else data.features[rows],
        labels=None if data.labels is None else data.labels.numpy()[rows],
        logits=None if data.logits is None else data.logits[rows],
        head=data.head,
        columns={key: value[rows] for key, value in data.columns.items()},
        negatives=data.negatives,
    )


def features_toy(signed: bool, seed: int = 0) -> Toy:
    """Penultimate features of a made-up classifier: after a ReLU, or signed, rotated and centred."""
    rng = np.random.default_rng(seed)
    own = _class_profiles(rng)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0] if signed else np.eye(DIM)
    centre = own.mean(axis=0) if signed else np.zeros(DIM)

    def draw(means: np.ndarray) -> np.ndarray:
        raw = means + 0.5 * rng.standard_normal(means.shape)
        return ((raw - centre) @ turn if signed else np.maximum(raw, 0)).astype(np.float32)

    train_labels, test_labels = np.arange(TRAIN_ROWS) % CLASSES, np.arange(TEST_ROWS) % CLASSES
    train = draw(own[train_labels])
    means = np.stack([train[train_labels == c].mean(axis=0) for c in range(CLASSES)])
    head = nearest_mean_head(means, scale=1.5)
    far = draw(np.tile(_far_profile(), (TEST_ROWS, 1)))
    return Toy(
        "signed features" if signed else "post-ReLU features",
        _with_logits(train, head, train_labels),
        _with_logits(draw(own[test_labels]), head, test_labels),
        _with_logits(far, head),
    )


def text_toy(seed: int = 0) -> Toy:
    """Unit image embeddings, text embeddings over τ as the head, and negative labels near the far set."""
    rng = np.random.default_rng(seed)
    own, temperature = _class_profiles(rng), 0.05
    far = _far_profile()

    def draw(means: np.ndarray) -> np.ndarray:
        return _unit(means + 0.5 * rng.standard_normal(means.shape)).astype(np.float32)

    train_labels, test_labels = np.arange(TRAIN_ROWS) % CLASSES, np.arange(TEST_ROWS) % CLASSES
    head = Head(_unit(own).astype(np.float32), temperature=temperature)
    around_far = _unit(far + 0.7 * rng.standard_normal((24, DIM)))
    negatives = Head(around_far.astype(np.float32), temperature=temperature)
    sets = (draw(own[train_labels]), draw(own[test_labels]), draw(np.tile(far, (TEST_ROWS, 1))))
    labels = (train_labels, test_labels, None)
    parts = [_with_logits(x, head, y, negatives) for x, y in zip(sets, labels, strict=True)]
    return Toy("text-embedding head", *parts)


def pictures_toy(columns: tuple[Column, ...], seed: int = 0) -> Toy:
    """Features, logits and columns that a small convolutional network gives for made-up gratings."""
    rng = np.random.default_rng(seed)
    train_labels, test_labels = np.arange(TRAIN_ROWS // 4) % CLASSES, np.arange(TEST_ROWS // 2) % CLASSES
    backbone = backbone_for(columns)
    parts = []
    for labels in (train_labels, test_labels, None):
        images = gratings(rng, labels) if labels is not None else flat_pictures(rng, TEST_ROWS // 2)
        parts.append(_extracted(backbone, images, labels, columns))
    return Toy("pictures", *parts)


def _extracted(backbone: Backbone, batch: Tensor, labels: np.ndarray | None, columns: tuple[Column, ...]) -> FeatureSet:
    with torch.no_grad():
        outputs = backbone.forward(batch)
    values = compute_columns(backbone, batch, columns)
    return FeatureSet(
        features=outputs.features.numpy().copy(),
        labels=labels,
        logits=outputs.logits.numpy().copy(),
        head=backbone.head,
        columns={key: value.numpy().copy() for key, value in values.items()},
    )


def _class_profiles(rng: np.random.Generator) -> np.ndarray:
    """Mean activation (8, 32): two dimensions of its own a class, a little of everything else."""
    profiles = np.full((CLASSES, DIM), 0.4)
    for c in range(CLASSES):
        profiles[c, [2 * c, 2 * c + 1]] = rng.uniform(2.5, 3.5, size=2)
    return profiles


def _far_profile() -> np.ndarray:
    """Mean activation (32,) of far rows: a few dimensions that no class uses, and less of everything else."""
    profile = np.full(DIM, 0.1)
    profile[2 * CLASSES : 2 * CLASSES + 4] = 2.0
    return profile


def _with_logits(
    features: np.ndarray, head: Head, labels: np.ndarray | None = None, negatives: Head | None = None
) -> FeatureSet:
    logits = head(torch.from_numpy(features)).numpy()
    return FeatureSet(features=features, labels=labels, logits=logits, head=head, negatives=negatives)


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
