"""Activation shaping: the scale that ASH-S and SCALE take from a row's largest activations, and the energy after it."""

from __future__ import annotations

import torch
from torch import Tensor

from fiood_core.errors import ParameterError
from fiood_core.features import Block
from fiood_core.head import Head
from fiood_core.linalg import log_sum_exp

HUGE = 80.0
"""Exponent above which a row's energy is taken in float64; float32 overflows at 88."""


def kept_activations(dim: int, percentile: float) -> int:
    """How many of ``dim`` activations stay above a percentile, the number below it rounded half to even.

    Raises
    ------
    ParameterError
        None would stay.
    """
    kept = dim - round(dim * percentile / 100)
    if kept < 1:
        raise ParameterError(f"percentile {percentile:g} keeps none of {dim} activations; lower it")
    return kept


def shaping_exponent(block: Block, kept: int) -> Tensor:
    """Sum of all activations over the sum of the ``kept`` largest (n,); 1 for a zero row, where any value will do.

    Signed features give small or negative exponents, which is what the published methods do to them.
    """
    total = block.features.sum(dim=1)
    top = block.ascending_features[:, -kept:].sum(dim=1)
    return torch.where((total == 0) & (top == 0), torch.ones_like(total), total / top)


def scaled_energy(head: Head, features: Tensor, exponent: Tensor) -> Tensor:
    """log Σ exp of the head's logits (n,) for features times exp(exponent), rows with huge exponents in float64."""
    huge = (exponent > HUGE).nonzero().flatten()
    energy = log_sum_exp(head(features * exponent.exp()[:, None]))
    if len(huge):
        energy = energy.double()
        energy[huge] = log_sum_exp(head(features[huge].double() * exponent[huge].double().exp()[:, None]))
    return energy
