"""Mahalanobis distance."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.gaussian import TiedGaussian, nearest_class_distance, tied_gaussian
from fiood_core.moments import ClassMeans, Moments
from fiood_core.statistics import TrainStatistics


class Mahalanobis(Detector):
    """Minus the squared Mahalanobis distance to the nearest class mean.

    Means go by true label, the covariance is tied and divided by n, its inverse is a pseudo-inverse: all float64.  The
    paper adds other layers, input noise and a logistic regression; OpenOOD fits covariance and inverse in float32.
    """

    reference = Paper(
        "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks",
        2018,
        arxiv="1807.03888",
        code="https://github.com/pokaxpoka/deep_Mahalanobis_detector",
    )
    formula = "−min_k (x − μ_k)ᵀ Σ⁺ (x − μ_k)"
    cost = "fit n·D² + D³, score t·D·(D + C)"
    needs = ("features",)

    moments = Moments()
    class_means = ClassMeans()

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The class Gaussians, shared with the other members of the family."""
        self.origin, self.whiten, self.means = tied_gaussian(stats, self.moments, self.class_means)

    def score_block(self, block: Block) -> Tensor:
        """Distance after whitening."""
        return -nearest_class_distance(block, TiedGaussian(self.origin, self.whiten, self.means))
