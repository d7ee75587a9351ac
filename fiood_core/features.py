"""Feature sets, and the blocks in which every pass reads them.

A :class:`FeatureSet` is rows: features, logits, labels and columns, in memory or mapped from the store.  A pass over it
yields :class:`Block` objects; what several detectors need of a block (unit features, log-softmax, …) is computed once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, Protocol, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from fiood_core.errors import InputError
from fiood_core.head import Head, require_real
from fiood_core.linalg import ascending, first_largest, row_norms, unit

BLOCK_ROWS = 2048
"""Rows of one block.  Part of the numbers' definition: changing it may change last bits."""

_READING = Lock()
"""One reader at a time: blocks are worked on side by side, and what rows are read from need not know of that."""

Precision = Literal["float32", "float64"]
T = TypeVar("T")


class Rows(Protocol):
    """What a stored column offers: a shape, and slices of rows as arrays (NumPy or torch)."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class FeatureSet:
    """Rows of features, logits, labels and columns.

    Parameters
    ----------
    features : array (n, D), optional
        Penultimate features, exactly what enters the head.  NumPy, torch, or any :class:`Rows` (a memory map).
    labels : array (n,) of int, optional
        True class of each row; needed for training statistics that go by class.
    logits : array (n, C), optional
        Computed as ``head(features)`` where absent.
    head : Head, optional
    columns : mapping from column key to array (n, …), optional
        What was computed from pixels beside features and logits; see :class:`fiood_core.column.Column`.
    ids : sequence of str, optional
        Stable ids, named in errors.
    negatives : Head, optional
        Labels outside the ID label space as a head over the same features (a vocabulary's embeddings over τ).

    Raises
    ------
    InputError
        Nothing given, or lengths, widths or labels that do not fit together.
    """

    def __init__(
        self,
        features: Any = None,
        labels: Any = None,
        logits: Any = None,
        head: Head | None = None,
        columns: Mapping[str, Any] | None = None,
        ids: Sequence[str] | None = None,
        negatives: Head | None = None,
    ) -> None:
        for what, given in (("head", head), ("negatives", negatives)):
            if given is not None and not isinstance(given, Head):
                raise InputError(f"{what} must be a Head, got {type(given).__name__}; wrap it as Head(weight, bias)")
        self.features = _rows(features, "features", 2)
        self.logits = _rows(logits, "logits", 2)
        self.head = head
        self.negatives = negatives
        self.columns = {key: _rows(value, f"column {key!r}", None) for key, value in (columns or {}).items()}
        self.ids = ids
        present = [rows for rows in (self.features, self.logits, *self.columns.values()) if rows is not None]
        if not present:
            raise InputError("a FeatureSet needs features, logits or a column")
        self.n = int(present[0].shape[0])
        lengths = {int(rows.shape[0]) for rows in present} | ({len(ids)} if ids is not None else set())
        if lengths != {self.n}:
            raise InputError(
                f"features, logits, columns and ids must have the same number of rows, got {sorted(lengths)}"
            )
        self.labels = _labels(labels, self.n, _label_classes(head, self.num_classes))
        self._check_widths()

    def __len__(self) -> int:
        return self.n

    @property
    def dim(self) -> int | None:
        """D, the width of the features; ``None`` without features."""
        return None if self.features is None else int(self.features.shape[1])

    @property
    def num_classes(self) -> int | None:
        """C, from the head or the logits; ``None`` where neither is given."""
        if self.head is not None:
            return self.head.num_rows
        return None if self.logits is None else int(self.logits.shape[1])

    def _check_widths(self) -> None:
        if self.negatives is not None and self.dim is not None and self.dim != self.negatives.dim:
            raise InputError(f"features are {self.dim} wide, but the negative labels are {self.negatives.dim} wide")
        if self.head is None:
            return
        if self.dim is not None and self.dim != self.head.dim:
            raise InputError(f"features are {self.dim} wide, but the head takes {self.head.dim}")
        if self.logits is not None and int(self.logits.shape[1]) != self.head.num_rows:
            raise InputError(f"logits are {self.logits.shape[1]} wide, but the head gives {self.head.num_rows}")

    def blocks(self, start: int = 0, stop: int | None = None, rows: int = BLOCK_ROWS) -> Iterator[Block]:
        """Blocks of consecutive rows from ``start`` to ``stop``, on a grid of ``rows`` from ``start``."""
        stop = self.n if stop is None else min(stop, self.n)
        for first in range(start, stop, rows):
            yield Block(self, first, min(first + rows, stop))

    def __repr__(self) -> str:
        return f"FeatureSet({self.n} rows, D={self.dim}, C={self.num_classes}, columns={sorted(self.columns)})"


class Block:
    """Consecutive rows of a feature set, at one precision, with what was derived from them.

    Attributes are tensors with one row per image; all are computed on first use and kept for the life of the block.

    Parameters
    ----------
    source : FeatureSet
    start, stop : int
        Row range in the source.
    """

    def __init__(
        self,
        source: FeatureSet,
        start: int,
        stop: int,
        precision: Precision = "float32",
        *,
        within: Block | None = None,
        rows: Tensor | None = None,
    ) -> None:
        self.source = source
        self.start = start
        self.stop = stop
        self.precision: Precision = precision
        self.dtype = torch.float64 if precision == "float64" else torch.float32
        self._memo: dict[Hashable, Any] = {}
        self._views: dict[str, Block] = {}
        self._origin: weakref.ref[Block] | None = None
        self._raw: dict[str, Tensor] = {}
        self._within, self._rows = within, rows

    def __len__(self) -> int:
        return self.stop - self.start if self._rows is None else len(self._rows)

    def at(self, precision: Precision) -> Block:
        """The same rows at another precision; raw reads are shared, derived quantities are not."""
        origin = None if self._origin is None else self._origin()
        for same in (self, origin):
            if same is not None and same.precision == precision:
                return same
        if precision not in self._views:
            view = Block(self.source, self.start, self.stop, precision, within=self._within, rows=self._rows)
            view._raw, view._origin = self._raw, weakref.ref(self)  # a cycle would keep a block's tensors until a gc
            self._views[precision] = view
        return self._views[precision]

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value of ``compute()``, computed once per block and precision for equal keys."""
        if key not in self._memo:
            self._memo[key] = compute()
        return cast(T, self._memo[key])

    def column(self, key: str) -> Tensor:
        """Rows of an injected or stored column, in the block's dtype.

        Raises
        ------
        InputError
            The feature set has no such column.
        """
        if key not in self.source.columns:
            raise InputError(
                f"column {key!r} is missing; have {sorted(self.source.columns) or 'none'}. "
                "Extract it, or pass FeatureSet(columns={...})"
            )
        return self._cast(self._read(f"column {key!r}", self.source.columns[key]))

    @property
    def features(self) -> Tensor:
        """Penultimate features (n, D)."""
        if self.source.features is None:
            raise InputError("features are missing; pass FeatureSet(features=...)")
        return self._cast(self._read("features", self.source.features))

    @property
    def logits(self) -> Tensor:
        """Logits (n, C): as stored, else the head's product with the features."""
        return self.once("logits", self._logits)

    def _logits(self) -> Tensor:
        if self.source.logits is not None:
            return self._cast(self._read("logits", self.source.logits))
        if self.source.head is None or self.source.features is None:
            raise InputError("logits are missing; pass FeatureSet(logits=...) or features with a head")
        return self.source.head(self.features)

    @property
    def head(self) -> Head:
        """The head that came with the rows."""
        if self.source.head is None:
            raise InputError("the head is missing; pass FeatureSet(head=...)")
        return self.source.head

    @property
    def labels(self) -> Tensor:
        """True classes (n,) as int64."""
        if self.source.labels is None:
            raise InputError("labels are missing; pass FeatureSet(labels=...)")
        labels = self.source.labels[self.start : self.stop]
        return labels if self._rows is None else labels[self._rows]

    @property
    def stored_features(self) -> Tensor:
        """Penultimate features (n, D) as they are stored, float64 or float32 whatever the block's precision."""
        if self.source.features is None:
            raise InputError("features are missing; pass FeatureSet(features=...)")
        stored = self._read("features", self.source.features)
        return stored if stored.dtype == torch.float64 else stored.float()

    def take(self, rows: Tensor) -> Block:
        """A block of some of the rows (k,), counted from the block's start; nothing is derived for the others."""
        return Block(self.source, self.start, self.stop, self.precision, within=self, rows=rows)

    @property
    def norms(self) -> Tensor:
        """Euclidean norms (n,) of the features."""
        return self.once("norms", lambda: row_norms(self.features))

    @property
    def unit_features(self) -> Tensor:
        """Features (n, D) over their norm; a zero row stays zero."""
        return self.once("unit_features", lambda: unit(self.features))

    @property
    def ascending_features(self) -> Tensor:
        """Features (n, D), each row sorted upwards."""
        return self.once("ascending_features", lambda: ascending(self.features))

    @property
    def max_logit(self) -> Tensor:
        """Largest logit (n,)."""
        return self.once("max_logit", lambda: self.logits.amax(dim=1))

    @property
    def predictions(self) -> Tensor:
        """Index of the largest logit (n,), the first on ties."""
        return self.once("predictions", lambda: first_largest(self.logits))

    @property
    def log_sum_exp(self) -> Tensor:
        """log Σ exp(logits) (n,), in float64 from the block's logits."""
        return self.once("log_sum_exp", lambda: self.max_logit.double() + self._odds[1].log1p())

    @property
    def posterior(self) -> Tensor:
        """Posterior (n, C) in float64 from the block's logits."""
        return self.once("posterior", lambda: self._odds[0] / (1 + self._odds[1])[:, None])

    @property
    def log_posterior(self) -> Tensor:
        """Log posterior (n, C) in float64 from the block's logits.

        What float32 logits hold, and no more lost: near a posterior of 1 its complement keeps its leading digits,
        where float32 arithmetic on logits of 30 would round it to a multiple of 2e-6.
        """
        return self.once("log_posterior", self._log_posterior)

    @property
    def log_rest(self) -> Tensor:
        """Log of the posterior of all classes but the predicted one (n,), in float64."""
        return self.once("log_rest", lambda: self._odds[1].log() - self._odds[1].log1p())

    @property
    def _odds(self) -> tuple[Tensor, Tensor]:
        """Every class's odds against the predicted one (n, C), and their sum without its own (n,), in float64."""
        return self.once("odds", self._compute_odds)

    def _compute_odds(self) -> tuple[Tensor, Tensor]:
        odds = (self.logits.double() - self.max_logit.double()[:, None]).exp_()
        predicted = self.predictions[:, None]
        rest = odds.scatter_(1, predicted, 0.0).sum(dim=1)  # without the 1, in which small sums would lose their digits
        return odds.scatter_(1, predicted, 1.0), rest

    def _log_posterior(self) -> Tensor:
        return (self.logits.double() - self.max_logit.double()[:, None]).sub_(self._odds[1].log1p()[:, None])

    @property
    def negative_max_logit(self) -> Tensor:
        """Largest logit (n,) of the negative labels, in float64; -inf without labels."""
        return self._negative[0]

    @property
    def negative_log_sum_exp(self) -> Tensor:
        """log Σ exp (n,) of the negative labels' logits, in float64, streamed over them; -inf without labels."""
        return self._negative[1]

    @property
    def _negative(self) -> tuple[Tensor, Tensor]:
        negatives = self.source.negatives
        if negatives is None:
            raise InputError("negative labels are missing; pass FeatureSet(negatives=Head(...)), or name a vocabulary")
        return self.once("negative", lambda: negatives.reduce(self.features))

    def _cast(self, tensor: Tensor) -> Tensor:
        return self.once(("cast", id(tensor)), lambda: tensor.to(self.dtype))

    def _read(self, what: str, rows: Any) -> Tensor:
        if what in self._raw:
            return self._raw[what]
        if self._within is not None:
            self._raw[what] = self._within._read(what, rows)[self._rows]
        else:
            with _READING:
                part = rows[self.start : self.stop]
            tensor = torch.as_tensor(part).detach().cpu()
            if not _finite(tensor):
                raise InputError(self._not_finite(what, tensor))
            self._raw[what] = tensor
        return self._raw[what]

    def _not_finite(self, what: str, tensor: Tensor) -> str:
        bad = (~torch.isfinite(tensor)).reshape(len(tensor), -1).any(dim=1).nonzero().flatten() + self.start
        ids = self.source.ids
        names = [str(ids[i]) if ids is not None else f"row {i}" for i in bad[:5].tolist()]
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        return (
            f"{what} hold NaN or infinite values in {', '.join(names)}{more}; extract them again or drop these images"
        )


def _finite(tensor: Tensor) -> bool:
    # NaN and infinity survive a sum, which is a single pass; a sum of large numbers may overflow all the same
    return bool(tensor.sum().isfinite()) or bool(torch.isfinite(tensor).all())


def _rows(value: Any, what: str, ndim: int | None) -> Any:
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        value = np.asarray(value)
    if ndim is not None and len(value.shape) != ndim:
        raise InputError(f"{what} must have {ndim} dimensions, got shape {tuple(value.shape)}")
    if isinstance(value, (Tensor, np.ndarray)):
        require_real(value, what)
    if isinstance(value, np.ndarray) and not _shareable(value):
        return _Copied(value)
    return value


def _shareable(array: np.ndarray) -> bool:
    """Whether torch can work on an array's own memory."""
    return array.flags.writeable and array.dtype.isnative and all(step >= 0 for step in array.strides)


class _Copied:
    """Rows of a NumPy array that torch takes only as a copy: read-only, reversed, or in another byte order."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape = array.shape
        self.dtype = array.dtype.newbyteorder("=")

    def __getitem__(self, rows: slice) -> Any:
        return torch.from_numpy(self._array[rows].astype(self.dtype, order="C"))


def _label_classes(head: Head | None, num_classes: int | None) -> int | None:
    """How many classes labels may name: more than there are logits where names are shared by classes."""
    if head is None or head.classes is None:
        return num_classes
    return 1 + max((c for row in head.classes for c in row), default=-1)


def _labels(labels: Any, n: int, num_classes: int | None) -> Tensor | None:
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(f"labels must have shape ({n},), got {array.shape}")
    if array.dtype.kind not in "iu":
        raise InputError(f"labels must be integers, got {array.dtype}; map names to class indices first")
    if n and int(array.min()) < 0:
        raise InputError(f"label {int(array.min())} is negative; rows without a class cannot be training rows")
    if n and num_classes is not None and int(array.max()) >= num_classes:
        raise InputError(f"label {int(array.max())} is outside the {num_classes} classes of the head or logits")
    return torch.from_numpy(array.astype(np.int64))
