"""Directions of the class means, and the cosines of a block with them: shared by detectors that go by angle."""

from __future__ import annotations

import torch
from torch import Tensor

from fiood_core.features import Block
from fiood_core.linalg import unit
from fiood_core.moments import ClassMeans
from fiood_core.statistics import TrainStatistics


def class_directions(stats: TrainStatistics, means: ClassMeans, dtype: torch.dtype) -> Tensor:
    """Class means over their norm (K, D); the same tensor for equal arguments."""
    return stats.derive(("class directions", means.key, dtype), lambda: unit(stats[means].means).to(dtype))


def cosines(block: Block, directions: Tensor) -> Tensor:
    """Cosines (n, K) of the features with unit directions (K, D); a zero row has cosine 0 with all."""
    return block.once(("cosines", id(directions)), lambda: block.unit_features @ directions.T)
