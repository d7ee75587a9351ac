"""ODIN: softmax at a temperature, after a step that raises the confidence of the predicted class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fiood_core import Block, Column, Detector, Paper
from fiood_core.backbone import Backbone
from fiood_core.column import ImageBatch
from fiood_core.errors import ParameterError
from fiood_core.head import Head

IMAGENET_STD = (0.229, 0.224, 0.225)
"""The deviation by which COOD divides the step, whatever the model's own is."""

Loss = Literal["softmax-twice", "textbook"]


class ODIN(Detector):
    """Largest posterior at temperature T of the image moved by ε against the sign of a loss's gradient.

    Parameters
    ----------
    temperature : float
        T of the final softmax.
    magnitude : float
        ε, in units of the pixels before they were divided by ``std``.
    loss : {"softmax-twice", "textbook"}
        COOD takes the cross-entropy of the softmax, so softmax twice, at temperature 1; the paper that of the logits
        over T.  The predicted class is the target.
    std : sequence of three floats
        What the step is divided by, channel by channel.
    """

    reference = Paper(
        "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks",
        2018,
        arxiv="1706.02690",
        code="https://github.com/mdabbah/COOD_benchmarking",
    )
    formula = "max_c softmax(f(x − ε sgn(∇ loss)/std)/T)_c"
    cost = "two forward passes and one backward pass of the network, while the images pass by"
    needs = ()
    presets = {
        "cood": {"temperature": 2.0, "magnitude": 1e-5, "loss": "softmax-twice"},
        "original": {"temperature": 1000.0, "magnitude": 0.0014, "loss": "textbook"},
    }
    alternatives = {
        "temperature": "2 in COOD, 1000 in the paper and OpenOOD",
        "magnitude": "1e-5 in COOD, 0.0014 in both",
    }

    temperature: float = 2.0
    magnitude: float = 1e-5
    loss: Loss = "softmax-twice"
    std: Sequence[float] = IMAGENET_STD

    def validate(self) -> None:
        """Refuse what is no temperature, step or deviation."""
        if not self.temperature > 0 or self.magnitude < 0:
            raise ParameterError(
                f"odin needs temperature > 0 and magnitude >= 0, got {self.temperature} and {self.magnitude}"
            )
        if len(self.std) != 3 or not all(value > 0 for value in self.std):
            raise ParameterError(f"odin: std must be three positive numbers, got {self.std!r}")

    @property
    def columns(self) -> Sequence[Column]:
        """The confidence, computed where the pixels are."""
        return (OdinConfidence(self.temperature, self.magnitude, self.loss, tuple(self.std)),)

    def score_block(self, block: Block) -> Tensor:
        """The stored confidence."""
        return block.column(self.columns[0].key)


class OdinConfidence(Column):
    """Largest posterior (n,) of the moved image."""

    needs_head = True

    def __init__(self, temperature: float, magnitude: float, loss: Loss, std: tuple[float, ...]) -> None:
        self.temperature, self.magnitude, self.loss, self.std = temperature, magnitude, loss, std

    @property
    def key(self) -> str:
        return f"odin[temperature={self.temperature!r},magnitude={self.magnitude!r},loss={self.loss},std={self.std!r}]"

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        std = torch.tensor(self.std, dtype=batch.images.dtype, device=batch.images.device)[:, None, None]
        with torch.enable_grad():
            images = batch.images.detach().clone().requires_grad_()
            logits = backbone.forward(images).logits
            given = logits.softmax(dim=1) if self.loss == "softmax-twice" else logits / self.temperature
            loss = cross_entropy(given, logits.argmax(dim=1), reduction="sum")
            (gradient,) = torch.autograd.grad(loss, images)
        step = torch.where(gradient >= 0, 1.0, -1.0) * self.magnitude / std  # the sign of zero is +1
        with torch.no_grad():
            moved = backbone.forward(batch.images - step).logits
        return (moved.float() / self.temperature).softmax(dim=1).amax(dim=1)
