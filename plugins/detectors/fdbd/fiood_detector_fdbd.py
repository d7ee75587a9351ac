"""fDBD: distance to the decision boundaries."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.linalg import pairwise_distances, row_norms
from fiood_core.moments import mean_feature
from fiood_core.statistics import TrainStatistics


class FDBD(Detector):
    """Sum of the distances to all decision boundaries of the predicted class, over the distance to the training mean.

    The sum, not the mean over classes, as in the official code and maha-norm.  Equal head rows have no boundary.
    """

    reference = Paper(
        "Fast Decision Boundary based Out-of-Distribution Detector",
        2024,
        arxiv="2312.11536",
        code="https://github.com/litianliu/fDBD-OOD",
    )
    formula = "Σ_{c≠ŷ} (l_ŷ − l_c) / ‖w_ŷ − w_c‖ / ‖x − mean(x)‖"
    cost = "fit n·D + C²·D, score t·(C + D)"
    needs = ("features", "logits", "head")

    mean = mean_feature()

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The mean feature, and reciprocal distances between head rows, 0 between equal ones."""
        distances = pairwise_distances(self.head.scaled()[0])
        self.reciprocal = distances.reciprocal().masked_fill(distances == 0, 0).to(self.dtype)
        self.centre = stats[self.mean].to(self.dtype)

    def score_block(self, block: Block) -> Tensor:
        """Margins weighted by the predicted class's reciprocals."""
        margins = block.max_logit[:, None] - block.logits
        total = margins.mul_(self.reciprocal[block.predictions]).sum(dim=1)
        return total / row_norms(block.features - self.centre)
