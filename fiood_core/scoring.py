"""One fit pass and one scoring pass for any number of detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fiood_core.detector import Detector
from fiood_core.errors import ResultError
from fiood_core.features import Block, FeatureSet
from fiood_core.statistics import TrainContext, TrainStatistics, collect


def fit_all(detectors: Sequence[Detector], train: FeatureSet) -> None:
    """Fit detectors together: equal statistics are gathered once, in one streamed pass a round."""
    stats = TrainStatistics(TrainContext.of(train))
    collect([s for d in detectors for s in d.statistics], train, stats)
    collect([s for d in detectors for s in d.refine(stats, train.head)], train, stats)
    for detector in detectors:
        detector.finish_fit(stats, train.head)


def score_fitted(detectors: Mapping[str, Detector], batch: FeatureSet) -> dict[str, np.ndarray]:
    """Scores of fitted detectors: every block of the batch is read once.

    Returns
    -------
    dict from the given names to ndarray (n,), float64

    Raises
    ------
    ResultError
        A detector gives a wrong number of scores, or NaN or infinite ones.
    """
    for detector in detectors.values():
        detector.require_fitted()
    scores = {name: np.empty(batch.n, dtype=np.float64) for name in detectors}
    for block in batch.blocks():
        for name, detector in detectors.items():
            values = detector.score_block(block.at(detector.precision))
            scores[name][block.start : block.stop] = _checked(name, values.double().numpy(), block)
    return scores


def score_all(
    detectors: Sequence[str | Detector] | Mapping[str, str | Detector],
    train: FeatureSet,
    tests: Mapping[str, FeatureSet],
) -> dict[str, dict[str, np.ndarray]]:
    """Fit detectors on a training set and score every test set, each block of features read once.

    Parameters
    ----------
    detectors : sequence of names or instances, or mapping from label to either
    train : FeatureSet
    tests : mapping from set name to FeatureSet

    Returns
    -------
    dict
        ``table[detector][set]`` is a float64 array (n,), larger = more in-distribution.
    """
    named = _named(detectors)
    fit_all(list(named.values()), train)
    by_set = {name: score_fitted(named, batch) for name, batch in tests.items()}
    return {label: {name: by_set[name][label] for name in tests} for label in named}


def _named(detectors: Any) -> dict[str, Detector]:
    from fiood_core.registry import create

    items = detectors.items() if isinstance(detectors, Mapping) else ((_label(d), d) for d in detectors)
    return {label: create("detector", d) if isinstance(d, str) else d for label, d in items}


def _label(detector: str | Detector) -> str:
    return detector if isinstance(detector, str) else type(detector).__name__


def _checked(name: str, values: np.ndarray, block: Block) -> np.ndarray:
    if values.shape != (len(block),):
        raise ResultError(f"detector {name!r} gave scores of shape {values.shape} for {len(block)} rows")
    bad = np.flatnonzero(~np.isfinite(values)) + block.start
    if len(bad):
        ids = block.source.ids
        shown = ", ".join(str(ids[i]) if ids is not None else f"row {i}" for i in bad[:5])
        raise ResultError(f"detector {name!r} gave NaN or infinite scores for {shown} ({len(bad)} in this block)")
    return values
