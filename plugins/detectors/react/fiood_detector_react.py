"""ReAct: energy after clipping activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError
from fiood_core.linalg import log_sum_exp
from fiood_core.quantile import ActivationDigits, missing_digits, quantile
from fiood_core.statistics import Statistic, TrainStatistics


class ReAct(Detector):
    """Energy of the logits after activations are clipped from above at a quantile of all training activations.

    Parameters
    ----------
    quantile : float
        In [0, 1], over the activations of all training images pooled, by linear interpolation.
    """

    reference = Paper(
        "ReAct: Out-of-distribution Detection With Rectified Activations",
        2021,
        arxiv="2111.12797",
        code="https://github.com/deeplearning-wisc/react",
    )
    formula = "log Σ_c exp(W min(x, κ) + b)_c, κ = quantile of all training activations"
    cost = "fit n·D twice, score t·D·C"
    needs = ("features", "head")
    presets = {"original": {"quantile": 0.9}, "openood": {"quantile": 0.9}, "maha-norm": {"quantile": 0.99}}
    alternatives = {
        "quantile": "0.99 of the training set in maha-norm and ViM's benchmark; 0.9 of ID validation images in the "
        "paper, and in OpenOOD, which also sweeps 0.85 to 0.99 on OOD validation data"
    }

    quantile: float = 0.99
    activations = ActivationDigits()

    def validate(self) -> None:
        """Refuse what is no quantile."""
        if not 0 <= self.quantile <= 1:
            raise ParameterError(f"react needs a quantile in [0, 1], got {self.quantile}")

    def refine(self, stats: TrainStatistics, head: Head | None) -> Sequence[Statistic]:
        """Lower digits of the order statistics."""
        return missing_digits(stats, self.quantile)

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The threshold."""
        self.threshold = torch.tensor(quantile(stats, self.quantile), dtype=torch.float64)

    def score_block(self, block: Block) -> Tensor:
        """Energy of the clipped features."""
        return log_sum_exp(self.head(block.features.clamp(max=float(self.threshold))))
