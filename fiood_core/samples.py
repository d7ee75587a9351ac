"""Training rows that detectors keep: a seeded sample, a subset by class, or all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fiood_core.errors import ParameterError, StatisticError
from fiood_core.features import Block, Precision
from fiood_core.statistics import Statistic, TrainContext

SUBSET_SEED = 1
"""Seed of the shuffle within a class, as the official NAC code has it."""


def sample_size(n: int, fraction: float) -> int:
    """How many of ``n`` rows a fraction is."""
    return int(fraction * n)


class _Rows:
    """Rows of a result whose length is known, put in their places in one allocation.

    Kept as they come, small pieces among the large ones that are let go would tear the memory to shreds.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._whole: Tensor | None = None
        self._pieces: list[tuple[int, Tensor]] = []

    def add(self, at: int, rows: Tensor) -> None:
        self._pieces.append((at, rows))

    def merge(self, other: _Rows) -> None:
        self._pieces += other._pieces
        self._place()

    def whole(self) -> Tensor:
        self._place()
        assert self._whole is not None
        return self._whole

    def _place(self) -> None:
        for at, rows in self._pieces:
            if self._whole is None:
                self._whole = rows.new_empty(self._n, *rows.shape[1:])
            self._whole[at : at + len(rows)] = rows
        self._pieces.clear()


class SampledRows(Statistic):
    """Features (m, D), as they are stored, and log-sum-exp (m,) in float64 of a random sample, or of given rows.

    Parameters
    ----------
    fraction : float
        Share of the training set, drawn without replacement by a generator of its own.
    seed : int
    indices : sequence of int, optional
        The rows themselves; then nothing is drawn.
    """

    needs = ("features", "logits")

    def __init__(self, fraction: float, seed: int, indices: Sequence[int] | None = None) -> None:
        self.fraction, self.seed = fraction, seed
        self.indices = None if indices is None else np.unique(np.asarray(indices, dtype=np.int64))

    @property
    def key(self) -> str:
        if self.indices is None:
            return f"sampled-rows[fraction={self.fraction!r},seed={self.seed}]"
        return f"sampled-rows[indices={hashlib.sha256(self.indices.tobytes()).hexdigest()}]"

    def check(self, context: TrainContext) -> None:
        super().check(context)
        if (sample_size(context.n, self.fraction) if self.indices is None else len(self.indices)) == 0:
            raise StatisticError(f"{self.key} is none of the {context.n} training images; ask for a larger share")
        if self.indices is not None and not 0 <= self.indices[0] <= self.indices[-1] < context.n:
            raise ParameterError(
                f"sampled rows reach from {self.indices[0]} to {self.indices[-1]}, but the training set has "
                f"{context.n} rows, counted from 0"
            )

    def begin(self, context: TrainContext) -> None:
        self._rows = context.once(self.key, lambda: torch.from_numpy(self._chosen(context.n)))
        self._features, self._energies = _Rows(len(self._rows)), _Rows(len(self._rows))

    def _chosen(self, n: int) -> np.ndarray:
        if self.indices is not None:
            return self.indices
        chosen = np.random.default_rng(self.seed).choice(n, size=sample_size(n, self.fraction), replace=False)
        return np.sort(chosen)

    def update(self, block: Block) -> None:
        first, last = torch.searchsorted(self._rows, torch.tensor([block.start, block.stop])).tolist()
        if first < last:
            rows = block.take(self._rows[first:last] - block.start).at("float64")
            self._features.add(first, rows.stored_features)
            self._energies.add(first, rows.log_sum_exp)

    def merge(self, other: SampledRows) -> None:
        self._features.merge(other._features)
        self._energies.merge(other._energies)

    def result(self) -> Mapping[str, Tensor]:
        return {
            "rows": self._rows,
            "features": self._features.whole(),
            "log_sum_exp": self._energies.whole(),
        }


class UnitBank(Statistic):
    """Unit features (n, D) of every training row.

    Parameters
    ----------
    precision : {"float32", "float64"}
    """

    cached = False

    def __init__(self, precision: Precision) -> None:
        self.precision: Precision = precision

    @property
    def key(self) -> str:
        return f"unit-bank[{self.precision}]"

    def begin(self, context: TrainContext) -> None:
        self._bank = _Rows(context.n)

    def update(self, block: Block) -> None:
        self._bank.add(block.start, block.at(self.precision).unit_features)

    def merge(self, other: UnitBank) -> None:
        self._bank.merge(other._bank)

    def result(self) -> Mapping[str, Tensor]:
        return {"bank": self._bank.whole()}

    def view(self, result: Mapping[str, Tensor]) -> Tensor:
        return result["bank"]


def class_subset(labels: Tensor, images_per_class: int) -> Tensor:
    """Mask (n,) of at most so many rows of each class, the first after a shuffle within the class."""
    order = np.argsort(labels.numpy(), kind="stable")
    mask = np.zeros(len(order), dtype=bool)
    for rows in np.split(order, np.flatnonzero(np.diff(labels.numpy()[order])) + 1):
        shuffled = rows.copy()
        np.random.RandomState(SUBSET_SEED).shuffle(shuffled)  # the published subset's generator
        mask[shuffled[:images_per_class]] = True
    return torch.from_numpy(mask)
