"""Maximum softmax probability."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper


class MSP(Detector):
    """The largest posterior probability of a class.

    Saturates to exactly 1 where one logit leads by far; those ties are at the in-distribution end and leave FPR@95 be.
    """

    reference = Paper(
        "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
        2017,
        arxiv="1610.02136",
        code="https://github.com/hendrycks/error-detection",
    )
    formula = "max_c softmax(logits)_c"
    cost = "t·C"
    needs = ("logits",)

    def score_block(self, block: Block) -> Tensor:
        """Exp of the largest log posterior."""
        return (block.max_logit - block.log_sum_exp).exp()
