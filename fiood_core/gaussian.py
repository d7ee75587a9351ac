"""The Gaussians of the Mahalanobis family: fitted once for all its members, and measured once a block."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fiood_core.features import Block
from fiood_core.linalg import inverse_root, nearest_squared_distance, squared_norms
from fiood_core.moments import ClassMeans, Moments, within_covariance
from fiood_core.statistics import TrainStatistics


class TiedGaussian(NamedTuple):
    """Classes with one covariance; the squared Mahalanobis distance is Euclidean after whitening.

    Attributes
    ----------
    origin : Tensor (D,)
        Mean of all features, taken out first so that nothing cancels.
    whiten : Tensor (D, rank)
    means : Tensor (K, rank)
        Whitened class means.
    """

    origin: Tensor
    whiten: Tensor
    means: Tensor


class Background(NamedTuple):
    """One Gaussian over all training features.

    Attributes
    ----------
    origin : Tensor (D,)
    whiten : Tensor (D, rank)
    """

    origin: Tensor
    whiten: Tensor


def tied_gaussian(stats: TrainStatistics, moments: Moments, means: ClassMeans, dtype: torch.dtype) -> TiedGaussian:
    """The class Gaussians of a training set, fitted in float64; the same object for equal arguments."""

    def fit() -> TiedGaussian:
        covariance, noise = within_covariance(stats[moments], stats[means])
        whiten = inverse_root(covariance, f"within-class covariance ({moments.key})", noise)
        centres = (stats[means].offsets - stats[moments].offset) @ whiten
        return TiedGaussian(*(t.to(dtype) for t in (stats[moments].mean, whiten, centres)))

    return stats.derive(("tied gaussian", moments.key, means.key, dtype), fit)


def background(stats: TrainStatistics, moments: Moments, dtype: torch.dtype) -> Background:
    """The Gaussian over all training features, fitted in float64; the same object for equal arguments."""

    def fit() -> Background:
        whiten = inverse_root(stats[moments].covariance, f"covariance ({moments.key})")
        return Background(stats[moments].mean.to(dtype), whiten.to(dtype))

    return stats.derive(("background", moments.key, dtype), fit)


def nearest_class_distance(block: Block, gaussian: TiedGaussian, *, unit: bool = False) -> Tensor:
    """Squared Mahalanobis distance (n,) to the nearest class mean."""

    def measure() -> Tensor:
        return nearest_squared_distance(_whitened(block, gaussian.origin, gaussian.whiten, unit), gaussian.means)

    return block.once(("nearest class", id(gaussian.whiten), id(gaussian.means), unit), measure)


def background_distance(block: Block, gaussian: Background, *, unit: bool = False) -> Tensor:
    """Squared Mahalanobis distance (n,) to the mean of all training features."""
    return squared_norms(_whitened(block, gaussian.origin, gaussian.whiten, unit))


def _whitened(block: Block, origin: Tensor, whiten: Tensor, unit: bool) -> Tensor:
    features = block.unit_features if unit else block.features
    return (features - origin) @ whiten
