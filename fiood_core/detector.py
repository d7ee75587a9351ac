"""The detector interface: declare statistics, learn from them, score a block.

A detector plugin is one class.  Its parameters are annotated class attributes with defaults (the class becomes a
keyword-only dataclass), its training statistics are class attributes or the :attr:`Detector.statistics` property, and
its mathematics stands in :meth:`Detector.learn` and :meth:`Detector.score_block`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fiood_core._lookup import make_callable
from fiood_core.errors import InputError, NotFittedError, ParameterError
from fiood_core.features import Block, FeatureSet, Precision
from fiood_core.head import Head
from fiood_core.statistics import Statistic, TrainContext, TrainStatistics

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform

    from fiood_core.column import Column
else:

    def dataclass_transform(**_: Any) -> Any:  # noqa: D103 - only type checkers need the real one
        return lambda cls: cls


API_VERSION = 1
"""The version of this interface.  A plugin states the one it was written for as ``api_version``."""

PARAMETERS_KEY = "__parameters__"
WIDTHS_KEY = "__widths__"
WIDE = ("features", "logits")
HEAD_KEYS = ("__head_weight__", "__head_bias__", "__head_temperature__")


@dataclasses.dataclass(frozen=True)
class Paper:
    """Where a method was published.

    Attributes
    ----------
    title : str
    year : int
    arxiv, url, code : str, optional
        arXiv number, any other address, and the official code.
    """

    title: str
    year: int
    arxiv: str | None = None
    url: str | None = None
    code: str | None = None

    @property
    def link(self) -> str | None:
        """The address to read it at."""
        return f"https://arxiv.org/abs/{self.arxiv}" if self.arxiv else self.url


@dataclass_transform(kw_only_default=True)
@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Detector(ABC):
    """Base class of all detectors; a larger score means more in-distribution, always.

    Class attributes
    ----------------
    reference : Paper
    formula : str
        The score in a line.
    needs : tuple of str
        What scoring reads: ``"features"``, ``"logits"``, ``"head"``, ``"negatives"``.
    cost : str
        Order of the work, in n, t, D, C.
    presets : mapping
        Published settings by name, e.g. ``{"openood": {"k": 50}}``; see :meth:`configured`.
    alternatives : mapping
        For each parameter whose published value is disputed, the other values and who uses them.
    toy : mapping
        Parameters with which the conformance kit's small sets (1200 training rows, D = 32, C = 8) can be scored, where
        the defaults are for large ones, e.g. ``{"k": 10}``.
    inert : mapping
        For each parameter that changes no score (a matter of speed or memory), why it does not.

    Parameters
    ----------
    precision : {"float32", "float64"}
        Arithmetic of the score.  Statistics are accumulated in float64 either way.
    """

    api_version: ClassVar[int] = API_VERSION
    reference: ClassVar[Paper]
    formula: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ("logits",)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    alternatives: ClassVar[Mapping[str, str]] = {}
    toy: ClassVar[Mapping[str, Any]] = {}
    inert: ClassVar[Mapping[str, str]] = {}

    name: ClassVar[str] = ""
    """What the registry knows it by; set on the instance."""

    precision: Precision = "float32"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for name, value in self.parameters.items():
            setattr(self, name, _checked(type(self), name, hints[name], value))
        self.validate()
        self._fitted = False
        self._head: Head | None = None
        self._widths: tuple[int | None, int | None] = (None, None)

    # -- what a plugin writes ------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise :class:`ParameterError` for a value out of range.  Types are checked before."""

    def check(self, context: TrainContext) -> None:
        """Raise :class:`StatisticError` where the training set is too small for the parameters, before any pass."""

    @property
    def columns(self) -> Sequence[Column]:
        """Columns to be computed from pixels; none by default."""
        return ()

    @property
    def statistics(self) -> Sequence[Statistic]:
        """Training statistics of the first round: by default every :class:`Statistic` among the class attributes."""
        found: dict[str, Statistic] = {}
        for cls in reversed(type(self).__mro__):
            found.update({key: value for key, value in vars(cls).items() if isinstance(value, Statistic)})
        return tuple(found.values())

    def statistics_for(self, head: Head | None) -> Sequence[Statistic]:
        """The first round under a head, where the head decides; :attr:`statistics` by default."""
        return self.statistics

    def refine(self, stats: TrainStatistics, head: Head | None) -> Sequence[Statistic]:
        """Statistics of a further round, where those before decide what is needed; none by default.

        Asked again after every round, until nothing that is missing from ``stats`` is wanted.
        """
        return ()

    def learn(self, stats: TrainStatistics, head: Head | None) -> None:
        """Set what scoring needs, as tensors on ``self``.

        Public tensor attributes are the detector's :meth:`state`; attributes with a leading underscore are caches that
        must be rebuilt from them.
        """

    @abstractmethod
    def score_block(self, block: Block) -> Tensor:
        """Scores (n,) of a block that is already at :attr:`precision`.

        Several blocks are scored side by side: set nothing on ``self`` here.
        """

    # -- what the base class gives -------------------------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of :attr:`precision`."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def learns(self, head: Head | None) -> bool:
        """Whether fitting reads training rows, under a head."""
        return bool(self.statistics_for(head)) or type(self).refine is not Detector.refine

    @classmethod
    def configured(cls, preset: str | None = None, **parameters: Any) -> Self:
        """An instance with a preset's values, overridden by explicit parameters.

        Raises
        ------
        ParameterError
            Unknown preset or parameter, or a value of the wrong type or range.
        """
        if preset is not None and preset not in cls.presets:
            raise ParameterError(f"{cls.__name__} has no preset {preset!r}; have {sorted(cls.presets) or 'none'}")
        known = [f.name for f in dataclasses.fields(cls)]
        for name in parameters:
            if name not in known:
                raise ParameterError(f"{cls.__name__} has no parameter {name!r}; have {known}")
        return cls(**{**(cls.presets[preset] if preset else {}), **parameters})

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, ``precision`` included."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @property
    def head(self) -> Head:
        """The head that the detector was fitted with.

        Raises
        ------
        InputError
            It was fitted without one.
        """
        if self._head is None:
            raise InputError(f"{type(self).__name__} needs the head; pass FeatureSet(head=...)")
        return self._head

    def fit(self, train: FeatureSet) -> Self:
        """Learn from a training set.

        Parameters
        ----------
        train : FeatureSet
            With labels, logits and head as far as the detector's statistics and score need them.

        Raises
        ------
        InputError, StatisticError
            Something is missing, not finite, or too small to mean anything; the message says what would mend it.
        """
        from fiood_core.scoring import fit_all

        fit_all([self], train)
        return self

    def forget(self) -> None:
        """Drop all that an earlier fit left behind."""
        for name in [n for n in vars(self) if n.startswith("_")] + list(self._learned()):
            delattr(self, name)
        self._fitted, self._head, self._widths = False, None, (None, None)

    def finish_fit(self, stats: TrainStatistics, head: Head | None) -> None:
        """Forget an earlier fit, learn from collected statistics, and check what was learned."""
        self.forget()
        self._head = head
        self._widths = (stats.context.dim, stats.context.num_classes)
        if "head" in self.needs and head is None:
            raise InputError(f"{type(self).__name__} needs the head; pass FeatureSet(head=...)")
        self.learn(stats, head)
        for name, value in self._learned().items():
            if not isinstance(value, Tensor):
                raise InputError(
                    f"{type(self).__name__}.learn set {name!r} to a {type(value).__name__}; "
                    "what is learned must be a tensor (or begin with an underscore if it is a cache)"
                )
        self._fitted = True

    def score(self, batch: FeatureSet) -> np.ndarray:
        """Scores of every row; larger is more in-distribution.

        Returns
        -------
        ndarray (n,), float64

        Raises
        ------
        NotFittedError
            The detector learns from training data and has not been fitted.
        ResultError
            A score is NaN or infinite; the message names the rows.
        """
        from fiood_core.scoring import score_fitted

        return score_fitted({"score": self}, batch)["score"]

    def require_fitted(self, head: Head | None = None) -> None:
        """Raise unless the detector is fitted or has nothing to learn, under the head that comes with a batch."""
        if not self._fitted and (self.learns(head) or "head" in self.needs):
            raise NotFittedError(f"{type(self).__name__} has not been fitted; call fit(train) first")

    def require_fit_for(self, batch: FeatureSet) -> None:
        """Raise unless the detector is fitted, and to rows as wide as the batch's."""
        self.require_fitted(batch.head)
        if not self._learned():
            return
        for what, fitted, given in zip(WIDE, self._widths, (batch.dim, batch.num_classes), strict=True):
            if what in self.needs and None not in (fitted, given) and fitted != given:
                raise InputError(
                    f"{type(self).__name__} was fitted to {what} of width {fitted}, got {what} of width {given}; "
                    "score what the same model gives"
                )

    def state(self) -> dict[str, Tensor]:
        """All that was learned, with the parameters, as plain tensors (safetensors can hold it)."""
        self.require_fitted()
        state = dict(self._learned())
        text = json.dumps(self.parameters, sort_keys=True).encode()
        state[PARAMETERS_KEY] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        state[WIDTHS_KEY] = torch.tensor([width or 0 for width in self._widths])
        if "head" in self.needs:
            head = self.head
            tau = None if head.temperature is None else torch.tensor(head.temperature, dtype=torch.float64)
            parts = zip(HEAD_KEYS, (head.weight, head.bias, tau), strict=True)
            state.update({key: part for key, part in parts if part is not None})
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Tensor]) -> Self:
        """The detector that :meth:`state` was taken from; it scores the same."""
        parameters = json.loads(bytes(state[PARAMETERS_KEY].tolist()))
        self = cls(**parameters)
        for name, value in state.items():
            if not name.startswith("__"):
                setattr(self, name, value)
        dim, num_classes = state[WIDTHS_KEY].tolist()
        self._widths = (dim or None, num_classes or None)
        weight, bias, tau = (state.get(key) for key in HEAD_KEYS)
        if weight is not None:
            self._head = Head(weight, bias, temperature=None if tau is None else float(tau))
        self._fitted = True
        return self

    def _learned(self) -> dict[str, Any]:
        given = {"name", *self.parameters}
        return {k: v for k, v in vars(self).items() if k not in given and not k.startswith("_")}

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.parameters.items())
        return f"{type(self).__name__}({inner})"


def _checked(cls: type, name: str, hint: Any, value: Any) -> Any:
    """``value`` as its annotation asks, an int widened to float; or a :class:`ParameterError`."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for option in typing.get_args(hint) if union else (hint,):
        if typing.get_origin(option) is Literal and value in typing.get_args(option):
            return value
        if option is type(None) and value is None:
            return value
        if option is bool and isinstance(value, (bool, np.bool_)):
            return bool(value)
        if option is int and isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return int(value)
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if option is float and number and not math.isnan(value):
            return float(value)
        if option is str and isinstance(value, str):
            return value
        sequence = typing.get_origin(option) in (tuple, list, Sequence) or option in (tuple, list)
        if sequence and (isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim == 1)):
            inner = (typing.get_args(option) or (Any,))[0]
            return tuple(_checked(cls, name, inner, item) for item in value)
        if option in (Any, object):
            return value
    shown = getattr(hint, "__name__", None) or str(hint).replace("typing.", "")
    raise ParameterError(f"{cls.__name__}: parameter {name!r} must be {shown}, got {value!r}")


make_callable(__name__)
