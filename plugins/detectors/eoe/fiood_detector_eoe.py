"""The posterior less a penalty for envisioned outlier classes."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import ParameterError


class EOE(Detector):
    """Largest ID posterior minus β times the largest outlier posterior, in one softmax over both.

    With β = 0 it is maximum concept matching in the joint softmax, which is not that over the ID names alone; without
    outlier classes the penalty is 0.

    Parameters
    ----------
    beta : float
        Weight of the penalty.
    variant : {"max", "share"}
        What the penalty is taken from: the largest ID posterior, or the ID names' whole share (NegLabel's score).
    """

    reference = Paper(
        "Envisioning Outlier Exposure by Large Language Models for Out-of-Distribution Detection",
        2024,
        arxiv="2406.00806",
        code="https://github.com/tmlr-group/EOE",
    )
    formula = "max_c p_c - β max_m p_m, p = softmax over ID names and outlier classes"
    cost = "t·D·(C + M)"
    needs = ("features", "logits", "negatives")
    alternatives = {
        "variant": "the official code takes 'max'; Fi-ImageNet-1k words its score as NegLabel's share with a penalty",
    }

    beta: float = 0.25
    variant: Literal["max", "share"] = "max"

    def validate(self) -> None:
        if self.beta < 0:
            raise ParameterError(f"EOE: beta must not be negative, got {self.beta}")

    def score_block(self, block: Block) -> Tensor:
        """Both maxima over the joint normaliser."""
        logits = block.logits.double()
        mass = torch.logsumexp(logits, dim=1)
        everything = torch.logaddexp(mass, block.negative_log_sum_exp)
        inside = (mass if self.variant == "share" else logits.amax(dim=1)) - everything
        return inside.exp() - self.beta * (block.negative_max_logit - everything).exp()
