"""ASH-S: energy of the largest activations, scaled up."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import ParameterError
from fiood_core.linalg import largest_mask
from fiood_core.shaping import kept_activations, scaled_energy, shaping_exponent


class ASHS(Detector):
    """Energy after all but a row's largest activations are set to 0 and the rest are scaled.

    The pooled features are shaped, as they enter the head.  Ties at the boundary go to the lowest index.

    Parameters
    ----------
    percentile : float
        Share of activations, in percent, that is set to 0.
    """

    reference = Paper(
        "Extremely Simple Activation Shaping for Out-of-Distribution Detection",
        2023,
        arxiv="2209.09858",
        code="https://github.com/andrijazz/ash",
    )
    formula = "log Σ_c exp(W x' + b)_c, x' = exp(Σ x / Σ_top x) · x on the top (100 − percentile) %, else 0"
    cost = "t·D·C"
    needs = ("features", "head")
    alternatives = {
        "percentile": "90 for ResNet-50 in the paper and in maha-norm, 95 for ViT in the official code; "
        "OpenOOD's ash is another method, ASH-B at 90"
    }

    percentile: float = 90.0

    def validate(self) -> None:
        """Refuse what is no percentile."""
        if not 0 <= self.percentile < 100:
            raise ParameterError(f"ash-s needs a percentile from 0 to below 100, got {self.percentile}")

    def score_block(self, block: Block) -> Tensor:
        """Energy of the shaped features."""
        x = block.features
        kept = kept_activations(x.shape[1], self.percentile)
        mask = largest_mask(x, block.ascending_features, kept)
        return scaled_energy(self.head, x * mask.to(x.dtype), shaping_exponent(block, kept))
