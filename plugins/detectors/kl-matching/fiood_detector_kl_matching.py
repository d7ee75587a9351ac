"""KL-Matching."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.linalg import first_largest
from fiood_core.moments import PosteriorMeans
from fiood_core.statistics import Statistic, TrainStatistics

FLOOR = 1e-300
"""Smallest template probability: what a template excludes costs 690 nats times its probability."""


class KLMatching(Detector):
    """Minus the KL divergence from the posterior to the nearest template.

    Templates are mean posteriors of training images by *predicted* class, as in maha-norm; the paper and OpenOOD take
    them from validation images.  The minimum is over all templates, not only the predicted one's.
    """

    reference = Paper(
        "Scaling Out-of-Distribution Detection for Real-World Settings",
        2022,
        arxiv="1911.11132",
        code="https://github.com/hendrycks/anomaly-seg",
    )
    formula = "−min_k Σ_c p_c log(p_c / q_kc), q_k = mean posterior of training images predicted as k"
    cost = "fit n·C, score t·C²"
    needs = ("logits",)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Mean posteriors by predicted class."""
        return (PosteriorMeans(self.precision),)

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Logarithms of the templates of classes that are predicted at all."""
        found = stats[self.statistics[0]]
        self.log_templates = found["means"][found["counts"] > 0].clamp(min=FLOOR).log()

    def score_block(self, block: Block) -> Tensor:
        """The nearest template by one product; its divergence in float64, for that of a confident image is tiny."""
        p = block.posterior
        nearest = first_largest(p.to(block.dtype) @ self.log_templates.to(block.dtype).T)
        gap: Tensor = self.log_templates[nearest].sub_(block.log_posterior)
        return gap.mul_(p).sum(dim=1)
