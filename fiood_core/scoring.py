"""One fit pass a round, and one scoring pass, for any number of detectors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from fiood_core.detector import Detector
from fiood_core.errors import ParameterError, ResultError, StatisticError
from fiood_core.features import Block, FeatureSet
from fiood_core.parallel import side_by_side
from fiood_core.spec import parse
from fiood_core.statistics import Statistic, StatisticCache, TrainContext, TrainStatistics, collect

MAX_ROUNDS = 8
"""Passes over the training set after which a detector that still asks for more is refused."""

OnError = Callable[[Any, BaseException], None]
K = TypeVar("K", bound=Hashable)


def fit_all(
    detectors: Sequence[Detector] | Mapping[Any, Detector],
    train: FeatureSet,
    cache: StatisticCache | None = None,
    on_error: OnError | None = None,
) -> None:
    """Fit detectors together: equal statistics are gathered once, in one streamed pass a round.

    Parameters
    ----------
    detectors : sequence or mapping
    train : FeatureSet
    cache : StatisticCache, optional
        Where statistics of this training set are kept between runs.
    on_error : callable, optional
        Called with a detector (or its key, in a mapping) and the exception where one fails; the others go on.
        Without it the first exception is raised.
    """
    living = dict(detectors) if isinstance(detectors, Mapping) else {d: d for d in detectors}
    stats = TrainStatistics(TrainContext.of(train))
    wanted: dict[Any, Sequence[Statistic]] = {}

    def first_round(label: Any, detector: Detector) -> None:
        detector.forget()
        detector.check(stats.context)
        wanted[label] = detector.statistics_for(train.head)
        for statistic in wanted[label]:
            statistic.check(stats.context)

    def further_round(label: Any, detector: Detector) -> None:
        for statistic in wanted[label]:
            stats[statistic]  # raises the reason why it failed
        wanted[label] = [s for s in detector.refine(stats, train.head) if s not in stats]

    with torch.no_grad():
        _each(living, on_error, first_round)
        for _ in range(MAX_ROUNDS):
            collect([s for label in living for s in wanted[label]], train, stats, cache)
            _each(living, on_error, further_round)
            if not any(wanted[label] for label in living):
                break
        _each(living, on_error, lambda label, detector: _finish(detector, stats, train, wanted[label]))


def score_fitted(
    detectors: Mapping[K, Detector], batch: FeatureSet, on_error: OnError | None = None
) -> dict[K, np.ndarray]:
    """Scores of fitted detectors: every block of the batch is read once.

    Parameters
    ----------
    detectors : mapping from any key to Detector
    batch : FeatureSet
    on_error : callable, optional
        Called with the key and the exception where a detector fails; it is left out and the others go on.

    Returns
    -------
    dict from the given keys to ndarray (n,), float64

    Raises
    ------
    NotFittedError
        A detector that learns has not been fitted.
    ResultError
        A detector gives a wrong number of scores, or NaN or infinite ones.
    """
    living = dict(detectors)
    scores = {label: np.empty(batch.n, dtype=np.float64) for label in living}

    def score(block: Block) -> tuple[int, dict[K, np.ndarray | BaseException]]:
        return block.start, {name: _attempted(str(name), detector, block) for name, detector in list(living.items())}

    def keep(start: int, values: Mapping[K, np.ndarray | BaseException], label: K, _: Detector) -> None:
        found = values[label]
        if isinstance(found, BaseException):
            raise found
        scores[label][start : start + len(found)] = found

    _each(living, on_error, lambda _, detector: detector.require_fit_for(batch))
    with closing(side_by_side(score, batch.blocks())) as results:
        for start, values in results:
            _each(living, on_error, partial(keep, start, values))
    return {label: scores[label] for label in living}


def score_all(
    detectors: Sequence[str | Detector] | Mapping[str, str | Detector],
    train: FeatureSet,
    tests: Mapping[str, FeatureSet],
    cache: StatisticCache | None = None,
    on_error: OnError | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """Fit detectors on a training set and score every test set, each block of features read once.

    Parameters
    ----------
    detectors : sequence of names or instances, or mapping from label to either
        A name may carry parameters, as in ``"knn(k=50)"``.  In a sequence the string itself is the label, and an
        instance goes by its registered name or, made by its class, by the class's.
    train : FeatureSet
    tests : mapping from set name to FeatureSet
    cache, on_error
        As :func:`fit_all` and :func:`score_fitted` have them; ``on_error`` gets labels.

    Returns
    -------
    dict
        ``table[detector][set]`` is a float64 array (n,), larger = more in-distribution.

    Raises
    ------
    ParameterError
        Two detectors have the same label; give a mapping.
    """
    living = _labelled(detectors)
    failed: set[str] = set()

    def note(label: str, error: BaseException) -> None:
        failed.add(label)
        if on_error is not None:
            on_error(label, error)

    isolate = None if on_error is None else note
    fit_all(living, train, cache, isolate)
    table: dict[str, dict[str, np.ndarray]] = {label: {} for label in living}
    for name, batch in tests.items():
        sound = {label: detector for label, detector in living.items() if label not in failed}
        for label, values in score_fitted(sound, batch, isolate).items():
            table[label][name] = values
    return {label: row for label, row in table.items() if label not in failed}


def _each(living: dict[Any, Detector], on_error: OnError | None, action: Callable[[Any, Detector], None]) -> None:
    """Run an action for every living detector; one that fails is reported and leaves, or raises."""
    for label, detector in list(living.items()):
        try:
            action(label, detector)
        except (Exception, SystemExit) as error:  # a plugin that gives up with sys.exit() harms no other
            if on_error is None:
                raise
            del living[label]
            on_error(label, error)


def _finish(detector: Detector, stats: TrainStatistics, train: FeatureSet, missing: Sequence[Statistic]) -> None:
    if missing:
        raise StatisticError(
            f"{type(detector).__name__} still asks for {missing[0].key!r} after {MAX_ROUNDS} passes over the training "
            "set; its refine must come to an end"
        )
    detector.finish_fit(stats, train.head)


def _labelled(detectors: Sequence[str | Detector] | Mapping[str, str | Detector]) -> dict[str, Detector]:
    from fiood_core.registry import create

    items = list(detectors.items()) if isinstance(detectors, Mapping) else [(_label(d), d) for d in detectors]
    labels = [label for label, _ in items]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise ParameterError(f"two detectors are labelled {', '.join(map(repr, twice))}; pass a mapping from labels")
    living: dict[str, Detector] = {}
    for label, detector in items:
        if isinstance(detector, str):
            name, parameters = parse(detector)
            detector = create("detector", name, **parameters)
        living[label] = detector
    return living


def _label(detector: str | Detector) -> str:
    return detector if isinstance(detector, str) else detector.name or type(detector).__name__


def _attempted(name: str, detector: Detector, block: Block) -> np.ndarray | BaseException:
    """Checked scores of a block, or why there are none."""
    try:
        return _checked(name, detector.score_block(block.at(detector.precision)).double().cpu().numpy(), block)
    except (Exception, SystemExit) as error:
        return error


def _checked(name: str, values: np.ndarray, block: Block) -> np.ndarray:
    if values.shape != (len(block),):
        raise ResultError(f"detector {name!r} gave scores of shape {values.shape} for {len(block)} rows")
    bad = np.flatnonzero(~np.isfinite(values)) + block.start
    if len(bad):
        ids = block.source.ids
        shown = ", ".join(str(ids[i]) if ids is not None else f"row {i}" for i in bad[:5])
        raise ResultError(f"detector {name!r} gave NaN or infinite scores for {shown} ({len(bad)} in this block)")
    return values
