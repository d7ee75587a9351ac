"""The Gaussians of the Mahalanobis family: fitted once for all its members, and measured once a block."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from fiood_core.features import Block
from fiood_core.linalg import inverse_root, nearest_squared_distance, row_norms, squared_norms
from fiood_core.moments import ClassMeans, Moments, within_covariance
from fiood_core.statistics import TrainStatistics

FINE = 5.0
"""Root mean variance of all directions over a direction's, from which whitening that direction takes float64.

Directions of small variance magnify float32's rounding of the features; below this, distances of up to 1000 move by
less than 1e-3.
"""


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


def tied_gaussian(stats: TrainStatistics, moments: Moments, means: ClassMeans) -> TiedGaussian:
    """The class Gaussians of a training set, in float64; the same tensors for equal arguments."""

    def fit() -> TiedGaussian:
        covariance, noise = within_covariance(stats[moments], stats[means])
        whiten = inverse_root(covariance, f"within-class covariance ({moments.key})", noise)
        centres = (stats[means].offsets - stats[moments].offset) @ whiten
        return TiedGaussian(_origin(stats, moments), whiten, centres)

    return stats.derive(("tied gaussian", moments.key, means.key), fit)


def background(stats: TrainStatistics, moments: Moments) -> Background:
    """The Gaussian over all training features, in float64; the same tensors for equal arguments."""

    def fit() -> Background:
        whiten = inverse_root(stats[moments].covariance, f"covariance ({moments.key})")
        return Background(_origin(stats, moments), whiten)

    return stats.derive(("background", moments.key), fit)


def nearest_class_distance(block: Block, gaussian: TiedGaussian, *, unit: bool = False) -> Tensor:
    """Squared Mahalanobis distance (n,) to the nearest class mean."""

    def measure() -> Tensor:
        z = _whitened(block, gaussian.origin, gaussian.whiten, unit)
        return nearest_squared_distance(z, gaussian.means.to(block.dtype))

    return block.once(("nearest class", id(gaussian.whiten), id(gaussian.means), unit), measure)


def background_distance(block: Block, gaussian: Background, *, unit: bool = False) -> Tensor:
    """Squared Mahalanobis distance (n,) to the mean of all training features."""
    return squared_norms(_whitened(block, gaussian.origin, gaussian.whiten, unit))


def _origin(stats: TrainStatistics, moments: Moments) -> Tensor:
    mean: Tensor = stats.derive(("origin", moments.key), lambda: stats[moments].mean)
    return mean


def _whitened(block: Block, origin: Tensor, whiten: Tensor, unit: bool) -> Tensor:
    """Features minus origin, whitened (n, rank); directions in which float32 would lose too much, in float64."""
    z = _centred(block, origin, unit) @ whiten.to(block.dtype)
    if block.precision == "float32":
        gain = row_norms(whiten.T)
        fine = gain * gain.reciprocal().square().mean().sqrt() > FINE
        if bool(fine.any()):
            z[:, fine] = (_centred(block.at("float64"), origin, unit) @ whiten[:, fine]).float()
    return z


def _centred(block: Block, origin: Tensor, unit: bool) -> Tensor:
    features = block.unit_features if unit else block.features
    return block.once(("centred", id(origin), unit), lambda: features - origin.to(block.dtype))
