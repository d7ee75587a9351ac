"""NegMining: which candidate labels are farthest from the ID names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fiood_core.errors import InputError
from fiood_core.head import as_floating

CHUNK_ROWS = 4096
"""Candidates whose similarities to all ID names exist at once."""


def similarity_quantiles(candidates: Any, id_embeddings: Any, quantile: float = 0.95) -> np.ndarray:
    """The quantile (n,) over ID names of each candidate's cosine similarity, by linear interpolation.

    Parameters
    ----------
    candidates : array (n, D)
        Unit embeddings.
    id_embeddings : array (C, D)
        Unit embeddings of the distinct ID names.
    quantile : float
        0.95 leaves out the nearest twentieth of the names; an ID name among the candidates can survive that.
    """
    if not 0 <= quantile <= 1:
        raise InputError(f"quantile must lie in [0, 1], got {quantile}")
    names, labels = as_floating(id_embeddings, "id_embeddings"), as_floating(candidates, "candidates")
    found = [
        np.quantile((labels[start : start + CHUNK_ROWS] @ names.T).double().numpy(), quantile, axis=1)
        for start in range(0, len(labels), CHUNK_ROWS)
    ]
    return np.concatenate(found) if found else np.empty(0)


def farthest_first(quantiles: Any, labels: Sequence[str] | None = None) -> np.ndarray:
    """Indices (n,) by ascending quantile: farthest labels first; ties by label, else by position."""
    values = np.asarray(quantiles)
    if labels is None:
        return np.argsort(values, kind="stable")
    return np.lexsort((np.asarray(labels), values))


def negmining(
    candidates: Any,
    id_embeddings: Any,
    m: int,
    quantile: float = 0.95,
    labels: Sequence[str] | None = None,
) -> list[int]:
    """The ``m`` candidates farthest from the ID names, farthest first: a prefix of one order, so nested in ``m``.

    Source: NegLabel (arXiv 2403.20078); its released code takes a fraction of nouns and of adjectives separately.
    """
    if m < 1:
        raise InputError(f"NegMining must keep at least one label, got m={m}")
    return [int(i) for i in farthest_first(similarity_quantiles(candidates, id_embeddings, quantile), labels)[:m]]
