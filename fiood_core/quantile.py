"""Exact quantiles of all training activations, streamed.

A float's bits, read as an integer of the right order, are four (float64) or two (float32) digits of sixteen bits.  One
pass counts the leading digit; each further pass counts the next digit below the one or two leading digits in which the
order statistics lie.  Any number of values, no sorting, no approximation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fiood_core.features import Block
from fiood_core.statistics import Statistic, TrainContext, TrainStatistics

DIGIT = 16
BASE = 1 << DIGIT


class ActivationDigits(Statistic):
    """Counts (65536,) of one digit over all activations that begin with the given digits.

    Parameters
    ----------
    prefix : tuple of int
        The leading digits; empty for the first pass.
    """

    def __init__(self, prefix: tuple[int, ...] = ()) -> None:
        self.prefix = prefix

    @property
    def key(self) -> str:
        return f"activation-digits[prefix={','.join(map(str, self.prefix))}]"

    def begin(self, context: TrainContext) -> None:
        assert context.first is not None
        self._digits = context.first.stored_features.element_size() * 8 // DIGIT
        self._counts = torch.zeros(BASE, dtype=torch.int64)

    def update(self, block: Block) -> None:
        keys = block.at("float64").once("ordered bits", lambda: _ordered(block.stored_features))
        shift = DIGIT * (self._digits - 1 - len(self.prefix))
        if self.prefix:
            digits = (keys[(keys >> shift + DIGIT) == _integer(self.prefix)] >> shift) & (BASE - 1)
        else:
            digits = (keys >> shift) + BASE // 2
        self._counts += torch.bincount(digits.flatten(), minlength=BASE)

    def merge(self, other: ActivationDigits) -> None:
        self._counts += other._counts

    def result(self) -> Mapping[str, Tensor]:
        return {"counts": self._counts, "digits": torch.tensor(self._digits)}


def missing_digits(stats: TrainStatistics, q: float) -> Sequence[Statistic]:
    """What has still to be counted for the ``q``-quantile; nothing once :func:`quantile` can answer."""
    found = (_descend(stats, rank) for rank in _ranks(stats, q))
    return [prefix for prefix in found if isinstance(prefix, ActivationDigits)]


def quantile(stats: TrainStatistics, q: float) -> float:
    """The ``q``-quantile of all activations, by linear interpolation between order statistics as NumPy has it."""
    low, high = (_value(stats, rank) for rank in _ranks(stats, q))
    return low + (high - low) * (_position(stats, q) % 1)


def _ordered(values: Tensor) -> Tensor:
    bits = values.view(torch.int32 if values.dtype == torch.float32 else torch.int64)
    top = torch.iinfo(bits.dtype).max
    return bits ^ ((bits >> (bits.element_size() * 8 - 1)) & top)


def _integer(digits: Sequence[int]) -> int:
    """The integer that leading digits stand for; the first digit is counted from the most negative."""
    number = 0
    for digit in digits:
        number = (number << DIGIT) + digit
    return number - (BASE // 2 << DIGIT * (len(digits) - 1))


def _position(stats: TrainStatistics, q: float) -> float:
    return (int(stats[ActivationDigits()]["counts"].sum()) - 1) * q


def _ranks(stats: TrainStatistics, q: float) -> tuple[int, int]:
    position = _position(stats, q)
    return math.floor(position), math.ceil(position)


def _descend(stats: TrainStatistics, rank: int) -> tuple[int, ...] | ActivationDigits:
    """All digits of the order statistic of a rank, or the first count that is missing on the way to it."""
    prefix: tuple[int, ...] = ()
    while True:
        counts = ActivationDigits(prefix)
        if counts not in stats:
            return counts
        running = stats[counts]["counts"].cumsum(0)
        digit = int(torch.searchsorted(running, rank, right=True))
        rank -= int(running[digit - 1]) if digit else 0
        prefix = (*prefix, digit)
        if len(prefix) == int(stats[counts]["digits"]):
            return prefix


def _value(stats: TrainStatistics, rank: int) -> float:
    digits = _descend(stats, rank)
    if isinstance(digits, ActivationDigits):
        return float(stats[digits])  # raises, naming the count that was not asked for
    integer, float_ = (np.int32, np.float32) if len(digits) == 2 else (np.int64, np.float64)
    key = np.array(_integer(digits), dtype=integer)
    return float((key ^ ((key >> np.iinfo(integer).bits - 1) & np.iinfo(integer).max)).view(float_))
