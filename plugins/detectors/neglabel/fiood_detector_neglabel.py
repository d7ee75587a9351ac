"""Softmax mass of the ID names against negative labels."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import InputError
from fiood_core.head import as_floating


class NegLabel(Detector):
    """Share of the ID names in one softmax over ID names and negative labels, without grouping.

    Computed from the log-odds ``lse(ID logits) - lse(negative logits)``, which never overflow.  The share is the
    published score; in float64 it is exactly 1 from log-odds of about 37 on, which at τ = 0.01 takes a lead of 0.37 in
    cosine, and such images tie.  ``form="log-odds"`` ranks the same and never ties.

    Parameters
    ----------
    form : {"share", "log-odds"}
        The share in (0, 1], or its logit.
    """

    reference = Paper(
        "Negative Label Guided OOD Detection with Pretrained Vision-Language Models",
        2024,
        arxiv="2403.20078",
        code="https://github.com/XueJiang16/NegLabel",
    )
    formula = "Σ_c exp(l_c) / (Σ_c exp(l_c) + Σ_m exp(l_m))"
    cost = "t·D·(C + M)"
    needs = ("features", "logits", "negatives")
    alternatives = {"form": "the official code averages over 100 groups of labels instead; see grouped_scores"}

    form: Literal["share", "log-odds"] = "share"

    def score_block(self, block: Block) -> Tensor:
        """Sigmoid of the log-odds."""
        odds = torch.logsumexp(block.logits.double(), dim=1) - block.negative_log_sum_exp
        if bool(odds.isinf().any()):
            raise InputError("neglabel needs at least one negative label; the vocabulary is empty")
        return odds if self.form == "log-odds" else torch.sigmoid(odds)


def grouped_scores(logits: Any, negative_logits: Any, groups: int, permutation: Any) -> Tensor:
    """The released code's score, for cross-checks: the share against each group of labels, averaged over groups.

    Labels beyond a multiple of ``groups`` are dropped from the end, the rest permuted and cut into equal groups.

    Parameters
    ----------
    logits : array (n, C)
        Cosines of the ID names over τ.
    negative_logits : array (n, M)
    groups : int
        100 in the released configuration.
    permutation : array (M - M mod groups,) of int
        Columns in the order in which they are grouped; the released one comes from a CUDA generator.

    Returns
    -------
    Tensor (n, groups)
        The share in each group; its mean over ``dim=1`` is the score.
    """
    logits, negative_logits = as_floating(logits, "logits"), as_floating(negative_logits, "negative_logits")
    order = torch.as_tensor(permutation)
    if groups < 1:
        raise InputError(f"groups must be at least 1, got {groups}")
    kept = negative_logits.shape[1] // groups * groups
    if sorted(order.tolist()) != list(range(kept)) or kept == 0:
        raise InputError(f"the permutation must order the {kept} labels that {groups} equal groups take")
    grouped = negative_logits[:, order].reshape(len(negative_logits), groups, -1)
    return torch.sigmoid(torch.logsumexp(logits, dim=1, keepdim=True) - torch.logsumexp(grouped, dim=2))
