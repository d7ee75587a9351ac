"""The column of an inner layer: its pooled activation, and the pooled gradient of the KL divergence from uniform."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fiood_core.backbone import Backbone
from fiood_core.column import Column, ImageBatch
from fiood_core.errors import InputError
from fiood_core.head import Head

FIRST_TOKEN = ":first"
"""Suffix of a layer's name that asks for its first token alone, where the default sums over all tokens."""


class LayerGradients(Column):
    """Activation and gradient of an inner layer, each summed over its positions.

    Values are (n, 2, channels): ``[:, 0]`` the activation, ``[:, 1]`` the gradient of −(1/C) Σ_c log p_c, which is the
    KL divergence from the uniform posterior up to a constant.

    Parameters
    ----------
    layer : str
        Name of a submodule of the backbone's module; with ``:first``, its first token instead of the sum.
    together : tuple of str
        Layers that are wanted of the same images: they share one forward and one backward pass.
    """

    needs_head = True

    def __init__(self, layer: str, together: tuple[str, ...] = ()) -> None:
        self.layer = layer
        self.together = tuple(dict.fromkeys((layer, *together)))

    @property
    def key(self) -> str:
        return f"layer-gradients[{self.layer}]"

    def compute(self, batch: ImageBatch, backbone: Backbone, head: Head) -> Tensor:
        return _values(batch.images, backbone, self.together)[self.layer]


@dataclass
class _Pass:
    """One pass over a batch: its columns are computed one after the other, from the same images."""

    images: weakref.ref[Tensor]
    backbone: weakref.ref[Backbone]
    layers: tuple[str, ...]
    values: dict[str, Tensor]

    def covers(self, images: Tensor, backbone: Backbone, layers: tuple[str, ...]) -> bool:
        return self.images() is images and self.backbone() is backbone and set(layers) <= set(self.layers)


_last: list[_Pass] = []


def _values(images: Tensor, backbone: Backbone, layers: tuple[str, ...]) -> dict[str, Tensor]:
    if not _last or not _last[0].covers(images, backbone, layers):
        values = _pooled(backbone, images, layers)
        _last[:] = [_Pass(weakref.ref(images), weakref.ref(backbone), layers, values)]
    return _last[0].values


def _pooled(backbone: Backbone, images: Tensor, layers: tuple[str, ...]) -> dict[str, Tensor]:
    """Pooled activations and gradients (n, 2, channels) of each layer, from one forward and one backward pass."""
    outputs: dict[str, Tensor] = {}
    handles = []
    for layer in layers:
        handles.append(_submodule(backbone.module, layer).register_forward_hook(_keep(outputs, layer)))
    try:
        with torch.enable_grad():
            logits = backbone.forward(images.detach().requires_grad_()).logits
            loss = -torch.log_softmax(logits, dim=1).mean(dim=1).sum()
            gradients = torch.autograd.grad(loss, [outputs[layer] for layer in layers])
    finally:
        for handle in handles:
            handle.remove()
    return {
        layer: torch.stack([_pool(outputs[layer].detach(), layer), _pool(gradient, layer)], dim=1).float()
        for layer, gradient in zip(layers, gradients, strict=True)
    }


def _keep(outputs: dict[str, Tensor], layer: str) -> Any:
    def hook(_module: nn.Module, _args: Any, output: Any) -> None:
        if not isinstance(output, Tensor):
            raise InputError(f"layer {layer!r} gives a {type(output).__name__}, not a tensor; name another layer")
        outputs[layer] = output

    return hook


def _submodule(module: nn.Module, layer: str) -> nn.Module:
    name = layer.removesuffix(FIRST_TOKEN)
    modules: dict[str, nn.Module] = dict(module.named_modules())
    if name not in modules:
        raise InputError(f"the backbone has no layer {name!r}; it has {', '.join(list(modules)[1:40])}, …")
    return modules[name]


def _pool(values: Tensor, layer: str) -> Tensor:
    if values.ndim == 4:  # (n, channels, height, width)
        return values.sum(dim=(2, 3))
    if values.ndim == 3:  # (n, tokens, channels)
        return values[:, 0] if layer.endswith(FIRST_TOKEN) else values.sum(dim=1)
    return values.flatten(1)
