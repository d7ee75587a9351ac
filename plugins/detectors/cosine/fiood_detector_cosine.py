"""Cosine to the nearest class mean."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.moments import ClassMeans
from fiood_core.prototypes import class_directions, cosines
from fiood_core.statistics import TrainStatistics


class Cosine(Detector):
    """The largest cosine between the features and a class mean, that of the raw features by true label."""

    reference = Paper(
        "In or Out? Fixing ImageNet Out-of-Distribution Detection Evaluation",
        2023,
        arxiv="2306.00826",
        code="https://github.com/j-cb/NINCO",
    )
    formula = "max_k cos(x, μ_k)"
    cost = "fit n·D, score t·D·C"
    needs = ("features",)

    class_means = ClassMeans()

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Directions of the class means."""
        self.directions = class_directions(stats, self.class_means, self.dtype)

    def score_block(self, block: Block) -> Tensor:
        """Row maximum of the cosines, shared with mcm."""
        return cosines(block, self.directions).amax(dim=1)
