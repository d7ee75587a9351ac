"""Linear algebra that several detectors share, exact where the definition decides right or wrong.

Functions take tensors on any device and work in their dtype; fits are float64.  TF32 is left as torch has it, off.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from fiood_core.errors import StatisticError

log = logging.getLogger(__name__)

ONE_CORE = 1024
"""Size up to which a matrix is decomposed on one core."""

GRAM_PARTS = 4
"""Column groups of :func:`add_gram`: 5/8 of a full product's work."""

ROWS_AT_ONCE = 16384
"""Rows that :func:`largest_inner` compares with the queries at a time."""

NEAR = 1e-4
"""Squared distance, relative to the squared norms, below which a pair's distance is taken from its difference."""


def add_gram(total: Tensor, x: Tensor) -> None:
    """Add ``x.T @ x`` to the upper block triangle of ``total`` (D, D), in place; see :func:`symmetric`."""
    width = x.shape[1]
    step = max(-(-width // GRAM_PARTS), 1)
    for start in range(0, width, step):
        total[start : start + step, start:].addmm_(x[:, start : start + step].T, x[:, start:])


def symmetric(upper: Tensor) -> Tensor:
    """The symmetric matrix with the given upper triangle; what is below the diagonal is ignored."""
    return upper.triu() + upper.triu(1).T


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues upwards (D,), and eigenvectors as columns (D, D), of a symmetric matrix."""
    with _few_cores(len(matrix)):
        values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def least_norm_solution(weight: Tensor, target: Tensor) -> Tensor:
    """The shortest of the closest solutions ``x`` (D,) of ``weight @ x = target``, the condition number logged.

    Singular values up to 1e-15 of the largest are dropped, as ``numpy.linalg.pinv`` does.
    """
    with _few_cores(min(weight.shape)):
        solved = torch.linalg.lstsq(weight, target[:, None], rcond=1e-15, driver="gelsd")
    values = solved.singular_values
    log.info("head (%d × %d): condition number %.3g", *weight.shape, float(values[0] / values[-1]))
    solution: Tensor = solved.solution.flatten()
    return solution


@contextmanager
def _few_cores(size: int) -> Iterator[None]:
    """One core for a decomposition of moderate size: its countless short parallel regions stall on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if size <= ONE_CORE else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def inverse_root(covariance: Tensor, what: str, noise: float = 0.0) -> Tensor:
    """``U`` (D, rank) with ``U @ U.T`` the pseudo-inverse of a covariance (D, D), its retained rank logged.

    Eigenvalues up to D · eps · the largest are dropped, as ``scipy.linalg.pinvh`` does, and negative ones always:
    features that leave a LayerNorm lie in a hyperplane, and the rounding of that direction must not become precision.

    Parameters
    ----------
    covariance : Tensor (D, D)
    what : str
        Named in the log and in errors.
    noise : float
        Rounding error known to be in the matrix (of a difference of larger ones); eigenvalues below it are dropped.

    Raises
    ------
    StatisticError
        No eigenvalue is left.
    """
    values, vectors = eigh(covariance)
    cutoff = max(len(values) * torch.finfo(values.dtype).eps * float(values.abs().max()), noise)
    keep = values > cutoff
    rank = int(keep.sum())
    log.info("%s: rank %d of %d retained (eigenvalues above %.3g)", what, rank, len(values), cutoff)
    if rank == 0:
        raise StatisticError(f"{what} has no direction with variance; the training features are all alike")
    root: Tensor = vectors[:, keep] / values[keep].sqrt()
    return root.contiguous()


def nearest_squared_distance(z: Tensor, points: Tensor) -> Tensor:
    """Squared distance (n,) of each row of ``z`` (n, r) to the nearest of ``points`` (k, r), in float64."""
    inner = (z @ points.T).sub_(squared_norms(points) / 2)
    return squared_norms(z) - 2 * inner.amax(dim=1).double()


def largest_inner(queries: Tensor, rows: Tensor, k: int, offsets: Tensor | None = None) -> Tensor:
    """The ``k`` largest of each query's inner products with rows, minus the rows' offsets; (n, k), the least first.

    Parameters
    ----------
    queries : Tensor (n, D)
    rows : Tensor (m, D)
        At least ``k``; taken :data:`ROWS_AT_ONCE` at a time.
    offsets : Tensor (m,), optional
    """
    best = queries.new_empty(len(queries), 0)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        inner = queries @ rows[part].T
        if offsets is not None:
            inner -= offsets[part]
        best = largest(torch.cat([best, inner], dim=1) if start else inner, k)
    return best


def largest(x: Tensor, k: int) -> Tensor:
    """The ``k`` largest of each row of ``x`` (n, m), all if there are fewer, in any order but for the least, first."""
    if x.device.type != "cpu":
        return x.topk(min(k, x.shape[1]), dim=1).values.flip(1)
    rest = max(x.shape[1] - k, 0)
    return _in_place(x, lambda rows: rows.partition(rest, axis=1))[:, rest:]


def row_norms(x: Tensor) -> Tensor:
    """Euclidean norms (n,) of rows."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1)
    return norms


def squared_norms(x: Tensor) -> Tensor:
    """Squared Euclidean norms (n,) of rows, summed up in float64."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    return norms.square()


def unit(x: Tensor) -> Tensor:
    """Rows over their norm; a zero row stays zero."""
    norms = row_norms(x)[:, None]
    return x / torch.where(norms > 0, norms, torch.ones_like(norms))


def pairwise_distances(rows: Tensor) -> Tensor:
    """Distances (k, k) between rows (k, D), float64; near-duplicates from their difference, duplicates exactly 0."""
    rows = rows.double()
    norms = squared_norms(rows)
    scale = norms[:, None] + norms
    squared = (scale - 2 * rows @ rows.T).clamp_(min=0)
    for first in range(len(rows)):
        near = (squared[first] <= NEAR * scale[first]).nonzero().flatten()
        squared[first, near] = squared_norms(rows[near] - rows[first])
    return squared.sqrt()


def log_sum_exp(logits: Tensor) -> Tensor:
    """log Σ exp over the last dimension (n, C), shifted by the largest; ``logits`` are overwritten."""
    top = logits.amax(dim=1, keepdim=True)
    return top.flatten() + logits.sub_(top).exp_().sum(dim=1).log_()


def first_largest(x: Tensor) -> Tensor:
    """Index of the largest value of each row (n,), the first on ties."""
    if x.device.type != "cpu":
        return x.argmax(dim=1)
    return torch.from_numpy(x.numpy().argmax(axis=1))  # vectorised, which torch's is not


def ascending(x: Tensor) -> Tensor:
    """Each row of ``x`` (n, D) sorted upwards."""
    if x.device.type != "cpu":
        return x.sort(dim=1).values
    return _in_place(x, lambda rows: rows.sort(axis=1))


def largest_mask(x: Tensor, sorted_x: Tensor, k: int) -> Tensor:
    """Where the ``k`` largest of each row are (n, D), ties at the boundary going to the lowest index.

    Parameters
    ----------
    sorted_x : Tensor (n, D)
        Each row sorted upwards.
    """
    threshold = sorted_x[:, -k]
    mask = x >= threshold[:, None]
    if k == x.shape[1]:
        return mask
    tied = (sorted_x[:, -k - 1] == threshold).nonzero().flatten()
    if len(tied):
        equal = x[tied] == threshold[tied, None]
        above = mask[tied] & ~equal
        room = k - above.sum(dim=1, keepdim=True)
        mask[tied] = above | (equal & (equal.cumsum(dim=1) <= room))
    return mask


def _in_place(x: Tensor, work: Callable[[np.ndarray], None]) -> Tensor:
    """A copy of ``x`` on whose rows NumPy has worked; on one core its sorts are several times faster than torch's."""
    copy = x.clone(memory_format=torch.contiguous_format)
    work(copy.numpy())
    return copy
