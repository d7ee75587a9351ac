"""NECO: share of the norm in the principal subspace, times the largest logit."""

from __future__ import annotations

import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError
from fiood_core.linalg import eigh, row_norms
from fiood_core.moments import Moments
from fiood_core.statistics import TrainStatistics


class NECO(Detector):
    """Share of a standardised feature's norm in the principal subspace, times the largest logit.

    As maha-norm has it, for every architecture: the official code leaves scaler or logit out for some models.

    Parameters
    ----------
    variance : float
        Share of the training variance that the subspace explains, in (0, 1].
    """

    reference = Paper(
        "NECO: NEural Collapse Based Out-of-distribution detection",
        2024,
        arxiv="2310.06823",
        code="https://gitlab.com/drti/neco",
    )
    formula = "‖V_dᵀ z‖ / ‖z‖ · max_c l_c, z = (x − mean) / std"
    cost = "fit n·D² + D³, score t·D·d"
    needs = ("features", "logits")
    alternatives = {"variance": "0.9 in maha-norm; the paper picks the dimension by hand for each model"}

    variance: float = 0.9
    moments = Moments()

    def validate(self) -> None:
        """Refuse what is no share."""
        if not 0 < self.variance <= 1:
            raise ParameterError(f"neco needs a variance in (0, 1], got {self.variance}")

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Mean, standard deviation, and the principal directions of the correlation matrix."""
        mean, covariance = stats[self.moments].mean, stats[self.moments].covariance
        std = covariance.diagonal().clamp(min=0).sqrt()
        std[std <= 16 * torch.finfo(std.dtype).eps * mean.abs()] = 1  # a constant activation, up to rounding
        spectrum, vectors = eigh(covariance / torch.outer(std, std))
        explained = spectrum.flip(0).cumsum(0) / spectrum.sum()
        d = min(int((explained < self.variance).sum()) + 1, len(spectrum))
        self.mean, self.std = mean.to(self.dtype), std.to(self.dtype)
        self.directions = vectors[:, -d:].to(self.dtype).contiguous()

    def score_block(self, block: Block) -> Tensor:
        """Ratio of norms, 0 for the mean itself, times the largest logit."""
        z = (block.features - self.mean) / self.std
        norms = row_norms(z)
        ratio = row_norms(z @ self.directions) / norms.masked_fill(norms == 0, 1)
        return ratio * block.max_logit
