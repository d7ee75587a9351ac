"""SCALE: energy of scaled activations."""

from __future__ import annotations

from torch import Tensor

from fiood_core import Block, Detector, Paper
from fiood_core.errors import ParameterError
from fiood_core.shaping import kept_activations, scaled_energy, shaping_exponent


class SCALE(Detector):
    """Energy after a row is scaled by the share of its largest activations in its sum; nothing is pruned.

    Parameters
    ----------
    percentile : float
        Percentile above which activations count as large.
    """

    reference = Paper(
        "Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement",
        2024,
        arxiv="2310.00227",
        code="https://github.com/kai422/SCALE",
    )
    formula = "log Σ_c exp(W x' + b)_c, x' = exp(Σ x / Σ_top x) · x, top = largest (100 − percentile) %"
    cost = "t·D·C"
    needs = ("features", "head")
    alternatives = {
        "percentile": "85 in the paper, OpenOOD and maha-norm; the paper sweeps 50 to 95 and OpenOOD 65 to 95 on OOD "
        "validation data"
    }

    percentile: float = 85.0

    def validate(self) -> None:
        """Refuse what is no percentile."""
        if not 0 <= self.percentile < 100:
            raise ParameterError(f"scale needs a percentile from 0 to below 100, got {self.percentile}")

    def score_block(self, block: Block) -> Tensor:
        """Energy of the scaled features."""
        kept = kept_activations(block.features.shape[1], self.percentile)
        return scaled_energy(self.head, block.features, shaping_exponent(block, kept))
