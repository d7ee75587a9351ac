"""Means and second moments of the training features, accumulated in float64 about a fixed shift."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fiood_core.errors import StatisticError
from fiood_core.features import Block, Precision
from fiood_core.linalg import add_gram, symmetric
from fiood_core.statistics import Statistic, TrainContext


class Mean(Statistic):
    """Mean over the training rows of anything that has one value, or one vector, per row.

    Parameters
    ----------
    name : str
        The key; it must name whatever changes the values.
    of : callable
        From a float64 block to float64 values (n,) or (n, k).
    needs : tuple of str
        What ``of`` reads.
    """

    def __init__(
        self, name: str, of: Callable[[Block], Tensor], needs: tuple[str, ...] = ("features",), *, cached: bool = True
    ) -> None:
        self._name, self._of, self.needs, self.cached = name, of, needs, cached

    @property
    def key(self) -> str:
        return f"mean[{self._name}]"

    def begin(self, context: TrainContext) -> None:
        self._sum: Any = 0.0
        self._n = context.n

    def update(self, block: Block) -> None:
        self._sum = self._sum + self._of(block.at("float64")).sum(dim=0)

    def merge(self, other: Mean) -> None:
        self._sum = self._sum + other._sum

    def result(self) -> Mapping[str, Tensor]:
        return {"mean": self._sum / self._n}

    def view(self, result: Mapping[str, Tensor]) -> Tensor:
        return result["mean"]


def mean_feature() -> Mean:
    """The request for the mean feature (D,), float64."""
    return Mean("features", lambda block: block.features)


class _Shifted(Statistic):
    """What moments and class means share: raw or unit features, about the mean of the first block."""

    def __init__(self, unit: bool = False) -> None:
        self.unit = unit

    def begin(self, context: TrainContext) -> None:
        self._shift = context.once(("shift", self.unit), lambda: self._features(_first(context)).mean(dim=0))

    def _features(self, block: Block) -> Tensor:
        wide = block.at("float64")
        return wide.unit_features if self.unit else wide.features

    def _shifted(self, block: Block) -> Tensor:
        wide = block.at("float64")
        return wide.once(("shifted", self.unit), lambda: self._features(block) - self._shift)


@dataclass(frozen=True)
class MomentsView:
    """Mean and covariance of all training features.

    Attributes
    ----------
    n : int
    shift : Tensor (D,)
        The fixed point that sums were taken about.
    offset : Tensor (D,)
        Mean minus shift.
    second : Tensor (D, D)
        Mean of the outer products of features minus shift.
    """

    n: int
    shift: Tensor
    offset: Tensor
    second: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean feature (D,)."""
        return self.shift + self.offset

    @property
    def covariance(self) -> Tensor:
        """Covariance (D, D) about the mean, divided by n."""
        return self.second - torch.outer(self.offset, self.offset)

    def about(self, origin: Tensor) -> Tensor:
        """Mean outer product (D, D) of features minus ``origin`` (D,)."""
        away = self.mean - origin
        return self.covariance + torch.outer(away, away)


class Moments(_Shifted):
    """First and second moments of the features.

    Parameters
    ----------
    unit : bool
        Of the features over their norm.
    """

    @property
    def key(self) -> str:
        return f"moments[unit={self.unit}]"

    def begin(self, context: TrainContext) -> None:
        super().begin(context)
        dim = len(self._shift)
        self._n = context.n
        self._sum = torch.zeros(dim, dtype=torch.float64)
        self._products = torch.zeros(dim, dim, dtype=torch.float64)

    def update(self, block: Block) -> None:
        x = self._shifted(block)
        self._sum += x.sum(dim=0)
        add_gram(self._products, x)

    def merge(self, other: Moments) -> None:
        self._sum += other._sum
        self._products += other._products

    def result(self) -> Mapping[str, Tensor]:
        n = self._n
        return {
            "n": torch.tensor(n),
            "shift": self._shift,
            "offset": self._sum / n,
            "second": symmetric(self._products) / n,
        }

    def view(self, result: Mapping[str, Tensor]) -> MomentsView:
        return MomentsView(int(result["n"]), result["shift"], result["offset"], result["second"])


@dataclass(frozen=True)
class ClassMeansView:
    """Mean feature of each class that has training images.

    Attributes
    ----------
    classes : Tensor (K,)
        The classes that are present; the others have no mean and take no part.
    counts : Tensor (K,)
    shift : Tensor (D,)
    offsets : Tensor (K, D)
        Means minus shift.
    """

    classes: Tensor
    counts: Tensor
    shift: Tensor
    offsets: Tensor

    @property
    def means(self) -> Tensor:
        """Class means (K, D)."""
        return self.shift + self.offsets


class ClassMeans(_Shifted):
    """Mean of the features of each class, by true label.

    Parameters
    ----------
    unit : bool
        Of the features over their norm.
    """

    needs = ("features", "labels")

    @property
    def key(self) -> str:
        return f"class-means[unit={self.unit}]"

    def check(self, context: TrainContext) -> None:
        super().check(context)
        assert context.labels is not None
        refuse_few_per_class(torch.bincount(context.labels), "labels", "class means")

    def begin(self, context: TrainContext) -> None:
        super().begin(context)
        assert context.labels is not None
        classes = int(context.once("largest label", lambda: context.labels.max())) + 1  # type: ignore[union-attr]
        self._counts = torch.zeros(classes, dtype=torch.int64)
        self._sums = torch.zeros(classes, len(self._shift), dtype=torch.float64)

    def update(self, block: Block) -> None:
        self._counts += torch.bincount(block.labels, minlength=len(self._counts))
        self._sums.index_add_(0, block.labels, self._shifted(block))

    def merge(self, other: ClassMeans) -> None:
        self._counts += other._counts
        self._sums += other._sums

    def result(self) -> Mapping[str, Tensor]:
        present = self._counts.nonzero().flatten()
        counts = self._counts[present]
        return {
            "classes": present,
            "counts": counts,
            "shift": self._shift,
            "offsets": self._sums[present] / counts[:, None],
        }

    def view(self, result: Mapping[str, Tensor]) -> ClassMeansView:
        return ClassMeansView(result["classes"], result["counts"], result["shift"], result["offsets"])


class PosteriorMeans(Statistic):
    """Mean posterior of the training images that are predicted to be of each class.

    The result has ``counts`` (C,) and ``means`` (C, C), whose rows for classes that are never predicted are zero.

    Parameters
    ----------
    precision : {"float32", "float64"}
        Of the head's product where logits are not stored; posteriors and sums are float64 either way.
    """

    needs = ("logits",)

    def __init__(self, precision: Precision) -> None:
        self.precision: Precision = precision

    @property
    def key(self) -> str:
        return f"posterior-means[{self.precision}]"

    def begin(self, context: TrainContext) -> None:
        classes = context.num_classes or 0
        self._counts = torch.zeros(classes, dtype=torch.int64)
        self._sums = torch.zeros(classes, classes, dtype=torch.float64)

    def update(self, block: Block) -> None:
        rows = block.at(self.precision)
        self._counts += torch.bincount(rows.predictions, minlength=len(self._counts))
        self._sums.index_add_(0, rows.predictions, rows.posterior)

    def merge(self, other: PosteriorMeans) -> None:
        self._counts += other._counts
        self._sums += other._sums

    def result(self) -> Mapping[str, Tensor]:
        refuse_few_per_class(self._counts, "predictions", "mean posteriors")
        return {"counts": self._counts, "means": self._sums / self._counts.clamp(min=1)[:, None]}


def refuse_few_per_class(counts: Tensor, by: str, what: str) -> None:
    """Raise :class:`StatisticError` where the median class that is present has fewer than two training images."""
    present = counts[counts > 0].double()
    if len(present) == 0 or float(present.quantile(0.5)) < 2:
        raise StatisticError(
            f"{what} need at least two training images a class (median over the classes present), but the training "
            f"set has {int(counts.sum())} images in {len(present)} classes by {by}; give a larger training set"
        )


def within_covariance(moments: MomentsView, classes: ClassMeansView) -> tuple[Tensor, float]:
    """Tied covariance (D, D) about the class means, divided by n, and the rounding error of the subtraction."""
    away = classes.offsets - moments.offset
    between = (away * (classes.counts.double() / moments.n)[:, None]).T @ away
    total = moments.covariance
    noise = 16 * torch.finfo(total.dtype).eps * float(torch.linalg.matrix_norm(total))
    return total - (between + between.T) / 2, noise


def _first(context: TrainContext) -> Block:
    assert context.first is not None
    return context.first
