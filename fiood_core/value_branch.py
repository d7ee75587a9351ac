"""Patches in the joint space of image and text: the value branch of a vision tower's last block.

A patch token goes through the last residual block with the attention matrix replaced by the identity (value and output
projections, residual, MLP), the final norm and the projection.  Where the tower pools by attention instead of a class
token, the patch is pooled alone: the softmax over one key is 1, so query and keys drop out.  Everything is token-wise;
one forward pass whose tokens are caught before the last block is enough.

Source: GL-MCM (arXiv 2304.04521) and its official code for CLIP's class-token tower; the attention-pooled towers follow
by composing it with that code's treatment of CLIP's attention-pooled ResNet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fiood_core.errors import InputError
from fiood_core.head import as_floating

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ValueBranch:
    """The token-wise maps of a tower from the last block on.

    Attributes
    ----------
    attention : callable
        First norm, value projection, output projection and layer scale.
    mlp : callable
        Second norm, MLP and layer scale.
    head : callable
        Final norm, pooling of a token alone where the tower pools by attention, and projection.
    prefix : int
        Tokens before the patches that are dropped.
    block : nn.Module, optional
        The last block, for hooks.
    """

    attention: Map
    mlp: Map
    head: Map
    prefix: int
    block: nn.Module | None = None

    def __call__(self, tokens: Any) -> Tensor:
        """Unit embeddings (…, N, d) of the patches, from the tokens (…, prefix + N, D) that enter the last block."""
        patches = as_floating(tokens, "tokens")[..., self.prefix :, :]
        patches = patches + self.attention(patches)
        patches = patches + self.mlp(patches)
        return F.normalize(self.head(patches), dim=-1)

    def pooled(self, tokens: Any) -> Tensor:
        """Unit embeddings (…, N, d) of the unmodified tokens that leave the last block: only pooling is by token."""
        return F.normalize(self.head(as_floating(tokens, "tokens")[..., self.prefix :, :]), dim=-1)


def find(model: nn.Module) -> ValueBranch:
    """The value branch of a loaded model's vision tower, found by the tower's class.

    Parameters
    ----------
    model : nn.Module
        An open_clip model, or ``Aimv2Model`` of Hugging Face transformers; the vision tower alone is accepted for
        open_clip's own towers.

    Raises
    ------
    InputError
        The tower is none whose value branch is known; its class is named.
    """
    if type(model).__name__ == "Aimv2Model":
        return _aimv2(model)
    visual: Any = getattr(model, "visual", model)
    if type(visual).__name__ == "VisionTransformer" and hasattr(visual, "transformer"):
        return _open_clip(visual)
    if type(visual).__name__ == "TimmModel" and type(visual.trunk).__name__ in ("VisionTransformer", "Eva"):
        return _timm(visual)
    raise _unknown(visual)


def _unknown(visual: nn.Module, because: str = "") -> InputError:
    kind = type(visual)
    trunk = getattr(visual, "trunk", None)
    inner = f" (trunk {type(trunk).__module__}.{type(trunk).__qualname__})" if trunk is not None else ""
    return InputError(
        f"no value branch is known for the vision tower {kind.__module__}.{kind.__qualname__}{inner}{because}; known "
        "are open_clip's class-token VisionTransformer, timm's VisionTransformer and Eva with attention pooling, and "
        "Aimv2. Leave gl-mcm out for this model, or override the backbone's value_branch"
    )


def _third(weight: Tensor, bias: Tensor | None, part: int, of: int) -> Map:
    """The ``part``-th of ``of`` equal groups of rows of a fused projection."""
    rows = slice(weight.shape[0] // of * part, weight.shape[0] // of * (part + 1))
    return partial(F.linear, weight=weight[rows], bias=None if bias is None else bias[rows])


def _chain(*maps: Map | None) -> Map:
    steps = [step for step in maps if step is not None]

    def run(tokens: Tensor) -> Tensor:
        for step in steps:
            tokens = step(tokens)
        return tokens

    return run


def _residual(inner: Map) -> Map:
    return lambda tokens: tokens + inner(tokens)


def _open_clip(visual: Any) -> ValueBranch:
    """open_clip's VisionTransformer with a class token: the official code, line by line."""
    block = visual.transformer.resblocks[-1]
    plain = visual.pool_type == "tok" and visual.attn_pool is None and not visual.final_ln_after_pool
    if not plain or type(block).__name__ != "ResidualAttentionBlock" or visual.proj is None:
        raise _unknown(visual, f" with {type(block).__name__} blocks and pooling {visual.pool_type!r}")
    attention = block.attn
    return ValueBranch(
        attention=_chain(
            block.ln_1, _third(attention.in_proj_weight, attention.in_proj_bias, 2, 3), attention.out_proj, block.ls_1
        ),
        mlp=_chain(block.ln_2, block.mlp, block.ls_2),
        head=_chain(visual.ln_post, lambda tokens: tokens @ visual.proj),
        prefix=1,
        block=block,
    )


def _timm(visual: Any) -> ValueBranch:
    """timm's VisionTransformer (SigLIP) or Eva (Perception Encoder), pooled by attention, in open_clip's TimmModel."""
    trunk = visual.trunk
    block, pool = trunk.blocks[-1], trunk.attn_pool
    attention = block.attn
    if pool is None or pool.pos_embed is not None or pool.latent_len != 1:
        raise _unknown(visual, f" with pooling {trunk.global_pool!r}")
    if getattr(attention, "qkv", None) is None or getattr(attention, "gate", None) is not None:
        raise _unknown(visual, f" with {type(attention).__name__} of separate or gated projections")
    eva = type(trunk).__name__ == "Eva"
    scales = [block.gamma_1, block.gamma_2] if eva else [block.ls1, block.ls2]
    first, second = (partial(torch.mul, other=s) if isinstance(s, Tensor) else s for s in scales)
    return ValueBranch(
        attention=_chain(
            block.norm1, _third(attention.qkv.weight, attention.qkv.bias, 2, 3), attention.norm, attention.proj, first
        ),
        mlp=_chain(block.norm2, block.mlp, second),
        head=_chain(
            trunk.norm,
            _third(pool.kv.weight, pool.kv.bias, 1, 2),
            pool.proj,
            None if pool.mlp is None else _residual(_chain(pool.norm, pool.mlp)),
            trunk.fc_norm,
            trunk.head,
            visual.head,
        ),
        prefix=trunk.num_prefix_tokens,
        block=block,
    )


def _aimv2(model: Any) -> ValueBranch:
    """Hugging Face's Aimv2Model: no class token among the tokens, RMS norms, an attention-pooling head without MLP."""
    vision = model.vision_model
    if not vision.use_head:
        raise _unknown(vision, " without its pooling head")
    block = vision.encoder.layers[-1]
    return ValueBranch(
        attention=_chain(block.rms_norm1, block.attention.v_proj, block.attention.out_proj),
        mlp=_chain(block.rms_norm2, block.ffn),
        head=_chain(vision.rms_norm, vision.head.v_proj, vision.head.output_proj, model.visual_projection),
        prefix=0,
        block=block,
    )


ACTIVATIONS: Mapping[str, Map] = {
    "quick-gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "gelu": F.gelu,
    "tanh-gelu": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
"""Activations by name, for towers given as bare weights."""


def from_weights(
    family: str,
    weights: Mapping[str, Any],
    *,
    prefix: int | None = None,
    activation: str | None = None,
    eps: float | None = None,
) -> ValueBranch:
    """The value branch of a tower given as bare arrays, in their precision; for cross-checks.

    Parameters
    ----------
    family : {"open-clip", "timm-map", "aimv2"}
    weights : mapping from name to array
        ``open-clip``: ``ln1_w ln1_b in_proj_w in_proj_b out_w out_b ln2_w ln2_b fc_w fc_b cproj_w cproj_b lnpost_w
        lnpost_b proj``, the last of shape (D, d).
        ``timm-map``: ``norm1_w norm1_b qkv_w qkv_b attn_proj_w attn_proj_b norm2_w norm2_b fc1_w fc1_b fc2_w fc2_b
        norm_w norm_b pool_kv_w pool_kv_b pool_proj_w pool_proj_b pool_norm_w pool_norm_b pool_fc1_w pool_fc1_b
        pool_fc2_w pool_fc2_b``, and optionally ``head_w head_b``.
        ``aimv2``: ``norm1_w v_w out_w norm2_w gate_w up_w down_w norm_w pool_v_w pool_out_w pool_out_b proj_w``, the
        last of shape (d, D) as in ``nn.Linear``.
    prefix : int, optional
        Tokens to drop; by default 1 for ``open-clip`` and 0 otherwise.
    activation : str, optional
        A key of :data:`ACTIVATIONS`; by default CLIP's quick GELU, the exact GELU, and SiLU.
    eps : float, optional
        Of the norms; by default 1e-5, 1e-6 and 1e-5.

    Raises
    ------
    InputError
        Unknown family, or a weight is missing.
    """
    families = {"open-clip": (_open_clip_weights, 1, "quick-gelu", 1e-5), "timm-map": (_timm_weights, 0, "gelu", 1e-6)}
    families["aimv2"] = (_aimv2_weights, 0, "silu", 1e-5)
    if family not in families:
        raise InputError(f"no tower family {family!r}; known are {', '.join(families)}")
    build, own_prefix, own_activation, own_eps = families[family]
    tensors = {name: torch.as_tensor(value, dtype=torch.float64) for name, value in weights.items()}
    try:
        return build(
            tensors,
            own_prefix if prefix is None else prefix,
            ACTIVATIONS[activation or own_activation],
            own_eps if eps is None else eps,
        )
    except KeyError as missing:
        raise InputError(f"tower family {family!r} needs {missing}; given are {sorted(weights)}") from missing


def _linear(weights: Mapping[str, Tensor], name: str) -> Map:
    return partial(F.linear, weight=weights[f"{name}_w"], bias=weights.get(f"{name}_b"))


def _layer_norm(weights: Mapping[str, Tensor], name: str, eps: float) -> Map:
    weight, bias = weights[f"{name}_w"], weights[f"{name}_b"]
    return lambda x: F.layer_norm(x, weight.shape, weight, bias, eps)


def _rms_norm(weights: Mapping[str, Tensor], name: str, eps: float) -> Map:
    weight = weights[f"{name}_w"]
    return lambda x: weight * x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)


def _open_clip_weights(w: Mapping[str, Tensor], prefix: int, activation: Map, eps: float) -> ValueBranch:
    return ValueBranch(
        attention=_chain(_layer_norm(w, "ln1", eps), _third(w["in_proj_w"], w["in_proj_b"], 2, 3), _linear(w, "out")),
        mlp=_chain(_layer_norm(w, "ln2", eps), _linear(w, "fc"), activation, _linear(w, "cproj")),
        head=_chain(_layer_norm(w, "lnpost", eps), partial(F.linear, weight=w["proj"].T)),
        prefix=prefix,
    )


def _timm_weights(w: Mapping[str, Tensor], prefix: int, activation: Map, eps: float) -> ValueBranch:
    pool_mlp = _chain(_layer_norm(w, "pool_norm", eps), _linear(w, "pool_fc1"), activation, _linear(w, "pool_fc2"))
    return ValueBranch(
        attention=_chain(_layer_norm(w, "norm1", eps), _third(w["qkv_w"], w["qkv_b"], 2, 3), _linear(w, "attn_proj")),
        mlp=_chain(_layer_norm(w, "norm2", eps), _linear(w, "fc1"), activation, _linear(w, "fc2")),
        head=_chain(
            _layer_norm(w, "norm", eps),
            _third(w["pool_kv_w"], w["pool_kv_b"], 1, 2),
            _linear(w, "pool_proj"),
            _residual(pool_mlp),
            _linear(w, "head") if "head_w" in w else None,
        ),
        prefix=prefix,
    )


def _aimv2_weights(w: Mapping[str, Tensor], prefix: int, activation: Map, eps: float) -> ValueBranch:
    gate, up = _linear(w, "gate"), _linear(w, "up")
    return ValueBranch(
        attention=_chain(_rms_norm(w, "norm1", eps), _linear(w, "v"), _linear(w, "out")),
        mlp=_chain(_rms_norm(w, "norm2", eps), lambda x: activation(gate(x)) * up(x), _linear(w, "down")),
        head=_chain(_rms_norm(w, "norm", eps), _linear(w, "pool_v"), _linear(w, "pool_out"), _linear(w, "proj")),
        prefix=prefix,
    )
