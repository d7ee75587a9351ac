"""Columns: whatever must be computed from pixels, stored under a key and read by detectors.

Features and logits are columns that every backbone gives.  A detector that needs more (a gradient, dropout passes, an
inner layer, patches) declares a :class:`Column`; the extractor computes all that a plan needs while the images pass by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from fiood_core.backbone import Backbone
    from fiood_core.head import Head


@dataclass
class ImageBatch:
    """What a column sees of one batch.

    Attributes
    ----------
    images : Tensor (n, 3, H, W)
        Transformed images on the backbone's device.
    features : Tensor (n, D)
    logits : Tensor (n, C)
    captured : dict
        What the column's own hooks put there during the forward pass (see :meth:`Column.watch`).
    """

    images: Tensor
    features: Tensor
    logits: Tensor
    captured: dict[str, Any] = field(default_factory=dict)


class Column(ABC):
    """A per-image array computed from pixels.

    Attributes
    ----------
    key : str
        Name and every parameter that changes a value, e.g. ``"odin[temperature=2.0,magnitude=1e-05]"``.  Equal keys
        are computed once for all detectors.
    needs_head : bool
        Whether values depend on the head; then the store keeps the column under the head's digest too.
    vision_language : bool
        Whether only a vision-language model can give it.
    """

    needs_head: bool = False
    vision_language: bool = False

    @property
    @abstractmethod
    def key(self) -> str: ...

    def watch(self, backbone: Backbone, captured: dict[str, Any]) -> AbstractContextManager[Any]:
        """A context around the one shared forward pass, for hooks that fill ``captured``."""
        return nullcontext()

    @abstractmethod
    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        """Values (n, …) of one batch, float32.  May run the backbone again; must leave it in eval mode."""
