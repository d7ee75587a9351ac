"""Lead of the likeliest class over the second."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import InputError


class Margin(Detector):
    """Difference between the largest and the second-largest posterior, or logit.

    Two rows of the head with the same weights always tie at 0; score distinct names once (:class:`fiood_core.Head`).

    Parameters
    ----------
    space : {"probability", "logit"}
        What is compared.
    """

    reference = Paper(
        "Active Hidden Markov Models for Information Extraction",
        2001,
        url="https://doi.org/10.1007/3-540-44816-0_31",
    )
    formula = "p_(1) - p_(2), p = softmax(logits)"
    cost = "t·C"
    needs = ("logits",)
    alternatives = {"space": "'logit' compares the logits; papers on zero-shot detection do not say which they mean"}

    space: Literal["probability", "logit"] = "probability"

    def score_block(self, block: Block) -> Tensor:
        """The two largest, subtracted."""
        if block.logits.shape[1] < 2:
            raise InputError("margin needs at least two classes; the logits have one column")
        if self.space == "logit":
            first, second = block.logits.topk(2, dim=1).values.double().unbind(dim=1)
            return first - second
        first, second = block.log_posterior.topk(2, dim=1).values.unbind(dim=1)
        return -first.exp() * torch.expm1(second - first)
