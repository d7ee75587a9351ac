"""The benchmark interface: which views are ID and OOD, and which rows a table has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from fiood_core._lookup import make_callable
from fiood_core.dataset import Dataset, View

if TYPE_CHECKING:
    import numpy as np

    from fiood_core.metrics import Metrics

API_VERSION = 1


@dataclass(frozen=True)
class OODSet:
    """An OOD dataset in a benchmark, with the group it is shown under (``near``, ``far``, …)."""

    dataset: Dataset
    group: str = "ood"


@dataclass(frozen=True)
class Pool:
    """Scores of one set.

    Attributes
    ----------
    scores : ndarray (n,) float64
        Larger = more in-distribution.
    view : View
        The pictures, in the same order; skipped pictures are already taken out.
    """

    scores: np.ndarray
    view: View


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes
    ----------
    ood : str
        Name of the OOD set.
    subset : str
        ``"all"``, or the name of a subset, class or severity level.
    aggregation : str
        ``"pooled"`` over pictures, or ``"class-mean"`` over the metrics of classes.
    metrics : Metrics
    group : str
    """

    ood: str
    subset: str
    metrics: Metrics
    aggregation: str = "pooled"
    group: str = "ood"


class Benchmark(ABC):
    """ID test set, ID training set, and OOD sets.

    Attributes
    ----------
    id_test : Dataset
    id_train : Dataset or None
        Without one, detectors that learn from training data are refused.
    ood : mapping from name to OODSet
    """

    api_version: ClassVar[int] = API_VERSION
    protocol: ClassVar[str] = "fpr@95:percentile-linear;auroc:ties-half;aupr:average-precision"

    @property
    @abstractmethod
    def id_test(self) -> Dataset: ...

    @property
    @abstractmethod
    def id_train(self) -> Dataset | None: ...

    @property
    @abstractmethod
    def ood(self) -> Mapping[str, OODSet]: ...

    def rows(self, id_scores: Pool, pools: Mapping[str, Pool]) -> Iterator[Row]:
        """The rows of one detector's table.

        A benchmark may choose its OOD sets from the scores.  By default: each OOD set pooled, and each of its subsets
        that has pictures.
        """
        from fiood_core.metrics import evaluate

        for name, pool in pools.items():
            group = self.ood[name].group if name in self.ood else "ood"
            yield Row(name, "all", evaluate(id_scores.scores, pool.scores), group=group)
            for subset, rows in pool.view.subsets.items():
                if len(rows):  # all its pictures may have been skipped, which the run counts and shows
                    yield Row(name, subset, evaluate(id_scores.scores, pool.scores[list(rows)]), group=group)


@dataclass
class SimpleBenchmark(Benchmark):
    """A benchmark given by its parts: what ``fiood-run --id … --train … --ood …`` makes."""

    test: Dataset = field(kw_only=True)
    train: Dataset | None = field(default=None, kw_only=True)
    sets: Mapping[str, OODSet] = field(kw_only=True)

    @property
    def id_test(self) -> Dataset:
        return self.test

    @property
    def id_train(self) -> Dataset | None:
        return self.train

    @property
    def ood(self) -> Mapping[str, OODSet]:
        return self.sets


__all__: Sequence[str] = ["Benchmark", "OODSet", "Pool", "Row", "SimpleBenchmark", "View"]


make_callable(__name__)
