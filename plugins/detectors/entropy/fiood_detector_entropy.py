"""Negative entropy of the posterior."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper


class Entropy(Detector):
    """Minus the entropy of the posterior in nats: 0 for a certain model, -log C for a clueless one.

    A class of posterior 0 adds nothing (0 log 0 = 0).
    """

    reference = Paper(
        "Entropic Out-of-Distribution Detection: Seamless Detection of Unknown Examples",
        2019,
        arxiv="1908.05569",
        code="https://github.com/dlmacedo/entropic-out-of-distribution-detection",
    )
    formula = "Σ_c p_c log p_c, p = softmax(logits)"
    cost = "t·C"
    needs = ("logits",)

    def score_block(self, block: Block) -> Tensor:
        """Expectation of the log posterior."""
        return (block.log_posterior.exp() * block.log_posterior).sum(dim=1)
