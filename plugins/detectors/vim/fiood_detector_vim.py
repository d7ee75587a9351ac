"""ViM: energy less the scaled residual outside the principal subspace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError, StatisticError
from fiood_core.linalg import eigh, least_norm_solution, row_norms
from fiood_core.moments import Mean, Moments
from fiood_core.statistics import Statistic, TrainContext, TrainStatistics


class ViM(Detector):
    """Energy less the norm of the features' residual, scaled to match the logits on the training set.

    The origin is −W⁺b, as in the official code; W⁺ is taken in float64.  The scale needs a second training pass.

    Parameters
    ----------
    dim : int or None
        Dimensions of the principal subspace.  None: 1000 for D ≥ 2048, 512 for D ≥ 768, else D // 2.
    """

    reference = Paper(
        "ViM: Out-Of-Distribution with Virtual-logit Matching",
        2022,
        arxiv="2203.10807",
        code="https://github.com/haoqiwang/vim",
    )
    formula = "log Σ_c exp(l_c) − α ‖Nᵀ(x + W⁺b)‖"
    cost = "fit n·D² + D³ and n·D·(D − dim), score t·D·(D − dim)"
    needs = ("features", "logits", "head")
    presets = {"original": {"dim": None}, "openood": {"dim": 256}, "maha-norm": {"dim": None}}
    alternatives = {
        "dim": "by D in the paper and maha-norm; 256 in OpenOOD, which also tries 1000; NNGuide's code takes 500 about "
        "the training mean, oodeel as many as explain 99 % of the variance"
    }

    dim: int | None = None
    moments = Moments()

    def validate(self) -> None:
        """Refuse an empty subspace."""
        if self.dim is not None and self.dim < 1:
            raise ParameterError(f"vim needs dim >= 1, got {self.dim}")

    def check(self, context: TrainContext) -> None:
        """Refuse a principal subspace that leaves the training set no residual."""
        width, dim = context.dim or 0, self._dimensions(context.dim or 0)
        if dim >= min(width, context.n):
            raise StatisticError(
                f"vim(dim={dim}) leaves no residual in {context.n} training images of {width} features; lower dim"
            )

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Moments, and the mean largest logit."""
        precision = self.precision
        return (
            self.moments,
            Mean(f"max-logit[{precision}]", lambda block: block.at(precision).max_logit.double(), ("logits",)),
        )

    def refine(self, stats: TrainStatistics, head: Head | None) -> Sequence[Statistic]:
        """Mean norm of the residual."""
        origin, null = self._subspace(stats)
        name = f"residual-norm[dim={null.shape[0] - null.shape[1]}]"
        return [Mean(name, lambda block: row_norms((block.features - origin) @ null), ("features", "head"))]

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Origin, residual subspace and scale."""
        (residual,) = self.refine(stats, head)
        self.scale = stats[self.statistics[1]] / stats[residual]
        self.origin, self.null = self._subspace(stats)

    def score_block(self, block: Block) -> Tensor:
        """Energy less the virtual logit; both in float64, for they nearly cancel."""
        virtual: Tensor = self.scale * row_norms((block.at("float64").features - self.origin) @ self.null)
        return block.log_sum_exp - virtual

    def _dimensions(self, width: int) -> int:
        return self.dim or (1000 if width >= 2048 else 512 if width >= 768 else width // 2)

    def _subspace(self, stats: TrainStatistics) -> tuple[Tensor, Tensor]:
        """Origin (D,) and residual directions (D, D − dim), shared by equal detectors."""
        dim = self._dimensions(stats.context.dim or 0)
        return stats.derive(("vim", dim), lambda: self._fit_subspace(stats, dim))

    def _fit_subspace(self, stats: TrainStatistics, dim: int) -> tuple[Tensor, Tensor]:
        origin = _origin(stats.context.head)
        spectrum, vectors = eigh(stats[self.moments].about(origin))
        if spectrum[-dim - 1] <= len(spectrum) * torch.finfo(spectrum.dtype).eps * spectrum[-1]:
            raise StatisticError(f"vim(dim={dim}): the training features have no variance beyond that; lower dim")
        return origin, vectors[:, :-dim].contiguous()


def _origin(head: Head | None) -> Tensor:
    """−W⁺b (D,), the point whose logits come closest to zero."""
    assert head is not None
    weight, bias = head.scaled(torch.float64)
    return least_norm_solution(weight, -bias)
