"""How often the training set puts each neuron into each state: the statistic behind neuron activation coverage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fiood_core.errors import StatisticError
from fiood_core.features import Block, Precision
from fiood_core.samples import class_subset
from fiood_core.statistics import Statistic, TrainContext

BASE = 1000.0
"""Base of the logarithm that spaces the edges."""

HALF = 16
"""Half the bits of a float32."""


def state_edges(bins: int) -> np.ndarray:
    """Edges (bins,) over states in (0, 1): finest around one half, coarse at both ends.

    ``bins`` edges bound ``bins − 1`` intervals, closed on the left; the last holds nothing and the one before holds 1.
    """
    half = np.log(np.linspace(1, np.sqrt(BASE), bins // 2)) / np.log(BASE)
    edges = np.concatenate([half[:-1], 1 - half[::-1], [1.2]])
    edges[-2] += 0.01
    return edges


def state_intervals(products: Tensor, bins: int, alpha: float) -> Tensor:
    """Interval (n, channels) of each state σ(α · product), found without the sigmoid: the edges are pulled back."""
    edges = _pulled_edges(bins, alpha).to(products.dtype)
    table = _table(bins, alpha) if products.dtype == torch.float32 else None
    if table is None:
        return torch.bucketize(products, edges, right=True)
    leading = (products.flatten().view(torch.int32) >> HALF) & (len(table.first) - 1)
    passed = products.flatten() >= table.edge.index_select(0, leading)
    return table.first.index_select(0, leading).add_(passed).reshape(products.shape)


def _pulled_edges(bins: int, alpha: float) -> Tensor:
    """Edges of the products, float64; 0 and 1 are never passed and left out."""
    inner = state_edges(bins)[1:-2]
    return torch.from_numpy(np.log(inner / (1 - inner)) / alpha)


class _Table(NamedTuple):
    """For each leading half of a float32: the interval of the least number with it, and the edge among them."""

    first: Tensor
    edge: Tensor


@lru_cache(maxsize=8)
def _table(bins: int, alpha: float) -> _Table | None:
    """The table that spares a search, four times slower, or None where some leading half has several edges."""
    edges = _pulled_edges(bins, alpha).float()
    halves = torch.arange(1 << HALF, dtype=torch.int32) << HALF
    ends = torch.stack([halves, halves | (1 << HALF) - 1]).view(torch.float32)
    ends = torch.where(ends.isnan(), halves.view(torch.float32), ends)  # beyond infinity
    low, high = (torch.bucketize(side, edges, right=True) for side in (ends.amin(dim=0), ends.amax(dim=0)))
    numbers = ~ends[0].isnan()
    if bool((high - low)[numbers].max() > 1):
        return None
    return _Table(low, torch.cat([edges, torch.tensor([torch.inf])])[low])


class StateCounts(Statistic):
    """Counts (bins − 1, channels) of training images by neuron and interval.

    Parameters
    ----------
    layer : str
        Named in the key, with all else that changes ``products``.
    products : callable
        From a block to activation times gradient (n, channels) of each neuron.
    needs : tuple of str
    bins : int
    alpha : float
        Steepness of the sigmoid.
    images_per_class : int or None
        At most so many of each class; all where None.
    precision : {"float32", "float64"}
    """

    def __init__(
        self,
        layer: str,
        products: Callable[[Block], Tensor],
        needs: tuple[str, ...],
        *,
        bins: int,
        alpha: float,
        images_per_class: int | None,
        precision: Precision,
    ) -> None:
        self.layer, self.products, self.precision = layer, products, precision
        self.needs = needs if images_per_class is None else (*needs, "labels")
        self.bins, self.alpha, self.images_per_class = bins, alpha, images_per_class

    @property
    def key(self) -> str:
        return (
            f"state-counts[layer={self.layer},bins={self.bins},alpha={self.alpha!r},"
            f"images_per_class={self.images_per_class},{self.precision}]"
        )

    def check(self, context: TrainContext) -> None:
        if self.images_per_class is not None and context.labels is None:
            raise StatisticError("neuron states of so many images per class need labels; set images_per_class=None")
        super().check(context)

    def begin(self, context: TrainContext) -> None:
        self._mask: Tensor | None = None
        if self.images_per_class is not None:
            per_class, labels = self.images_per_class, context.labels
            assert labels is not None
            self._mask = context.once(("class subset", per_class), lambda: class_subset(labels, per_class))
        self._n = context.n if self._mask is None else int(self._mask.sum())
        self._counts: Tensor | None = None

    def update(self, block: Block) -> None:
        if self._mask is not None:
            chosen = self._mask[block.start : block.stop]
            if not bool(chosen.all()):
                block = block.take(chosen.nonzero().flatten())
        if len(block) == 0:
            return
        intervals = state_intervals(self.products(block.at(self.precision)), self.bins, self.alpha)
        channels = intervals.shape[1]
        flat = intervals.mul_(channels).add_(torch.arange(channels))
        self._add(torch.bincount(flat.flatten(), minlength=(self.bins - 1) * channels).reshape(-1, channels))

    def merge(self, other: StateCounts) -> None:
        if other._counts is not None:
            self._add(other._counts)

    def _add(self, counts: Tensor) -> None:
        self._counts = counts if self._counts is None else self._counts + counts

    def result(self) -> Mapping[str, Tensor]:
        if self._counts is None:
            raise StatisticError(f"no training image was counted for layer {self.layer!r}; raise images_per_class")
        return {"counts": self._counts, "n": torch.tensor(self._n)}
