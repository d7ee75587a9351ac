"""NAC: how many training images put each neuron into the same state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fiood_core import Block, Column, Detector, Head, Paper
from fiood_core.coverage import StateCounts, state_intervals
from fiood_core.errors import ParameterError
from fiood_core.layers import LayerGradients
from fiood_core.statistics import Statistic, TrainStatistics

PENULTIMATE = "penultimate"
"""The layer whose gradient has a closed form, so that features, logits and head are all it takes."""


class NAC(Detector):
    """Mean over neurons of how well their state is covered by training images, 1 where enough share it.

    A neuron's state is σ(α · activation · gradient of the KL divergence from uniform); O images cover it fully.

    Parameters
    ----------
    bins : int
        Edges of the intervals of states, even.
    alpha : float
        Steepness of the sigmoid; it must match the scale of activation times gradient.
    coverage_fraction : float
        O as a share of the training images that are used.
    images_per_class : int or None
        How many training images of each class are used at most; all where None.
    layers : tuple of (layer, alpha, bins, O)
        Instead of the penultimate layer with the parameters above: several layers, averaged, O as a number of images.
        A name is ``penultimate`` or that of a submodule, with ``:first`` for its first token alone; a submodule is read
        from the column ``layer-gradients[NAME]`` (n, 2, channels): activation and gradient, summed over positions.
    """

    reference = Paper(
        "Neuron Activation Coverage: Rethinking Out-of-distribution Detection and Generalization",
        2024,
        arxiv="2306.02879",
        code="https://github.com/BierOne/ood_coverage",
    )
    formula = "mean_j min(N_j(state of x) / O, 1), state_j = σ(α x_j [(p − 1/C) W]_j)"
    cost = "fit m·D·C for m images used, score t·D·C"
    needs = ("features", "logits", "head")
    presets = {
        "original": {"alpha": 100.0, "bins": 50, "coverage_fraction": 0.01, "images_per_class": 50},
        "original-resnet50": {
            "layers": (
                ("avgpool", 3000.0, 50, 10),
                ("layer3", 300.0, 50, 500),
                ("layer2", 0.01, 500, 50),
                ("layer1", 1.0, 1000, 5000),
            ),
            "images_per_class": 1,
        },
        "original-vit": {
            "layers": (
                ("encoder.ln:first", 100.0, 50, 500),
                ("encoder.layers.encoder_layer_11.ln_2", 1.0, 500, 50),
                ("encoder.layers.encoder_layer_10.ln_2", 10.0, 500, 10),
                ("encoder.layers.encoder_layer_9.ln_2", 1.0, 1000, 10),
            ),
            "images_per_class": 50,
        },
    }
    alternatives = {
        "alpha": "100 for ViT, 3000 for ResNet-50 in the official configurations, tuned on OOD validation data",
        "images_per_class": "50 for ViT, 1 for ResNet-50 in the official configurations",
        "layers": "four layers in the paper (presets original-resnet50 and original-vit, torchvision's names)",
    }

    bins: int = 50
    alpha: float = 100.0
    coverage_fraction: float = 0.01
    images_per_class: int | None = 50
    layers: tuple[tuple[Any, ...], ...] = ()

    def validate(self) -> None:
        """Refuse an odd number of edges and anything that is not positive."""
        for layer, alpha, bins, full in self._layers(self.layers):
            positive = 0 < alpha < float("inf") and (full is None or full >= 1)
            if not isinstance(layer, str) or bins < 4 or bins % 2 or not positive:
                raise ParameterError(
                    f"nac needs alpha > 0, bins even and at least 4, O >= 1, got {alpha}, {bins}, {full}"
                )
        if not 0 < self.coverage_fraction <= 1 or (self.images_per_class is not None and self.images_per_class < 1):
            raise ParameterError(
                f"nac needs coverage_fraction in (0, 1] and images_per_class >= 1 or None, got "
                f"{self.coverage_fraction} and {self.images_per_class}"
            )

    def _layers(self, given: tuple[tuple[Any, ...], ...]) -> Sequence[tuple[str, float, int, int | None]]:
        if not given:
            return [(PENULTIMATE, self.alpha, self.bins, None)]
        try:
            return [(layer, float(alpha), int(bins), int(full)) for layer, alpha, bins, full in given]
        except (TypeError, ValueError) as error:
            raise ParameterError(f"nac: each of layers is (layer, alpha, bins, O), got {given!r}") from error

    @property
    def columns(self) -> Sequence[Column]:
        """Pooled activations and gradients of the inner layers."""
        inner = tuple(layer for layer, *_ in self._layers(self.layers) if layer != PENULTIMATE)
        return [LayerGradients(layer, inner) for layer in inner]

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Counts of states, layer by layer."""
        return tuple(
            StateCounts(
                layer,
                _products(layer),
                ("features", "logits", "head") if layer == PENULTIMATE else ("head",),
                bins=bins,
                alpha=alpha,
                images_per_class=self.images_per_class,
                precision=self.precision,
            )
            for layer, alpha, bins, _ in self._layers(self.layers)
        )

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Counts up to full coverage, as integers so that equal coverage ties exactly."""
        for i, (statistic, layer) in enumerate(zip(self.statistics, self._layers(self.layers), strict=True)):
            counts, n = stats[statistic]["counts"], int(stats[statistic]["n"])
            full = layer[3] or max(1, round(self.coverage_fraction * n))
            setattr(self, f"covered{i}", counts.clamp(max=full))
            setattr(self, f"full{i}", torch.tensor(full))

    def score_block(self, block: Block) -> Tensor:
        """Look every neuron's interval up; mean over neurons, then over layers."""
        scores = []
        for i, (layer, alpha, bins, _) in enumerate(self._layers(self.layers)):
            intervals = state_intervals(_products(layer, self.head)(block), bins, alpha)
            covered, full = getattr(self, f"covered{i}"), int(getattr(self, f"full{i}"))
            scores.append(covered.gather(0, intervals).sum(dim=1).double() / (full * intervals.shape[1]))
        return torch.stack(scores).mean(dim=0)


def _products(layer: str, head: Head | None = None) -> Callable[[Block], Tensor]:
    """Activation times gradient (n, channels) of each neuron of a layer; the block's own head where none is given."""
    if layer == PENULTIMATE:
        return lambda block: _penultimate(block, block.head if head is None else head)
    return lambda block: block.column(LayerGradients(layer).key).prod(dim=1)


def _penultimate(block: Block, head: Head) -> Tensor:
    weight, _ = head.scaled(block.dtype)
    return (block.posterior.to(block.dtype) @ weight - weight.mean(dim=0)).mul_(block.features)
