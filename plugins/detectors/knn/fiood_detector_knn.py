"""Distance to the k-th nearest training image."""

from __future__ import annotations

import faiss
import torch
from torch import Tensor

from fiood_core import Block, Detector, Head, Paper
from fiood_core.errors import ParameterError, StatisticError
from fiood_core.linalg import largest_inner, squared_norms
from fiood_core.samples import UnitBank
from fiood_core.statistics import Statistic, TrainContext, TrainStatistics

GPU_K = 2048
"""Largest k of faiss's GPU search."""

GPU_BYTES = 1 << 30
"""How much of the bank is on the GPU at a time."""


class KNN(Detector):
    """Minus the squared distance to the k-th nearest training image, between unit features.

    faiss searches the whole bank in float32; with ``precision="float64"`` an exact product in float64 does.

    Parameters
    ----------
    k : int
        Which neighbour.
    """

    reference = Paper(
        "Out-of-Distribution Detection with Deep Nearest Neighbors",
        2022,
        arxiv="2204.06507",
        code="https://github.com/deeplearning-wisc/knn-ood",
    )
    formula = "−‖x/‖x‖ − x_(k)/‖x_(k)‖‖², x_(k) the k-th nearest training image"
    cost = "bank n·D, score t·n·D"
    needs = ("features",)
    presets = {"original": {"k": 1000}, "openood": {"k": 50}, "maha-norm": {"k": 1000}}
    alternatives = {"k": "1000 with all of ImageNet in the paper and maha-norm, 10 with 1 % of it; 50 in OpenOOD"}
    toy = {"k": 10}

    k: int = 1000

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The bank, at the score's precision."""
        return (UnitBank(self.precision),)

    def validate(self) -> None:
        """Refuse a neighbour before the first."""
        if self.k < 1:
            raise ParameterError(f"knn needs k >= 1, got {self.k}")

    def check(self, context: TrainContext) -> None:
        """Refuse a bank that has no k-th neighbour."""
        if self.k > context.n:
            raise StatisticError(f"knn(k={self.k}) has a bank of only {context.n} training images; lower k")

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """The unit features of all training images."""
        self.bank = stats[self.statistics[0]]

    def score_block(self, block: Block) -> Tensor:
        """Minus the k-th smallest squared distance."""
        queries = block.unit_features
        if self.precision == "float64":
            inner = largest_inner(2 * queries, self.bank, self.k, squared_norms(self.bank))
            return inner[:, 0] - squared_norms(queries)
        x, bank = queries.contiguous().numpy(), self.bank.numpy()
        if faiss.get_num_gpus() and self.k <= GPU_K:
            gpu = faiss.StandardGpuResources()
            distances, _ = faiss.knn_gpu(gpu, x, bank, self.k, vectorsMemoryLimit=GPU_BYTES)
        else:
            faiss.omp_set_num_threads(torch.get_num_threads())
            distances, _ = faiss.knn(x, bank, self.k)
        return -torch.from_numpy(distances[:, -1])
