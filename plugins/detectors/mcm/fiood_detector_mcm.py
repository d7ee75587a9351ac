"""Maximum concept matching."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError
from fiood_core.moments import ClassMeans
from fiood_core.prototypes import class_directions, cosines
from fiood_core.statistics import Statistic, TrainStatistics


class MCM(Detector):
    """The largest softmax over cosines between the features and the concepts.

    Under a head with a temperature, that of a vision-language model, the concepts are its text embeddings, nothing is
    learned, and by default the score is msp's.  Otherwise they are the class means of the raw features.

    Parameters
    ----------
    temperature : float or None
        What cosines are divided by.  None: the head's, or 1 with class means.
    """

    reference = Paper(
        "Delving into Out-of-Distribution Detection with Vision-Language Representations",
        2022,
        arxiv="2211.13445",
        code="https://github.com/deeplearning-wisc/MCM",
    )
    formula = "max_k softmax_k(cos(x, concept_k) / T)"
    cost = "fit n·D, score t·D·C"
    needs = ("features",)
    alternatives = {
        "temperature": "1 with class means in maha-norm; for CLIP 1 in the paper and OpenOOD, which sweeps it to 10, "
        "and the model's own 0.01 in Fi-ImageNet-1k"
    }

    temperature: float | None = None
    class_means = ClassMeans()

    def validate(self) -> None:
        """Refuse a temperature that is not positive."""
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ParameterError(f"mcm needs a temperature above 0, got {self.temperature}")

    def statistics_for(self, head: Head | None) -> Sequence[Statistic]:
        """No class means where text embeddings are the concepts."""
        return () if _zero_shot(head) else self.statistics

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Directions of the class means."""
        if not _zero_shot(head):
            self.directions = class_directions(stats, self.class_means, self.dtype)

    def score_block(self, block: Block) -> Tensor:
        """Softmax of the largest cosine; the sum in float64, for at T = 1 scores lie close above 1/C."""
        head = block.source.head
        if not hasattr(self, "directions") and head is not None and head.temperature is not None:
            if self.temperature is None:
                return (block.max_logit - block.log_sum_exp).exp()
            return _largest_softmax(block.logits * (head.temperature / self.temperature))
        return _largest_softmax(cosines(block, self.directions) / (self.temperature or 1.0))


def _zero_shot(head: Head | None) -> bool:
    return head is not None and head.temperature is not None


def _largest_softmax(logits: Tensor) -> Tensor:
    apart = (logits - logits.amax(dim=1, keepdim=True)).exp_()
    return 1 / apart.sum(dim=1, dtype=torch.float64)
