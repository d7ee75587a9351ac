"""Histograms and ROC curves small enough to carry thousands of them in one page, and exact where it matters.

Both hold integer counts, so nothing is rounded; a curve is thinned by leaving points out, never by moving them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 48
"""Bins of a histogram."""

_TAIL = (0.0, 0.001, 0.002, 0.005)

SHARES = np.array([*_TAIL, *np.arange(1, 100) / 100, *(1 - share for share in reversed(_TAIL))])
"""Shares of the ID scores below the thresholds of a curve; one of them is the 5 % of FPR@95."""


@dataclass(frozen=True)
class Histogram:
    """Counts of ID and OOD scores in equal bins between ``low`` and ``high``.

    The range holds the bulk of both; the first and last bins also count the ``beyond`` scores outside it.
    """

    low: float
    high: float
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    beyond: int


class Inside:
    """ID scores, prepared once for comparison with many OOD sets.

    Parameters
    ----------
    scores : ndarray (n,) float64
        Finite; larger = more in-distribution.

    Attributes
    ----------
    size : int
    thresholds : ndarray (t,)
        The ID scores' quantiles at :data:`SHARES`, from the highest to the lowest.
    curve : tuple of t int
        How many ID scores are at or above each threshold.  Neighbours differ by a hundredth of the set (but for ties),
        so a straight line between two points of a ROC curve is never further than that from the true one.
    """

    def __init__(self, scores: np.ndarray) -> None:
        self._sorted = np.sort(scores)
        self.size = len(scores)
        self.thresholds = np.percentile(self._sorted, SHARES[::-1] * 100)
        self.curve = _at_or_above(self._sorted, self.thresholds)
        self._bulk = _bulk(self._sorted)

    def against(self, outside: np.ndarray) -> tuple[Histogram, tuple[int, ...]]:
        """Histogram of both sets, and how many of the OOD scores (m,) are at or above each threshold."""
        ranked = np.sort(outside)
        return self._histogram(ranked), _at_or_above(ranked, self.thresholds)

    def _histogram(self, outside: np.ndarray) -> Histogram:
        bulk = _bulk(outside)
        low, high = min(self._bulk[0], bulk[0]), max(self._bulk[1], bulk[1])
        margin = high / 10 - low / 10
        low = max(low - margin, min(self._sorted[0], outside[0]))
        high = min(high + margin, max(self._sorted[-1], outside[-1]))
        if not low < high:
            low, high = low - max(0.5, abs(low) / 10), high + max(0.5, abs(high) / 10)
        share = np.arange(1, BINS) / BINS
        edges = low * (1 - share) + high * share
        both = (self._sorted, outside)
        beyond = sum(int(np.searchsorted(s, low) + len(s) - np.searchsorted(s, high, side="right")) for s in both)
        return Histogram(float(low), float(high), _counts(self._sorted, edges), _counts(outside, edges), beyond)


def _bulk(ranked: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(ranked, (0.2, 99.8))
    return float(low), float(high)


def _counts(ranked: np.ndarray, edges: np.ndarray) -> tuple[int, ...]:
    return tuple(np.diff(np.searchsorted(ranked, edges), prepend=0, append=len(ranked)).tolist())


def _at_or_above(ranked: np.ndarray, thresholds: np.ndarray) -> tuple[int, ...]:
    return tuple((len(ranked) - np.searchsorted(ranked, thresholds)).tolist())


def pack(counts: Sequence[int]) -> str:
    """Non-negative integers as base64 of LEB128: seven bits a byte, lowest first."""
    out = bytearray()
    for value in counts:
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
    return base64.b64encode(out).decode("ascii")


def pack_rising(counts: Sequence[int]) -> str:
    """The steps of a rising sequence, packed by :func:`pack`."""
    return pack([after - before for before, after in zip((0, *counts), counts, strict=False)])
