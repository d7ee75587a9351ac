"""Relative Mahalanobis distance of unit features."""

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


class RelativeMahalanobisPlusPlus(Detector):
    """Relative Mahalanobis score of the unit features.

    Both Gaussians, of the classes and of all, are those of unit features; the official code fits the background on raw
    ones where it finds cached class means.
    """

    reference = Paper(
        "Mahalanobis++: Improving OOD Detection via Feature Normalization",
        2025,
        arxiv="2505.18032",
        code="https://github.com/mueller-mp/maha-norm",
    )
    formula = "(z − μ_0)ᵀ Σ_0⁺ (z − μ_0) − min_k (z − μ_k)ᵀ Σ⁺ (z − μ_k), z = x/‖x‖"
    cost = "fit n·D² + D³, score t·D·(D + C)"
    needs = ("features",)

    moments = Moments(unit=True)
    class_means = ClassMeans(unit=True)

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Both Gaussians, shared with the other members of the family."""
        self.origin, self.whiten, self.means = tied_gaussian(stats, self.moments, self.class_means)
        self.whiten_all = background(stats, self.moments).whiten

    def score_block(self, block: Block) -> Tensor:
        """Difference of two distances after whitening."""
        nearest = nearest_class_distance(block, TiedGaussian(self.origin, self.whiten, self.means), unit=True)
        return background_distance(block, Background(self.origin, self.whiten_all), unit=True) - nearest
