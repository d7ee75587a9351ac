"""DICE: energy with a sparsified head."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError
from fiood_core.linalg import log_sum_exp
from fiood_core.moments import mean_feature
from fiood_core.statistics import TrainStatistics


class DICE(Detector):
    """Energy of the logits with only the weights that contribute most on training images.

    The percentile is over all classes at once, so a class may lose every weight; the bias is kept whole.

    Parameters
    ----------
    percentile : float
        Share of weights, in percent, that is set to 0.
    """

    reference = Paper(
        "DICE: Leveraging Sparsification for Out-of-Distribution Detection",
        2022,
        arxiv="2111.09805",
        code="https://github.com/deeplearning-wisc/dice",
    )
    formula = "log Σ_c exp((W∘M) x + b)_c, M_cd = 1 where W_cd · mean(x)_d exceeds its percentile"
    cost = "fit n·D, score t·D·C"
    needs = ("features", "head")
    alternatives = {
        "percentile": "90 in the official class and OpenOOD; 70 in the official ImageNet run, 10 or 15 with ReAct"
    }

    percentile: float = 90.0
    mean = mean_feature()

    def validate(self) -> None:
        """Refuse what is no percentile."""
        if not 0 <= self.percentile <= 100:
            raise ParameterError(f"dice needs a percentile in [0, 100], got {self.percentile}")

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The weights that are left, and the bias."""
        weight, bias = self.head.scaled(torch.float64)
        contribution = weight * stats[self.mean]
        kept = contribution > float(np.percentile(contribution.numpy(), self.percentile))
        self.weight, self.bias = (weight * kept).to(self.dtype), bias.to(self.dtype)

    def score_block(self, block: Block) -> Tensor:
        """Energy under the sparse head."""
        return log_sum_exp(torch.addmm(self.bias, block.features, self.weight.T))
