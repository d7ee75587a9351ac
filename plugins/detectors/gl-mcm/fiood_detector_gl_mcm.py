"""Concept matching of the image and of its best patch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fiood_core import Block, Column, Detector, Paper
from fiood_core.backbone import Backbone, VisionLanguageBackbone
from fiood_core.column import ImageBatch
from fiood_core.errors import InputError, ParameterError
from fiood_core.head import Head, as_floating

Local = Literal["block+pool", "pool"]

PATCHES_AT_ONCE = 8192
"""Patches whose logits exist together."""


class GLMCM(Detector):
    """Largest posterior of the image plus ``weight`` times the largest posterior of any of its patches.

    Parameters
    ----------
    weight : float
        λ of the local term; 0 gives maximum concept matching.
    local : {"block+pool", "pool"}
        Patches from the last block's value branch, or from its unmodified tokens; see :mod:`fiood_core.value_branch`.
    """

    reference = Paper(
        "GL-MCM: Global and Local Maximum Concept Matching for Zero-Shot Out-of-Distribution Detection",
        2023,
        arxiv="2304.04521",
        code="https://github.com/AtsuMiyai/GL-MCM",
    )
    formula = "max_c p_c + λ max_{i,c} softmax_c(patch_i · t_c / τ)"
    cost = "t·C; the column takes t·N·D·C for N patches"
    needs = ("logits",)
    alternatives = {"weight": "the official ImageNet script passes 0.5; its default, and Fi-ImageNet-1k's, is 1"}

    weight: float = 1.0
    local: Local = "block+pool"

    def validate(self) -> None:
        if self.weight < 0:
            raise ParameterError(f"GLMCM: weight must not be negative, got {self.weight}")

    @property
    def columns(self) -> Sequence[Column]:
        """The local maximum, reduced while the images pass by: patches are too large to store."""
        return (LocalMaximum(self.local),)

    def score_block(self, block: Block) -> Tensor:
        """Global and local maximum, weighted."""
        local = block.column(LocalMaximum(self.local).key).double()
        return block.log_posterior.amax(dim=1).exp() + self.weight * local.exp()


@dataclass(frozen=True)
class LocalMaximum(Column):
    """Log of the largest class posterior of any patch, (n,).

    A logarithm, since float32 would round every posterior above 1 - 6e-8 to 1.
    """

    local: Local = "block+pool"
    needs_head = True
    vision_language = True

    @property
    def key(self) -> str:
        return f"gl-mcm[local={self.local}]"

    def watch(self, backbone: Backbone, captured: dict[str, Any]) -> AbstractContextManager[Any]:
        """Catches the tokens that enter (or, for ``"pool"``, leave) the tower's last block."""
        block = _vision_language(backbone).value_branch.block
        if block is None:
            raise InputError("the backbone's value branch names no block; gl-mcm catches the tokens there")
        if self.local == "pool":
            return block.register_forward_hook(lambda _module, _args, out: captured.update(tokens=out))
        return block.register_forward_pre_hook(
            lambda _module, args, kwargs: captured.update(tokens=args[0] if args else kwargs["hidden_states"]),
            with_kwargs=True,
        )

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        """Patches in the joint space, matched with the concepts."""
        branch = _vision_language(backbone).value_branch
        tokens = batch.captured["tokens"].float()
        patches = branch.pooled(tokens) if self.local == "pool" else branch(tokens)
        return log_local_maximum(patches, head).float()


def log_local_maximum(patches: Any, head: Head) -> Tensor:
    """Log of the largest posterior (n,) over patches (n, N, d) and the head's classes, streamed over patches."""
    patches = as_floating(patches, "patches")
    best = [top - log_sum_exp for top, log_sum_exp in map(head.reduce, patches.flatten(0, 1).split(PATCHES_AT_ONCE))]
    return torch.cat(best).reshape(patches.shape[:2]).amax(dim=1)


def _vision_language(backbone: Backbone) -> VisionLanguageBackbone:
    if not isinstance(backbone, VisionLanguageBackbone):
        raise InputError(f"gl-mcm needs a vision-language model's patches; {type(backbone).__name__} is none")
    return backbone
