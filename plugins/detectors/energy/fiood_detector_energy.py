"""Negative free energy."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper


class Energy(Detector):
    """The log-sum-exp of the logits, the negative free energy at the temperature 1 that all published settings use."""

    reference = Paper(
        "Energy-based Out-of-distribution Detection",
        2020,
        arxiv="2010.03759",
        code="https://github.com/wetliu/energy_ood",
    )
    formula = "log Σ_c exp(l_c)"
    cost = "t·C"
    needs = ("logits",)

    def score_block(self, block: Block) -> Tensor:
        """Log-sum-exp, shifted by the largest logit."""
        return block.log_sum_exp
