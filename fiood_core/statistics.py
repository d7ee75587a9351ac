"""What detectors share about the training set, gathered in one streamed pass a round.

This is the engine; the statistics themselves are in :mod:`fiood_core.moments`, :mod:`fiood_core.quantile`,
:mod:`fiood_core.samples` and :mod:`fiood_core.coverage`.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from fiood_core.errors import InputError, StatisticError
from fiood_core.parallel import side_by_side

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Self

    from fiood_core.features import Block, FeatureSet
    from fiood_core.head import Head

T = TypeVar("T")

CHUNK_ROWS = 4096
"""Rows that one accumulator sees before it is merged; the unit in which a pass is spread over cores."""


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
    has_logits : bool
        Whether logits are stored, or can be computed from features and head.
    first : Block or None
        The first rows, from which a fixed shift is taken.
    """

    n: int
    dim: int | None
    num_classes: int | None
    labels: Tensor | None
    head: Head | None
    has_logits: bool = False
    first: Block | None = None
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)
    _lock: Any = field(default_factory=RLock, repr=False, compare=False)

    @classmethod
    def of(cls, train: FeatureSet) -> TrainContext:
        """The context of a training set."""
        has_logits = train.logits is not None or (train.head is not None and train.features is not None)
        first = next(train.blocks(), None)
        return cls(train.n, train.dim, train.num_classes, train.labels, train.head, has_logits, first)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """``compute()``, run once for equal keys."""
        with self._lock:
            if key not in self._memo:
                self._memo[key] = compute()
            return cast(T, self._memo[key])

    def require(self, needs: Iterable[str], what: str) -> None:
        """Raise :class:`InputError` where ``features``, ``labels``, ``logits`` or ``head`` are needed and missing."""
        have = {
            "features": self.dim is not None,
            "labels": self.labels is not None,
            "logits": self.has_logits,
            "head": self.head is not None,
        }
        if self.n == 0:
            raise InputError(f"{what} needs training images, and there are none; pass a training set")
        missing = [need for need in needs if not have.get(need, True)]
        if missing:
            advice = ", ".join(f"{name}=..." for name in missing)
            raise InputError(f"{what} needs training {' and '.join(missing)}; pass FeatureSet({advice})")


class StatisticCache(Protocol):
    """Where results are kept between runs: one training view of one backbone."""

    def get(self, key: str) -> Mapping[str, Tensor] | None:
        """The result under a key, or None."""

    def put(self, key: str, result: Mapping[str, Tensor]) -> None:
        """Keep a result."""


class Statistic(ABC):
    """One quantity of the training set.

    An instance is a *request*: hashable by :attr:`key`, without state.  The engine works on copies, on which it calls
    ``begin`` once, ``update`` for each block, ``merge`` with the copies of later chunks, and ``result`` at the end.
    """

    cached: bool = True
    """Whether the result is worth keeping beside the features (the k-NN bank, a copy of them, is not)."""

    needs: tuple[str, ...] = ("features",)
    """What it reads: ``"features"``, ``"labels"``, ``"logits"``, ``"head"``.  A cached result that depends on labels
    or head is kept under their digests too."""

    @property
    @abstractmethod
    def key(self) -> str:
        """Name and every parameter that changes the result; equal keys are computed once for all detectors."""

    def check(self, context: TrainContext) -> None:
        """Raise :class:`StatisticError` or :class:`InputError` where the training set cannot support the statistic."""
        context.require(self.needs, f"statistic {self.key!r}")

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key}>"


class TrainStatistics:
    """Finished statistics, looked up by request: ``stats[self.moments]``."""

    def __init__(self, context: TrainContext) -> None:
        self.context = context
        self._views: dict[str, Any] = {}
        self._failures: dict[str, BaseException] = {}
        self._derived: dict[Hashable, Any] = {}

    def add(self, statistic: Statistic, result: Mapping[str, Tensor]) -> None:
        """Keep the result of a statistic."""
        self._views[statistic.key] = statistic.view(result)

    def fail(self, statistic: Statistic, error: BaseException) -> None:
        """Keep the reason why a statistic has no result; looking it up raises that reason."""
        self._failures[statistic.key] = error

    def __contains__(self, statistic: Statistic) -> bool:
        return statistic.key in self._views

    def __getitem__(self, statistic: Statistic) -> Any:
        if statistic.key in self._failures:
            raise self._failures[statistic.key]
        if statistic.key not in self._views:
            raise StatisticError(f"statistic {statistic.key!r} was not asked for; list it in Detector.statistics")
        return self._views[statistic.key]

    def derive(self, key: Hashable, compute: Callable[[], T]) -> T:
        """``compute()``, run once for equal keys: what several detectors derive from the same statistics."""
        if key not in self._derived:
            self._derived[key] = compute()
        return cast(T, self._derived[key])


def collect(
    requests: Iterable[Statistic], train: FeatureSet, stats: TrainStatistics, cache: StatisticCache | None = None
) -> None:
    """Gather every requested statistic that ``stats`` lacks, in one streamed pass over ``train``.

    Rows are read in chunks of :data:`CHUNK_ROWS`; each chunk has accumulators of its own, merged in order.  A statistic
    that raises is left out of the pass and its reason kept: ``stats[statistic]`` raises it, and the others are
    unharmed.  What the cache raises stops the pass.
    """
    wanted = {s.key: s for s in requests if s not in stats}
    for statistic in list(wanted.values()):
        with _Failing(stats, wanted, statistic):
            statistic.check(stats.context)
    for key, statistic in list(wanted.items()):
        kept = cache.get(cache_key(statistic, stats.context)) if cache is not None and statistic.cached else None
        if kept is not None:
            stats.add(wanted.pop(key), kept)
    totals = _stream(wanted, train, stats)
    for key, statistic in list(wanted.items()):
        with _Failing(stats, wanted, statistic):
            result = totals.pop(key).result()
            stats.add(statistic, result)
        if cache is not None and statistic.cached and key in wanted:
            cache.put(cache_key(statistic, stats.context), result)


def cache_key(statistic: Statistic, context: TrainContext) -> str:
    """What a result is kept under: the statistic's key, with digests of the labels and head that it depends on."""
    parts = [statistic.key]
    if "labels" in statistic.needs and context.labels is not None:
        labels = context.labels
        digest = context.once("labels digest", lambda: hashlib.sha256(labels.numpy().tobytes()).hexdigest())
        parts.append(f"labels={digest}")
    if {"logits", "head"} & set(statistic.needs) and context.head is not None:
        head = context.head
        parts.append(f"head={context.once('head digest', lambda: head.digest)}")
    return "|".join(parts)


def _stream(wanted: dict[str, Statistic], train: FeatureSet, stats: TrainStatistics) -> dict[str, Statistic]:
    totals: dict[str, Statistic] = {}
    if not wanted:
        return totals
    gather = partial(_gather, wanted=wanted, train=train, context=stats.context)
    with closing(side_by_side(gather, range(0, train.n, CHUNK_ROWS))) as chunks:
        for parts, failures in chunks:
            for key, statistic in list(wanted.items()):
                with _Failing(stats, wanted, statistic):
                    if key in failures:
                        raise failures[key]
                    if key in totals:
                        totals[key].merge(parts[key])
                    else:
                        totals[key] = parts[key]
            if not wanted:
                break
    return totals


def _gather(
    start: int, wanted: Mapping[str, Statistic], train: FeatureSet, context: TrainContext
) -> tuple[dict[str, Statistic], dict[str, BaseException]]:
    """What each statistic gathers from one chunk, and why some cannot."""
    parts: dict[str, Statistic] = {}
    failures: dict[str, BaseException] = {}

    def attempt(key: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (Exception, SystemExit) as error:
            failures[key] = error

    for key, statistic in list(wanted.items()):
        parts[key] = copy.copy(statistic)
        attempt(key, partial(parts[key].begin, context))
    for block in train.blocks(start, start + CHUNK_ROWS):
        for key, part in parts.items():
            if key not in failures:
                attempt(key, partial(part.update, block))
    return parts, failures


class _Failing:
    """Keeps an exception as the reason why a statistic failed, and takes it out of those that are wanted."""

    def __init__(self, stats: TrainStatistics, wanted: dict[str, Statistic], statistic: Statistic) -> None:
        self.stats, self.wanted, self.statistic = stats, wanted, statistic

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, (Exception, SystemExit)):
            return False
        self.stats.fail(self.statistic, error)
        self.wanted.pop(self.statistic.key, None)
        return True
