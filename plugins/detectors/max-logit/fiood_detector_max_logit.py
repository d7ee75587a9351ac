"""Largest logit."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper


class MaxLogit(Detector):
    """The largest logit."""

    reference = Paper(
        "Scaling Out-of-Distribution Detection for Real-World Settings",
        2022,
        arxiv="1911.11132",
        code="https://github.com/hendrycks/anomaly-seg",
    )
    formula = "max_c l_c"
    cost = "t·C"
    needs = ("logits",)

    def score_block(self, block: Block) -> Tensor:
        """Row maximum."""
        return block.max_logit
