"""Small networks of oriented filters, and pictures of gratings that they tell apart without any training.

A kit for detectors that read columns: one network is a plain classifier, one a vision-language model in the small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from fiood_core.backbone import (
    Backbone,
    Card,
    ModuleBackbone,
    Outputs,
    VisionLanguageBackbone,
    from_module,
    state_digest,
)
from fiood_core.column import Column, ImageBatch
from fiood_core.errors import InputError
from fiood_core.head import Head
from fiood_core.value_branch import ValueBranch

CLASSES = 8
SIDE = 16


def images(n: int, seed: int = 0) -> Tensor:
    """Gratings (n, 3, 16, 16) of every class in turn."""
    return gratings(np.random.default_rng(seed), np.arange(n) % CLASSES)


def small_backbone() -> ModuleBackbone:
    """A network of oriented filters, a dropout layer and a linear head, in eval mode; the same on every call."""
    return from_module(_small_network(), picture_to_tensor, name="small-network")


class SmallVisionLanguage(VisionLanguageBackbone):
    """A tower of one residual block over sixteen patches and a class token, and one text for each class of gratings."""

    card = Card("Small vision-language network")

    def __init__(self) -> None:
        self._tower = _Tower().eval()
        self._embeddings = self._class_embeddings()
        self.set_classes(Head(self._embeddings, temperature=self.temperature))

    def load(self, device: torch.device | str = "cpu") -> None:
        self._tower.to(device).eval()

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return picture_to_tensor

    @property
    def module(self) -> nn.Module:
        return self._tower

    def forward(self, images: Tensor) -> Outputs:
        features = F.normalize(self._tower(images), dim=1)
        return Outputs(features, self.head(features))

    @property
    def weights_digest(self) -> str:
        return state_digest(self._tower)

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """The embedding of the class whose number ends the text, e.g. ``"grating 3"``."""
        return self._embeddings[[int(text.rpartition(" ")[2]) % CLASSES for text in texts]]

    @property
    def text_digest(self) -> str:
        return self.weights_digest

    @property
    def value_branch(self) -> ValueBranch:
        block = self._tower.block
        return ValueBranch(
            attention=block.value, mlp=torch.zeros_like, head=lambda tokens: tokens, prefix=1, block=block
        )

    def _class_embeddings(self) -> Tensor:
        labels = np.arange(160) % CLASSES
        with torch.no_grad():
            features = self._tower(gratings(np.random.default_rng(0), labels))
        return F.normalize(torch.stack([features[labels == c].mean(dim=0) for c in range(CLASSES)]), dim=1)


def backbone_for(columns: tuple[Column, ...]) -> Backbone:
    """The small network that columns can be computed with: the classifier, else the vision-language one."""
    classifier = small_backbone()
    try:
        compute_columns(classifier, images(2), columns)
    except InputError:
        return SmallVisionLanguage()
    return small_backbone()


def compute_columns(backbone: Backbone, batch: Tensor, columns: tuple[Column, ...]) -> dict[str, Tensor]:
    """The values of columns for one batch of images, computed and seeded as the extractor does."""
    captured: dict[str, dict[str, object]] = {column.key: {} for column in columns}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        with ExitStack() as watches, torch.no_grad():
            for column in columns:
                watches.enter_context(column.watch(backbone, captured[column.key]))
            features, logits = backbone.forward(batch)
        seen = {c.key: ImageBatch(batch, features, logits, captured[c.key]) for c in columns}
        with torch.enable_grad():
            return {c.key: c.compute(seen[c.key], backbone, backbone.head).detach() for c in columns}


def nearest_mean_head(means: np.ndarray, scale: float) -> Head:
    """The linear head that is largest for the nearest of the means (C, D)."""
    weight, bias = scale * means, -0.5 * scale * (means**2).sum(axis=1)
    return Head(weight.astype(np.float32), bias.astype(np.float32))


def gratings(rng: np.random.Generator, labels: np.ndarray) -> Tensor:
    """Noisy gratings (n, 3, 16, 16), the class giving the orientation."""
    wave = _wave(labels * math.pi / CLASSES, rng.uniform(0, 2 * math.pi, len(labels)), SIDE)
    noise = 0.15 * rng.standard_normal((len(labels), 3, SIDE, SIDE))
    return torch.from_numpy((wave[:, None] + noise).astype(np.float32))


def flat_pictures(rng: np.random.Generator, n: int) -> Tensor:
    """Pictures (n, 3, 16, 16) of one colour and noise, which no class looks like."""
    level = rng.uniform(-1, 1, (n, 3, 1, 1))
    return torch.from_numpy((level + 0.15 * rng.standard_normal((n, 3, SIDE, SIDE))).astype(np.float32))


def picture_to_tensor(picture: Image.Image) -> Tensor:
    """The small networks' transform: pixels (3, 16, 16) from -1 to 1."""
    pixels = np.asarray(picture.resize((SIDE, SIDE)), dtype=np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1


def _wave(orientation: np.ndarray, phase: np.ndarray, side: int) -> np.ndarray:
    """Gratings (n, side, side) in [-1, 1] with a period of four pixels."""
    y, x = np.mgrid[:side, :side]
    along = np.cos(orientation)[:, None, None] * x + np.sin(orientation)[:, None, None] * y
    wave: np.ndarray = np.cos(math.pi / 2 * along + phase[:, None, None])
    return wave


@cache
def _filters() -> Tensor:
    """Convolution weights (32, 3, 5, 5): eight orientations in four phases."""
    orientation = np.repeat(np.arange(CLASSES), 4) * math.pi / CLASSES
    phase = np.tile(np.arange(4) * math.pi / 2, CLASSES)
    wave = _wave(orientation, phase, 5)
    wave -= wave.mean(axis=(1, 2), keepdims=True)
    return torch.from_numpy(np.repeat(wave[:, None] / 36, 3, axis=1).astype(np.float32))


@cache
def _filter_head() -> Head:
    """A head that fits what the filters give for each class."""
    labels = np.arange(160) % CLASSES
    with torch.no_grad():
        pictures = gratings(np.random.default_rng(0), labels)
        features = F.conv2d(pictures, _filters(), padding=2).relu().mean(dim=(2, 3)).numpy()
    means = np.stack([features[labels == c].mean(axis=0) for c in range(CLASSES)])
    return nearest_mean_head(means, scale=20 / float((means**2).sum(axis=1).mean()))


def _small_network() -> nn.Module:
    filters, head = _filters(), _filter_head()
    assert head.bias is not None
    network = nn.Sequential(
        nn.Conv2d(3, len(filters), 5, padding=2, bias=False),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(len(filters), CLASSES),
    )
    network.load_state_dict({"0.weight": filters.clone(), "5.weight": head.weight.clone(), "5.bias": head.bias.clone()})
    return network.eval()


class _Block(nn.Module):
    """A residual block whose attention looks everywhere alike."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.value.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed: Tensor = self.value(tokens).mean(dim=1, keepdim=True)
        return tokens + mixed


class _Tower(nn.Module):
    """Filter responses of sixteen patches, their mean as the class token, and one block."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(3, len(_filters()), 5, padding=2, bias=False)
        self.filters.load_state_dict({"weight": _filters().clone()})
        self.block = _Block(len(_filters()))

    def forward(self, images: Tensor) -> Tensor:
        patches = F.avg_pool2d(self.filters(images).relu(), SIDE // 4).flatten(2).transpose(1, 2)
        tokens: Tensor = self.block(torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1))
        return tokens[:, 0]
