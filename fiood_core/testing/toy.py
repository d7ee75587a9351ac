"""Small made-up problems on which every detector must behave: separable, seeded, and quick.

Each problem is a classifier that knows eight classes.  The far set activates what no class uses and hardly what the
classes do, so that logits, norms, directions, residuals and distances all tell it from the in-distribution set.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fiood_core.backbone import ModuleBackbone, from_module
from fiood_core.column import Column, ImageBatch
from fiood_core.features import FeatureSet
from fiood_core.head import Head

CLASSES, DIM = 8, 32
TRAIN_ROWS, TEST_ROWS = 1200, 160
SIDE = 16


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
    head = _nearest_mean_head(means, scale=1.5)
    far = draw(np.tile(_far_profile(own), (TEST_ROWS, 1)))
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
    far = _far_profile(own)

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
    backbone = small_backbone()
    parts = []
    for labels in (train_labels, test_labels, None):
        images = _gratings(rng, labels) if labels is not None else _flat_pictures(rng, TEST_ROWS // 2)
        parts.append(_extracted(backbone, images, labels, columns))
    return Toy("pictures", *parts)


def images(n: int, seed: int = 0) -> Tensor:
    """Gratings (n, 3, 16, 16) of every class in turn."""
    return _gratings(np.random.default_rng(seed), np.arange(n) % CLASSES)


def small_backbone() -> ModuleBackbone:
    """A network of oriented filters, a dropout layer and a linear head, in eval mode; the same on every call."""
    network = _small_network()
    return from_module(network, picture_to_tensor, name="small-network")


def compute_columns(backbone: ModuleBackbone, batch: Tensor, columns: tuple[Column, ...]) -> dict[str, Tensor]:
    """The values of columns for one batch of images, as an extractor computes them."""
    captured: dict[str, dict[str, object]] = {column.key: {} for column in columns}
    with ExitStack() as watches, torch.no_grad():
        for column in columns:
            watches.enter_context(column.watch(backbone, captured[column.key]))
        outputs = backbone.forward(batch)
    return {
        c.key: c.compute(
            ImageBatch(batch, outputs.features, outputs.logits, captured[c.key]), backbone, backbone.head
        ).detach()
        for c in columns
    }


def _extracted(
    backbone: ModuleBackbone, batch: Tensor, labels: np.ndarray | None, columns: tuple[Column, ...]
) -> FeatureSet:
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


def _far_profile(own: np.ndarray) -> np.ndarray:
    profile = np.full(DIM, 0.2)
    profile[2 * CLASSES :] = 1.2
    return profile


def _nearest_mean_head(means: np.ndarray, scale: float) -> Head:
    weight, bias = scale * means, -0.5 * scale * (means**2).sum(axis=1)
    return Head(weight.astype(np.float32), bias.astype(np.float32))


def _with_logits(
    features: np.ndarray, head: Head, labels: np.ndarray | None = None, negatives: Head | None = None
) -> FeatureSet:
    logits = head(torch.from_numpy(features)).numpy()
    return FeatureSet(features=features, labels=labels, logits=logits, head=head, negatives=negatives)


def _unit(rows: np.ndarray) -> np.ndarray:
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _wave(orientation: np.ndarray, phase: np.ndarray, side: int) -> np.ndarray:
    """Gratings (n, side, side) in [-1, 1] with a period of four pixels."""
    y, x = np.mgrid[:side, :side]
    along = np.cos(orientation)[:, None, None] * x + np.sin(orientation)[:, None, None] * y
    wave: np.ndarray = np.cos(math.pi / 2 * along + phase[:, None, None])
    return wave


def _gratings(rng: np.random.Generator, labels: np.ndarray) -> Tensor:
    wave = _wave(labels * math.pi / CLASSES, rng.uniform(0, 2 * math.pi, len(labels)), SIDE)
    noise = 0.15 * rng.standard_normal((len(labels), 3, SIDE, SIDE))
    return torch.from_numpy((wave[:, None] + noise).astype(np.float32))


def _flat_pictures(rng: np.random.Generator, n: int) -> Tensor:
    level = rng.uniform(-1, 1, (n, 3, 1, 1))
    return torch.from_numpy((level + 0.15 * rng.standard_normal((n, 3, SIDE, SIDE))).astype(np.float32))


@cache
def _filters() -> tuple[Tensor, Tensor, Tensor]:
    """Convolution weights (32, 3, 5, 5) of eight orientations and four phases, and a head that fits them."""
    orientation = np.repeat(np.arange(CLASSES), 4) * math.pi / CLASSES
    phase = np.tile(np.arange(4) * math.pi / 2, CLASSES)
    wave = _wave(orientation, phase, 5)
    wave -= wave.mean(axis=(1, 2), keepdims=True)
    filters = torch.from_numpy(np.repeat(wave[:, None] / 36, 3, axis=1).astype(np.float32))
    rng = np.random.default_rng(0)
    labels = np.arange(160) % CLASSES
    with torch.no_grad():
        features = torch.nn.functional.conv2d(_gratings(rng, labels), filters, padding=2).relu().mean(dim=(2, 3))
    means = np.stack([features.numpy()[labels == c].mean(axis=0) for c in range(CLASSES)])
    head = _nearest_mean_head(means, scale=20 / float((means**2).sum(axis=1).mean()))
    assert head.bias is not None
    return filters, head.weight, head.bias


def _small_network() -> nn.Module:
    filters, weight, bias = _filters()
    network = nn.Sequential(
        nn.Conv2d(3, len(filters), 5, padding=2, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(len(filters), CLASSES),
    )
    network.load_state_dict({"0.weight": filters.clone(), "5.weight": weight.clone(), "5.bias": bias.clone()})
    return network.eval()


def picture_to_tensor(picture: Image.Image) -> Tensor:
    """The small network's transform: pixels (3, 16, 16) from -1 to 1."""
    pixels = np.asarray(picture.resize((SIDE, SIDE)), dtype=np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1
