"""Rank-based metrics in float64, with standard errors.

Conventions (part of every result's key, see :attr:`fiood_core.benchmark.Benchmark.protocol`): larger scores are more
in-distribution; in-distribution is the positive class; AUROC counts ties half; the FPR@95 threshold is the 5th
percentile of the ID scores with linear interpolation, and OOD scores at or above it are false positives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fiood_core.errors import ResultError

PROTOCOL = "fpr@95:percentile-linear;auroc:ties-half;aupr:average-precision"


@dataclass(frozen=True)
class Metrics:
    """How well scores separate an ID set from an OOD set; fractions in [0, 1].

    Attributes
    ----------
    fpr95 : float
        Share of OOD scores at or above the 5th percentile of the ID scores.
    auroc : float
        Probability that an ID score exceeds an OOD score, ties counted half.
    aupr_in, aupr_out : float
        Average precision with ID, or OOD, as the positive class; tied scores enter together.
    n_id, n_ood : int
    fpr95_stderr : float
        Binomial standard error of ``fpr95`` at a fixed threshold.
    auroc_stderr : float or None
        DeLong, DeLong and Clarke-Pearson (1988); None where a set has one score only.
    threshold : float
        The 5th percentile of the ID scores.
    """

    fpr95: float
    auroc: float
    aupr_in: float
    aupr_out: float
    n_id: int
    n_ood: int
    fpr95_stderr: float
    auroc_stderr: float | None
    threshold: float


def evaluate(id_scores: Any, ood_scores: Any) -> Metrics:
    """Metrics of two score vectors, in O(n log n).

    Parameters
    ----------
    id_scores, ood_scores : array (n,)
        Larger = more in-distribution.

    Raises
    ------
    ResultError
        A vector is empty, not one-dimensional, or holds NaN or infinite scores.
    """
    inside = _scores(id_scores, "ID")
    outside = _scores(ood_scores, "OOD")
    threshold = float(np.percentile(inside, 5))
    fpr = float(np.mean(outside >= threshold))
    auroc, stderr = _auroc(inside, outside)
    return Metrics(
        fpr95=fpr,
        auroc=auroc,
        aupr_in=_average_precision(inside, outside),
        aupr_out=_average_precision(-outside, -inside),
        n_id=len(inside),
        n_ood=len(outside),
        fpr95_stderr=float(np.sqrt(fpr * (1 - fpr) / len(outside))),
        auroc_stderr=stderr,
        threshold=threshold,
    )


def evaluate_classes(id_scores: Any, classes: Sequence[Any]) -> Metrics:
    """Mean over OOD classes of their metrics, each class against the same ID scores.

    ``n_ood`` counts the scores of all classes.  The standard errors are those of the mean with the classes taken as
    given: what the classes share through the ID scores enters the AUROC's once.

    Parameters
    ----------
    id_scores : array (n,)
    classes : sequence of arrays

    Raises
    ------
    ResultError
        There is no class, or a vector is empty, not one-dimensional, or holds NaN or infinite scores.
    """
    if not classes:
        raise ResultError("a mean over classes needs at least one class")
    inside = _scores(id_scores, "ID")
    outside = [_scores(scores, "OOD") for scores in classes]
    each = [evaluate(inside, scores) for scores in outside]
    mean = {
        name: float(np.mean([getattr(m, name) for m in each])) for name in ("fpr95", "auroc", "aupr_in", "aupr_out")
    }
    stderr = None
    if len(inside) > 1 and min(map(len, outside)) > 1:
        share_id = np.mean([_share_below(inside, scores) for scores in outside], axis=0)
        of_classes = [np.var(_share_below(scores, inside), ddof=1) / len(scores) for scores in outside]
        stderr = float(np.sqrt(np.var(share_id, ddof=1) / len(inside) + sum(of_classes) / len(each) ** 2))
    return Metrics(
        **mean,
        n_id=len(inside),
        n_ood=sum(map(len, outside)),
        fpr95_stderr=float(np.sqrt(sum(m.fpr95_stderr**2 for m in each))) / len(each),
        auroc_stderr=stderr,
        threshold=each[0].threshold,
    )


def _scores(values: Any, which: str) -> np.ndarray:
    try:
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ResultError(f"{which} scores must be numbers: {error}") from error
    if array.ndim != 1 or not len(array):
        raise ResultError(f"{which} scores must be a non-empty vector, got shape {array.shape}")
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise ResultError(
            f"{len(bad)} {which} scores are NaN or infinite, the first in row {bad[0]}; no metric is given"
        )
    return array


def _auroc(inside: np.ndarray, outside: np.ndarray) -> tuple[float, float | None]:
    """AUROC and its DeLong standard error."""
    share_id = _share_below(inside, outside)  # for each ID score, the share of OOD scores below it
    share_ood = 1 - _share_below(outside, inside)  # for each OOD score, the share of ID scores above it
    auroc = float(np.mean(share_id))
    if len(inside) < 2 or len(outside) < 2:
        return auroc, None
    variance = np.var(share_id, ddof=1) / len(inside) + np.var(share_ood, ddof=1) / len(outside)
    return auroc, float(np.sqrt(variance))


def _share_below(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Share of ``others`` below each value, equal ones counted half."""
    ranked = np.sort(others)
    below = np.searchsorted(ranked, values, side="left")
    not_above = np.searchsorted(ranked, values, side="right")
    return (below + not_above) / (2 * len(others))


def _average_precision(positive: np.ndarray, negative: np.ndarray) -> float:
    """Σ (recall step) × precision over distinct thresholds, from the highest score down."""
    scores = np.concatenate([positive, negative])
    is_positive = np.zeros(len(scores), dtype=np.int64)
    is_positive[: len(positive)] = 1
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # last row of each run of ties
    hits = np.cumsum(is_positive[order])[ends]
    precision = hits / (ends + 1)
    recall_step = np.diff(np.concatenate([[0], hits])) / len(positive)
    return float(np.sum(recall_step * precision))
