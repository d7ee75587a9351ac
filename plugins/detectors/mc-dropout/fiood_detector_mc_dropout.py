"""Monte Carlo dropout: confidence from passes with the dropout layers at work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from fiood_core import Block, Column, Detector, Paper
from fiood_core.backbone import Backbone
from fiood_core.column import ImageBatch
from fiood_core.errors import InputError, ParameterError
from fiood_core.head import Head

DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
Measure = Literal["entropy", "mutual-information"]


class MCDropout(Detector):
    """Minus the entropy of the mean posterior over passes with dropout, or minus their mutual information.

    Only dropout layers are put to work; batch norms and stochastic depth stay as they are.  A model whose dropout
    layers are all at rate 0, or that has none, is refused: its score would be the plain entropy under another name.

    Parameters
    ----------
    passes : int
    measure : {"entropy", "mutual-information"}
        Entropy of the mean posterior (COOD's ``mcd_entropy``), or that less the mean entropy of the posteriors.
    """

    reference = Paper(
        "Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning",
        2016,
        arxiv="1506.02142",
        code="https://github.com/mdabbah/COOD_benchmarking",
    )
    formula = "Σ_c m_c log m_c, m the mean posterior over passes; or that + mean entropy"
    cost = "passes × the network, while the images pass by"
    needs = ()
    presets = {"cood": {"passes": 30, "measure": "entropy"}}
    alternatives = {"measure": "OpenOOD's dropout averages logits and takes the largest posterior"}

    passes: int = 30
    measure: Measure = "entropy"

    def validate(self) -> None:
        """Refuse no pass at all."""
        if self.passes < 1:
            raise ParameterError(f"mc-dropout needs at least one pass, got {self.passes}")

    @property
    def columns(self) -> Sequence[Column]:
        """Both measures, computed where the pixels are."""
        return (DropoutUncertainty(self.passes),)

    def score_block(self, block: Block) -> Tensor:
        """The measure, negated; from injected posteriors ``dropout-samples`` (n, passes, C) where there are any."""
        if SAMPLES in block.source.columns:
            uncertainty = uncertainties(block.column(SAMPLES).double())
        else:
            uncertainty = block.column(self.columns[0].key)
        return -uncertainty[:, 0 if self.measure == "entropy" else 1]


SAMPLES = "dropout-samples"
"""Key under which posteriors of the passes can be injected instead of the column."""


class DropoutUncertainty(Column):
    """Entropy and mutual information (n, 2) over passes with dropout, in nats.

    The extractor seeds torch's generator by batch, so the passes are the same in every run.
    """

    needs_head = True

    def __init__(self, passes: int) -> None:
        self.passes = passes

    @property
    def key(self) -> str:
        return f"mc-dropout[passes={self.passes}]"

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        with torch.no_grad(), dropping(backbone.module):
            samples = [backbone.forward(batch.images).logits.double().softmax(dim=1) for _ in range(self.passes)]
        return uncertainties(torch.stack(samples, dim=1)).float()


def uncertainties(samples: Tensor) -> Tensor:
    """Entropy of the mean posterior, and mutual information (n, 2), of posteriors (n, passes, C)."""
    entropy = _entropy(samples.mean(dim=1))
    return torch.stack([entropy, (entropy - _entropy(samples).mean(dim=1)).clamp(min=0)], dim=1)


@contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """The module with its dropout layers, and nothing else, in training mode.

    Raises
    ------
    InputError
        No dropout layer has a rate above 0.
    """
    layers = [layer for layer in module.modules() if isinstance(layer, DROPOUT) and layer.p > 0]
    if not layers:
        raise InputError(
            f"mc-dropout: {type(module).__name__} has no dropout layer with a rate above 0; use entropy instead"
        )
    try:
        for layer in layers:
            layer.train()
        yield
    finally:
        for layer in layers:
            layer.eval()


def _entropy(posterior: Tensor) -> Tensor:
    entropy: Tensor = -torch.special.xlogy(posterior, posterior).sum(dim=-1)
    return entropy
