"""The benchmark interface: which views are ID and OOD, and which rows a table has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from fiood_core._lookup import make_callable
from fiood_core.dataset import Dataset, View
from fiood_core.errors import DataError, ParameterError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from fiood_core.download import Remote
    from fiood_core.metrics import Metrics
    from fiood_core.reference import PublishedRow

API_VERSION = 1


AGGREGATES = ("pooled", "class-mean", "classes", "subsets")
"""What a set's scores can be reported as: over all its pictures, as the mean over its classes, by class, by subset."""

BY_DEFAULT = ("pooled", "subsets")


@dataclass(frozen=True)
class OODSet:
    """An OOD dataset in a benchmark, with the group it is shown under (``near``, ``far``, …).

    Attributes
    ----------
    dataset : Dataset
    group : str
    aggregate : sequence of str
        Which rows it gives, of :data:`AGGREGATES`.
    """

    dataset: Dataset
    group: str = "ood"
    aggregate: Sequence[str] = BY_DEFAULT

    def __post_init__(self) -> None:
        unknown = [kind for kind in self.aggregate if kind not in AGGREGATES]
        if unknown or not self.aggregate:
            raise ParameterError(f"aggregate names some of {', '.join(AGGREGATES)}; got {list(self.aggregate)}")


def classes(view: View) -> dict[str, list[int]]:
    """Rows of each class of an OOD view, by the concepts' names (or WordNet ids), else by its subsets.

    Pictures without a concept are in no class.
    """
    if view.concepts is None:
        return {name: list(rows) for name, rows in view.subsets.items() if len(rows)}
    found: dict[str, list[int]] = {}
    for row, concept in enumerate(view.concepts):
        if concept is not None:
            found.setdefault(concept.name or concept.wnid or "", []).append(row)
    return found


def aggregate_problem(view: View, aggregate: Sequence[str]) -> str | None:
    """Why a view cannot be reported in a way that is asked for; None if it can."""
    for kind in aggregate:
        if kind in ("class-mean", "classes") and not classes(view):
            return f"{kind!r} is asked for, and its pictures have neither labels nor subsets"
    return None


@dataclass(frozen=True)
class Pool:
    """Scores of one set.

    Attributes
    ----------
    scores : ndarray (n,) float64
        Larger = more in-distribution.
    view : View
        The pictures, in the same order; skipped pictures are already taken out.
    correct : ndarray (n,) of bool, optional
        Of the ID test set, where it is labelled: whether the predicted class is one of the picture's targets.
    """

    scores: np.ndarray
    view: View
    correct: np.ndarray | None = None


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
    details : mapping
        Whatever else belongs to the row (a level's percentile and classes), as JSON can hold it; no metric.
    """

    ood: str
    subset: str
    metrics: Metrics
    aggregation: str = "pooled"
    group: str = "ood"
    details: Mapping[str, Any] = field(default_factory=dict)


class Benchmark(ABC):
    """ID test set, ID training set, and OOD sets.

    Attributes
    ----------
    id_test : Dataset
    id_train : Dataset or None
        Without one, detectors that learn from training data are refused.
    ood : mapping from name to OODSet
    published : Remote, optional
        The file in which a paper published its results; see :meth:`read_published`.
    published_on : str
        What those results were measured on, said beside every comparison.
    """

    api_version: ClassVar[int] = API_VERSION
    published: ClassVar[Remote | None] = None
    published_on: ClassVar[str] = ""
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

    @classmethod
    def read_published(cls, path: Path) -> Iterable[PublishedRow]:
        """The rows of the :attr:`published` file.

        Raises
        ------
        DataError
            The file cannot be read; the message names the line.
        """
        raise DataError(f"{cls.__name__} names no published results")

    def pictures(self, ood: str, subset: str, details: Mapping[str, Any]) -> Sequence[str]:
        """Ids of the OOD pictures behind a row.

        Parameters
        ----------
        ood, subset : str
        details : mapping
            As the row has them.

        Raises
        ------
        DataError
            The set has no subset or class of that name, or its pictures are missing.
        """
        view = self.ood[ood].dataset.view()
        parts = {"all": range(len(view)), **classes(view), **view.subsets}
        if subset not in parts:
            raise DataError(f"{ood!r} has no subset {subset!r}")
        return [view.ids[row] for row in parts[subset]]

    def rows(self, id_scores: Pool, pools: Mapping[str, Pool]) -> Iterator[Row]:
        """The rows of one detector's table.

        A benchmark may choose its OOD sets from the scores.  By default: what each OOD set's ``aggregate`` asks for, of
        classes and subsets those that have pictures.
        """
        for name, pool in pools.items():
            ood = self.ood.get(name)
            group, asked = ("ood", BY_DEFAULT) if ood is None else (ood.group, ood.aggregate)
            for subset, aggregation, metrics in _aggregated(id_scores.scores, pool, asked):
                yield Row(name, subset, metrics, aggregation, group)


def _aggregated(id_scores: np.ndarray, pool: Pool, asked: Sequence[str]) -> Iterator[tuple[str, str, Metrics]]:
    """Subset, aggregation and metrics of each row that is asked for; a class that is a subset too has one row."""
    from fiood_core.metrics import evaluate, evaluate_classes

    if "pooled" in asked:
        yield "all", "pooled", evaluate(id_scores, pool.scores)
    of_classes = (
        {name: pool.scores[rows] for name, rows in classes(pool.view).items()} if set(asked) - {"pooled"} else {}
    )
    if "class-mean" in asked and of_classes:
        yield "all", "class-mean", evaluate_classes(id_scores, list(of_classes.values()))
    parts: dict[str, np.ndarray] = dict(of_classes) if "classes" in asked else {}
    if "subsets" in asked:  # all pictures of one may have been skipped, which the run counts and shows
        parts |= {name: pool.scores[list(rows)] for name, rows in pool.view.subsets.items() if len(rows)}
    for name, scores in parts.items():
        yield name, "pooled", evaluate(id_scores, scores)


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
