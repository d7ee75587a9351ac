"""The linear head of a classifier, or the text embeddings of a vision-language model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiood_core.errors import InputError

CHUNK_ROWS = 1024
"""Head rows whose logits exist at once in :meth:`Head.reduce`: a few thousand images' worth stays in memory."""


class Head:
    """A linear map from penultimate features to logits.

    ``logits = (features @ weight.T + bias) / temperature``.

    Parameters
    ----------
    weight : array (C, D)
        NumPy or torch; kept as a contiguous CPU tensor in its own floating dtype.
    bias : array (C,), optional
    temperature : float, optional
        τ of a vision-language head; ``None`` means 1.
    classes : sequence of tuples of int, optional
        The class indices that each row stands for, when rows are distinct *names* and names are shared by classes
        (998 names for 1000 classes).  By default row ``i`` stands for class ``i``.

    Raises
    ------
    InputError
        Shapes do not fit, a value is not finite, or the temperature is not positive.
    """

    def __init__(
        self,
        weight: Any,
        bias: Any = None,
        *,
        temperature: float | None = None,
        classes: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.weight = _floating(weight, "head weight")
        if self.weight.ndim != 2:
            raise InputError(f"head weight must have shape (C, D), got {tuple(self.weight.shape)}")
        self.bias = None if bias is None else _floating(bias, "head bias").to(self.weight.dtype)
        if self.bias is not None and self.bias.shape != (self.num_rows,):
            raise InputError(f"head bias must have shape ({self.num_rows},), got {tuple(self.bias.shape)}")
        if temperature is not None and not temperature > 0:
            raise InputError(f"head temperature must be positive, got {temperature}")
        self.temperature = None if temperature is None else float(temperature)
        if classes is not None and len(classes) != self.num_rows:
            raise InputError(f"head classes must name the classes of each of {self.num_rows} rows, got {len(classes)}")
        self.classes = None if classes is None else tuple(tuple(int(c) for c in row) for row in classes)

    @property
    def num_rows(self) -> int:
        """C, the number of logits."""
        return self.weight.shape[0]

    @property
    def dim(self) -> int:
        """D, the width of the features."""
        return self.weight.shape[1]

    def scaled(self, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Weight (C, D) and bias (C,) with the temperature divided in and a missing bias as zeros."""
        dtype = dtype or self.weight.dtype
        weight = self.weight.to(dtype)
        bias = torch.zeros(self.num_rows, dtype=dtype) if self.bias is None else self.bias.to(dtype)
        if self.temperature is None:
            return weight, bias
        return weight / self.temperature, bias / self.temperature

    def __call__(self, features: Tensor) -> Tensor:
        """Logits (n, C) of features (n, D), in the features' dtype and on their device."""
        if features.shape[-1] != self.dim:
            raise InputError(f"the head takes features of width {self.dim}, got {features.shape[-1]}")
        weight = self.weight.to(device=features.device, dtype=features.dtype)
        bias = None if self.bias is None else self.bias.to(device=features.device, dtype=features.dtype)
        logits = torch.nn.functional.linear(features, weight, bias)
        return logits if self.temperature is None else logits / self.temperature

    def reduce(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Largest logit (n,) and log Σ exp(logits) (n,) in float64 of features (n, D), never holding all logits.

        For heads of tens of thousands of labels.  Exponentials are taken in the features' dtype against the running
        maximum, so that none overflows and what underflows is below its last bit; the sums are kept in float64.
        Without rows both are -inf.
        """
        if features.shape[-1] != self.dim:
            raise InputError(f"the head takes features of width {self.dim}, got {features.shape[-1]}")
        scaled = features if self.temperature is None else features / self.temperature
        weight, bias = self.weight.to(scaled), None if self.bias is None else self.scaled(scaled.dtype)[1].to(scaled)
        wide = torch.float32 if scaled.device.type == "mps" else torch.float64  # Apple's GPUs have no float64
        top = scaled.new_full((len(scaled),), -torch.inf)
        total = scaled.new_zeros(len(scaled), dtype=wide)
        for start in range(0, self.num_rows, CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            logits = torch.nn.functional.linear(scaled, weight[rows], None if bias is None else bias[rows])
            new_top = torch.maximum(top, logits.amax(dim=1))
            total *= (top.to(wide) - new_top.to(wide)).exp()
            total += logits.sub_(new_top[:, None]).exp_().sum(dim=1)
            top = new_top
        return top.to(wide), total.log() + top.to(wide)

    @property
    def digest(self) -> str:
        """SHA-256 over the values, dtype, temperature and classes."""
        sha = hashlib.sha256(repr((self.weight.dtype, self.temperature, self.classes)).encode())
        for tensor in (self.weight, self.bias):
            if tensor is not None:
                sha.update(repr(tuple(tensor.shape)).encode())
                sha.update(tensor.numpy().tobytes())
        return sha.hexdigest()

    def __repr__(self) -> str:
        tail = "" if self.temperature is None else f", temperature={self.temperature:g}"
        return f"Head({self.num_rows} × {self.dim}{', no bias' if self.bias is None else ''}{tail})"


def _floating(value: Any, what: str) -> Tensor:
    tensor = as_floating(value, what).detach().to("cpu").contiguous()
    if tensor.dtype.itemsize < 4:
        tensor = tensor.float()
    if not bool(torch.isfinite(tensor).all()):
        raise InputError(f"{what} holds NaN or infinite values; check how the model was loaded")
    return tensor


def as_floating(value: Any, what: str) -> Tensor:
    """An array or nested list as a floating tensor; Python's own numbers are float64, and stay it."""
    given = value if isinstance(value, Tensor) else np.asarray(value)
    require_real(given, what)
    tensor = torch.as_tensor(given)
    return tensor if tensor.dtype.is_floating_point else tensor.float()


def require_real(values: Any, what: str) -> None:
    """Raise :class:`InputError` where a tensor or array holds complex numbers, text or objects."""
    odd = values.is_complex() if isinstance(values, Tensor) else values.dtype.kind not in "fiub"
    if odd:
        raise InputError(f"{what} must be real numbers, got {values.dtype}")
