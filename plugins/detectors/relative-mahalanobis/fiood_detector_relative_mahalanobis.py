"""Relative Mahalanobis distance."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.gaussian import (
    Background,
    TiedGaussian,
    background,
    background_distance,
    nearest_class_distance,
    tied_gaussian,
)
from fiood_core.moments import ClassMeans, Moments
from fiood_core.statistics import TrainStatistics


class RelativeMahalanobis(Detector):
    """Squared Mahalanobis distance to the mean of all, less that to the nearest class mean.

    The class Gaussians share a covariance; the background is one Gaussian over all training features.  Both covariances
    are divided by n and pseudo-inverted, in float64; OpenOOD does so in float32.
    """

    reference = Paper(
        "A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection",
        2021,
        arxiv="2106.09022",
        code="https://github.com/google/uncertainty-baselines",
    )
    formula = "(x − μ_0)ᵀ Σ_0⁺ (x − μ_0) − min_k (x − μ_k)ᵀ Σ⁺ (x − μ_k)"
    cost = "fit n·D² + D³, score t·D·(D + C)"
    needs = ("features",)

    moments = Moments()
    class_means = ClassMeans()

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Both Gaussians, shared with the other members of the family."""
        self.origin, self.whiten, self.means = tied_gaussian(stats, self.moments, self.class_means)
        self.whiten_all = background(stats, self.moments).whiten

    def score_block(self, block: Block) -> Tensor:
        """Difference of two distances after whitening."""
        nearest = nearest_class_distance(block, TiedGaussian(self.origin, self.whiten, self.means))
        return background_distance(block, Background(self.origin, self.whiten_all)) - nearest
