"""What detectors share about the training set, gathered in one streamed pass a round."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fiood_core.errors import StatisticError

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

    from fiood_core.features import Block, FeatureSet
    from fiood_core.head import Head

T = TypeVar("T")

CHUNK_ROWS = 65536
"""Rows that one accumulator sees before it is merged; the unit in which a pass can be sharded."""


@dataclass(frozen=True)
class TrainContext:
    """What is known of the training set before a pass.

    Attributes
    ----------
    n : int
    dim : int or None
    num_classes : int or None
    labels : Tensor (n,) int64, or None
    head : Head or None
    """

    n: int
    dim: int | None
    num_classes: int | None
    labels: Tensor | None
    head: Head | None

    @classmethod
    def of(cls, train: FeatureSet) -> TrainContext:
        """The context of a training set."""
        return cls(train.n, train.dim, train.num_classes, train.labels, train.head)


class Statistic(ABC):
    """One quantity of the training set.

    An instance is a *request*: hashable by :attr:`key`, without state.  The engine works on copies, on which it calls
    ``begin`` once, ``update`` for each block, ``merge`` with the copies of later chunks, and ``result`` at the end.
    """

    cached: bool = True
    """Whether the result is worth keeping beside the features (the k-NN bank, a copy of them, is not)."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Name and every parameter that changes the result; equal keys are computed once for all detectors."""

    def check(self, context: TrainContext) -> None:
        """Raise :class:`StatisticError` or :class:`InputError` where the training set cannot support the statistic."""

    def begin(self, context: TrainContext) -> None:
        """Allocate accumulators."""

    @abstractmethod
    def update(self, block: Block) -> None:
        """Take in the rows ``block.start`` to ``block.stop``, accumulating in float64."""

    @abstractmethod
    def merge(self, other: Self) -> None:
        """Take in what ``other`` gathered from later rows."""

    @abstractmethod
    def result(self) -> Mapping[str, Tensor]:
        """The finished quantity, as plain tensors."""

    def view(self, result: Mapping[str, Tensor]) -> Any:
        """The result as detectors see it in ``stats[self]``; the mapping itself by default."""
        return result


class TrainStatistics:
    """Finished statistics, looked up by request: ``stats[self.moments]``."""

    def __init__(self, context: TrainContext) -> None:
        self.context = context
        self._views: dict[str, Any] = {}
        self._derived: dict[Hashable, Any] = {}

    def add(self, statistic: Statistic, result: Mapping[str, Tensor]) -> None:
        """Keep the result of a statistic."""
        self._views[statistic.key] = statistic.view(result)

    def __contains__(self, statistic: Statistic) -> bool:
        return statistic.key in self._views

    def __getitem__(self, statistic: Statistic) -> Any:
        if statistic.key not in self._views:
            raise StatisticError(f"statistic {statistic.key!r} was not asked for; list it in Detector.statistics")
        return self._views[statistic.key]

    def derive(self, key: Hashable, compute: Callable[[], T]) -> T:
        """``compute()``, run once for equal keys: what several detectors derive from the same statistics."""
        if key not in self._derived:
            self._derived[key] = compute()
        return cast(T, self._derived[key])


def collect(requests: Iterable[Statistic], train: FeatureSet, stats: TrainStatistics) -> None:
    """Gather every requested statistic that ``stats`` lacks, in one streamed pass over ``train``.

    Rows are read in chunks of :data:`CHUNK_ROWS`; each chunk has accumulators of its own, merged in order, so a pass
    split over workers by chunk gives the same bits.
    """
    wanted = list({s.key: s for s in requests if s not in stats}.values())
    for statistic in wanted:
        statistic.check(stats.context)
    if not wanted:
        return
    totals: Sequence[Statistic] = []
    for start in range(0, train.n, CHUNK_ROWS):
        parts = [_begun(statistic, stats.context) for statistic in wanted]
        for block in train.blocks(start, start + CHUNK_ROWS):
            for part in parts:
                part.update(block)
        if not totals:
            totals = parts
            continue
        for total, part in zip(totals, parts, strict=True):
            total.merge(part)
    for statistic, total in zip(wanted, totals, strict=True):
        stats.add(statistic, total.result())


def _begun(statistic: Statistic, context: TrainContext) -> Statistic:
    accumulator = copy.copy(statistic)
    accumulator.begin(context)
    return accumulator
