"""Mahalanobis distance of unit features."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.gaussian import TiedGaussian, nearest_class_distance, tied_gaussian
from fiood_core.moments import ClassMeans, Moments
from fiood_core.statistics import TrainStatistics


class MahalanobisPlusPlus(Detector):
    """Minus the squared Mahalanobis distance of the unit features to the nearest class mean.

    Means go by true label, the covariance is tied and divided by n, its inverse is a pseudo-inverse: all float64.  A
    zero row stays zero.
    """

    reference = Paper(
        "Mahalanobis++: Improving OOD Detection via Feature Normalization",
        2025,
        arxiv="2505.18032",
        code="https://github.com/mueller-mp/maha-norm",
    )
    formula = "−min_k (z − μ_k)ᵀ Σ⁺ (z − μ_k), z = x/‖x‖"
    cost = "fit n·D² + D³, score t·D·(D + C)"
    needs = ("features",)

    moments = Moments(unit=True)
    class_means = ClassMeans(unit=True)

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The class Gaussians, shared with the other members of the family."""
        self.origin, self.whiten, self.means = tied_gaussian(stats, self.moments, self.class_means)

    def score_block(self, block: Block) -> Tensor:
        """Distance after whitening."""
        return -nearest_class_distance(block, TiedGaussian(self.origin, self.whiten, self.means), unit=True)
