"""Generalised entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import ParameterError
from fiood_core.linalg import largest


class GEN(Detector):
    """Minus the generalised entropy of the ``m`` largest posteriors.

    A tenth root makes tiny probabilities matter, so powers are taken of float64 logarithms; 1 − p of the leading class
    is the sum of the others, which the direct form loses beyond a log-odds of 37.

    Parameters
    ----------
    gamma : float
        Exponent, above 0.
    m : int
        How many classes; more than there are means all.
    """

    reference = Paper(
        "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection",
        2023,
        url="https://openaccess.thecvf.com/content/CVPR2023/html/"
        "Liu_GEN_Pushing_the_Limits_of_Softmax-Based_Out-of-Distribution_Detection_CVPR_2023_paper.html",
        code="https://github.com/XixiLiu95/GEN",
    )
    formula = "−Σ_{c in top m} p_c^γ (1 − p_c)^γ, p = softmax(l)"
    cost = "t·C"
    needs = ("logits",)
    alternatives = {
        "gamma": "0.1 in the paper, OpenOOD and maha-norm; OpenOOD sweeps 0.01 to 10 on OOD validation data",
        "m": "100 in the paper, OpenOOD and maha-norm; OpenOOD sweeps 10 to 1000 on OOD validation data",
    }

    gamma: float = 0.1
    m: int = 100

    def validate(self) -> None:
        """Refuse a power that is not positive, and no classes at all."""
        if not 0 < self.gamma < float("inf") or self.m < 1:
            raise ParameterError(f"gen needs gamma > 0 and m >= 1, got gamma={self.gamma}, m={self.m}")

    def score_block(self, block: Block) -> Tensor:
        """Sum over the top classes; where p leads, 1 − p is taken from the others."""
        top = largest(block.logits, self.m)
        log_p = top - block.log_sum_exp[:, None]
        log_rest = torch.where(top == block.max_logit[:, None], block.log_rest[:, None], torch.log1p(-log_p.exp()))
        return -(self.gamma * (log_p + log_rest)).exp().sum(dim=1)
