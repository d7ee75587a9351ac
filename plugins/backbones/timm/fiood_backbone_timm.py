"""Any model of timm, with the 28 classifiers of Fi-ImageNet-1k as presets."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from fiood_core import Backbone, Card, imagenet, settings
from fiood_core.backbone import Outputs
from fiood_core.download import file_digest
from fiood_core.errors import InputError, ParameterError
from fiood_core.head import Head

if TYPE_CHECKING:
    from PIL import Image

CHECKPOINT_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".npz")
"""Files of plain tensors; ``.npz`` is what Google published ViT and BiT as, for models that have a reader for it."""

FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")
"""What a folder, or a repository of the hub, calls its weights; the first that is there is taken."""

CONFIG, MAX_CONFIG = "config.json", 1 << 20

CONFIG_KEYS = (
    *("input_size", "test_input_size", "fixed_input_size", "interpolation", "crop_pct", "crop_mode", "mean", "std"),
    *("num_classes", "label_offset", "pool_size", "first_conv", "classifier", "license"),
)
"""What is read of a folder's configuration; the rest (addresses, files) is not a folder's to say."""

WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model")
"""Where training programs put the tensors in a checkpoint; averaged weights come first, as timm has it."""


@dataclass(frozen=True)
class Preset:
    """A checkpoint of the paper, and what is known of it.

    Attributes
    ----------
    model : str
        timm's name.
    parameters : int
    family, pretraining : str
        The pre-training in the paper's words.
    pixels : int
        Side of the transform's output: timm's ``input_size``, not its ``test_input_size``.
    top1 : float or None
        Of timm's table of results, where that is for the same number of pixels.
    twin : str
        The preset of the same architecture with other pre-training.
    licence : str
    local : str
        Where the file comes from that must be given, for weights that the hub does not have.
    """

    model: str
    parameters: int
    family: str
    pretraining: str
    pixels: int
    top1: float | None = None
    twin: str = ""
    licence: str = "apache-2.0"
    local: str = ""


IN1K, IN21K = "ImageNet-1k", "ImageNet-21k"

PRESETS: Mapping[str, Preset] = {
    "EffNet-B0": Preset("efficientnet_b0.ra_in1k", 5_288_548, "EfficientNet", IN1K, 224, 0.77694),
    "BiT-s": Preset(
        "resnetv2_101x1_bit", 44_541_480, "BiT", IN1K, 448, twin="BiT-m",
        local="https://storage.googleapis.com/bit_models/BiT-S-R101x1.npz",
    ),
    "DeiT3-B-224": Preset(
        "deit3_base_patch16_224.fb_in1k", 86_585_320, "DeiT III", IN1K, 224, 0.83786, "DeiT3-B-224-21k"
    ),
    "XCiT-M-224": Preset("xcit_medium_24_p16_224.fb_in1k", 84_395_752, "XCiT", IN1K, 224, 0.82640),
    "ResNet50": Preset("resnet50.a1_in1k", 25_557_032, "ResNet", IN1K, 224),
    "ViT-B-384": Preset("vit_base_patch16_384.augreg_in1k", 86_859_496, "ViT", IN1K, 384, 0.81102, "ViT-B-384-21k"),
    "DeiT3-B-224-21k": Preset(
        "deit3_base_patch16_224.fb_in22k_ft_in1k", 86_585_320, "DeiT III", IN21K, 224, 0.85700, "DeiT3-B-224"
    ),
    "DeiT3-B-384": Preset(
        "deit3_base_patch16_384.fb_in1k", 86_877_160, "DeiT III", IN1K, 384, 0.85072, "DeiT3-B-384-21k"
    ),
    "XCiT-M-224-d": Preset("xcit_medium_24_p16_224.fb_dist_in1k", 84_395_752, "XCiT", IN1K, 224, 0.84286),
    "ViT-B-384-l2b": Preset(
        "vit_base_patch16_clip_384.laion2b_ft_in1k", 86_860_264, "ViT", "CLIP", 384, 0.86620, "ViT-B-384-l2b-12k"
    ),
    "ViT-B-384-oai": Preset(
        "vit_base_patch16_clip_384.openai_ft_in1k", 86_860_264, "ViT", "CLIP", 384, 0.86204, "ViT-B-384-oai-12k"
    ),
    "DeiT3-B-384-21k": Preset(
        "deit3_base_patch16_384.fb_in22k_ft_in1k", 86_877_160, "DeiT III", IN21K, 384, 0.86738, "DeiT3-B-384"
    ),
    "SwinV2-B-256": Preset(
        "swinv2_base_window16_256.ms_in1k", 87_918_816, "SwinV2", IN1K, 256, 0.84600, "SwinV2-B-256-21k", "mit"
    ),
    "EffNetV2-M": Preset("tf_efficientnetv2_m.in1k", 54_139_356, "EfficientNetV2", IN1K, 384, twin="EffNetV2-M-21k"),
    "ConvNeXt-B": Preset("convnext_base.fb_in1k", 88_591_464, "ConvNeXt", IN1K, 224, twin="ConvNeXt-B-21k"),
    "BiT-m": Preset("resnetv2_101x1_bit.goog_in21k_ft_in1k", 44_541_480, "BiT", IN21K, 448, 0.82342, "BiT-s"),
    "EffNet-b7-ns": Preset(
        "tf_efficientnet_b7.ns_jft_in1k", 66_347_960, "EfficientNet", "JFT-300M (ns)", 600, 0.86840, "EffNet-b7"
    ),
    "EffNetV2-M-21k": Preset(
        "tf_efficientnetv2_m.in21k_ft_in1k", 54_139_356, "EfficientNetV2", IN21K, 384, twin="EffNetV2-M"
    ),
    "EffNet-b7": Preset("tf_efficientnet_b7.ra_in1k", 66_347_960, "EfficientNet", IN1K, 600, 0.84932, "EffNet-b7-ns"),
    "ConvNeXt-T-21k": Preset(
        "convnext_tiny.fb_in22k_ft_in1k_384", 28_589_128, "ConvNeXt", IN21K, 384, 0.84088
    ),
    "ViT-B-384-oai-12k": Preset(
        "vit_base_patch16_clip_384.openai_ft_in12k_in1k", 86_860_264, "ViT", "CLIP + ImageNet-12k", 384, 0.87024,
        "ViT-B-384-oai",
    ),
    "ViT-B-384-l2b-12k": Preset(
        "vit_base_patch16_clip_384.laion2b_ft_in12k_in1k", 86_860_264, "ViT", "CLIP + ImageNet-12k", 384, 0.87208,
        "ViT-B-384-l2b",
    ),
    "SwinV2-B-256-21k": Preset(
        "swinv2_base_window12to16_192to256.ms_in22k_ft_in1k", 87_918_816, "SwinV2", IN21K, 256, 0.86268,
        "SwinV2-B-256", "mit",
    ),
    "ViT-B-224-21k": Preset("vit_base_patch16_224.augreg_in21k_ft_in1k", 86_567_656, "ViT", IN21K, 224, 0.84532),
    "ConvNeXt-B-21k": Preset(
        "convnext_base.fb_in22k_ft_in1k", 88_591_464, "ConvNeXt", IN21K, 224, twin="ConvNeXt-B"
    ),
    "ViT-B-384-21k": Preset(
        "vit_base_patch16_384.augreg_in21k_ft_in1k", 86_859_496, "ViT", IN21K, 384, 0.85996, "ViT-B-384"
    ),
    "ConvNeXtV2-L": Preset(
        "convnextv2_large.fcmae_ft_in22k_in1k_384", 197_956_840, "ConvNeXt V2", "FCMAE + ImageNet-21k", 384, 0.88198,
        licence="cc-by-nc-4.0",
    ),
    "EVA02-L-448": Preset(
        "eva02_large_patch14_448.mim_m38m_ft_in22k_in1k", 305_080_232, "EVA-02", "MIM + ImageNet-21k", 448, 0.90052,
        licence="mit",
    ),
}  # fmt: skip
"""The paper's names of its timm checkpoints, in the order of its Table A7.  Top-1 is that of timm's
``results/results-imagenet.csv`` (huggingface/pytorch-image-models) for the pixels, crop and interpolation used here."""

_digests: dict[str, str] = {}
"""The preset that each weights file of this process was taken for."""


class Timm(Backbone):
    """A timm classifier, with the transform of its own configuration.

    Features (n, D) are exactly what enters the classifier, a 1×1 convolution's input flattened.  The transform is what
    timm's ``resolve_model_data_config`` and ``create_transform`` give by default: the size of the last training stage
    (``input_size``), also where the configuration has a larger one for tests.

    Parameters
    ----------
    model : str
        timm's name, with the tag of its weights (``resnet50.a1_in1k``), or a folder as timm saves one: ``config.json``
        and ``model.safetensors`` or ``pytorch_model.bin``.
    checkpoint : str, optional
        A file or folder to take the weights from instead of the hub: ``.safetensors``, ``.pth``, ``.pt`` or ``.bin``,
        read as plain tensors, or Google's ``.npz``.
    global_pool : str, optional
        Another pooling than the model's own, for example ``"token"`` for DINOv3's class token.
    """

    api_version = 1
    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    def __init__(
        self, model: str | None = None, checkpoint: str | None = None, *, global_pool: str | None = None
    ) -> None:
        if not model:
            raise ParameterError("timm needs a model, for example timm(model='resnet50.a1_in1k'), or a preset")
        self.model, self.global_pool = model, global_pool
        self.place = None if checkpoint is None else Path(checkpoint).expanduser()
        self.preset = (
            None if checkpoint or global_pool else next((n for n, p in PRESETS.items() if p.model == model), None)
        )
        self._network: Any = None
        self._device = torch.device("cpu")

    @classmethod
    def configured(cls, preset: str | None = None, **parameters: Any) -> Timm:
        """An instance with a preset's model; a checkpoint given with it is taken for a copy of the preset's weights."""
        if preset is None:
            return cls(**parameters)
        if preset not in PRESETS:
            near = difflib.get_close_matches(preset.lower(), map(str.lower, PRESETS), n=3)
            names = [name for name in PRESETS if name.lower() in near] or list(PRESETS)
            raise ParameterError(f"timm has no preset {preset!r}; have {', '.join(names)}")
        if set(parameters) - {"checkpoint"}:
            raise ParameterError(f"preset {preset!r} says the model and its pooling; give model= without the preset")
        made = cls(PRESETS[preset].model, **parameters)
        made.preset = preset
        return made

    @property
    def card(self) -> Card:  # type: ignore[override]
        """The paper's, for a preset; else what timm's configuration says."""
        if self.preset is None:
            where = "" if self.place is None else f" ({self.place.name})"
            return Card(
                title=f"{Path(self.model).name}{where}",
                family=self.architecture.partition("_")[0],
                resolution=self._config["input_size"][-1],
                licence=self._config.get("license") or "",
                source=str(self.place or self._address or self.model),
            )
        known = PRESETS[self.preset]
        return Card(
            title=self.preset,
            parameters=known.parameters,
            family=known.family,
            pretraining=known.pretraining,
            resolution=known.pixels,
            expected_top1={} if known.top1 is None else {"imagenet-1k": known.top1},
            licence=known.licence,
            source=known.local or f"https://huggingface.co/timm/{known.model}",
            extra={
                "timm": known.model,
                "matched pair": known.twin or "none",
                "expected": "timm's results-imagenet.csv" if known.top1 else "none: timm reports another resolution",
            },
        )

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]
        """Rows of the classifier; None for a network that has none."""
        return self._config.get("num_classes") or None

    @property
    def class_wnids(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """ImageNet's, for timm's own models of a thousand classes."""
        own = self.preset is not None or self._folder is None
        return tuple(imagenet.wnids()) if own and self.num_classes == 1000 else None

    def load(self, device: torch.device | str = "cpu") -> None:
        """Read the weights as plain tensors; each tensor of the network must be there.

        Raises
        ------
        InputError
            They are not here, or are not those of the model.
        """
        self._device = torch.device(device)
        if self._network is None:
            path = self.checkpoint
            _ = self.weights_digest  # refuses weights that are another preset's
            try:
                self._network = self._read(path)
            except Exception as error:
                raise InputError(
                    f"{path} could not be loaded as timm's {self.architecture}: {type(error).__name__}: {error}"
                ) from error
        self._network.to(self._device).eval()

    @property
    def module(self) -> nn.Module:
        if self._network is None:
            raise InputError("the timm model is not loaded; call load() first")
        network: nn.Module = self._network
        return network

    @property
    def head(self) -> Head:
        classifier = self.module.get_classifier()  # type: ignore[operator]
        linear = isinstance(classifier, nn.Linear)
        if not linear and not (isinstance(classifier, nn.Conv2d) and classifier.kernel_size == (1, 1)):
            raise InputError(
                f"{self.card.title} has no linear classifier but {type(classifier).__name__}; train one on its "
                "features: linear-probe(backbone=…, train=…)"
            )
        return Head(classifier.weight.flatten(1), classifier.bias)

    def forward(self, images: Tensor) -> Outputs:
        """Features and logits, both by the network's own way; of a network without a classifier they are the same."""
        network: Any = self.module
        activations = network.forward_features(images.to(self._device))
        features = network.forward_head(activations, pre_logits=True)
        return Outputs(features.flatten(1), network.forward_head(activations).flatten(1))

    @cached_property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        from timm.data.config import resolve_data_config
        from timm.data.transforms_factory import create_transform

        made: Callable[[Image.Image], Tensor] = create_transform(
            **resolve_data_config({}, pretrained_cfg=self._config), is_training=False
        )
        return made

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 over that of the weights file, the architecture and its pooling.

        Raises
        ------
        InputError
            The file is not here, or it is known to be another preset's.
        """
        digest = _file_sha256(self.checkpoint)
        if self.preset is not None:
            self._require_own(digest)
        return hashlib.sha256(repr((digest, self.architecture, self.global_pool)).encode()).hexdigest()

    @cached_property
    def checkpoint(self) -> Path:
        """The weights file; one of the hub is fetched if it is not there.

        Raises
        ------
        InputError
            There is none; the message says what to get and from where.
        """
        if self._folder is not None:
            found = next((self._folder / name for name in FOLDER_FILES if (self._folder / name).is_file()), None)
            if found is None:
                raise InputError(f"{self._folder} holds no weights; they are called {' or '.join(FOLDER_FILES)}")
            return found
        if self.place is not None:
            if self.place.suffix not in CHECKPOINT_SUFFIXES:
                raise InputError(
                    f"{self.place} is no checkpoint of plain tensors; give {', '.join(CHECKPOINT_SUFFIXES)}"
                )
            if not self.place.is_file():
                raise InputError(f"there is no checkpoint file {self.place}")
            return self.place
        known = None if self.preset is None else PRESETS[self.preset]
        if known is not None and known.local:
            raise InputError(
                f"the weights of {self.preset} must be given: download {known.local} and name the file, "
                f"timm(preset='{self.preset}', checkpoint=FILE); timm's own for {self.model} are {known.twin}'s"
            )
        return self._from_hub()

    @property
    def architecture(self) -> str:
        """timm's name of the model, without a tag."""
        return str(self._config["architecture"])

    @property
    def _folder(self) -> Path | None:
        """Where weights, and maybe a configuration, lie together."""
        if self.place is not None:
            return self.place if self.place.is_dir() else None
        named = Path(self.model).expanduser()
        return named if (named / CONFIG).is_file() else None

    @cached_property
    def _config(self) -> dict[str, Any]:
        """timm's configuration of the weights: a folder's own where it has one."""
        named = self.place is None and self._folder is not None
        registered = None if named else _registered(self.model)
        if self._folder is None or not (self._folder / CONFIG).is_file():
            assert registered is not None
            return registered
        own = _folder_config(self._folder / CONFIG)
        if registered is not None and own["architecture"] != registered["architecture"]:
            raise InputError(
                f"{self._folder} holds a {own['architecture']}, not a {registered['architecture']}; name that model"
            )
        return own

    @property
    def _address(self) -> str:
        """Where the hub has the weights; empty if it does not."""
        repository = self._config.get("hf_hub_id")
        return f"https://huggingface.co/{repository}" if repository else ""

    def _from_hub(self) -> Path:
        from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

        repository = self._config.get("hf_hub_id")
        if not repository:
            raise InputError(f"the hub has no weights of {self.model}; give checkpoint=FILE")
        named = self._config.get("hf_hub_filename")
        for name in [named] if named else FOLDER_FILES:
            kept = try_to_load_from_cache(repository, name)
            if isinstance(kept, str):
                return Path(kept)
        name = named or FOLDER_FILES[0]
        if settings.offline() or constants.HF_HUB_OFFLINE:
            raise InputError(
                f"the weights of {self.model} are not on this machine: a run that may use the network fetches "
                f"{self._address}/resolve/main/{name}; or download that elsewhere and give checkpoint=FILE"
            )
        try:
            return Path(hf_hub_download(repository, name))
        except Exception as error:
            raise InputError(
                f"{self._address}/resolve/main/{name} could not be fetched ({type(error).__name__}: {error}); download "
                "it elsewhere and give checkpoint=FILE"
            ) from error

    def _require_own(self, digest: str) -> None:
        """Raise if the weights are known to be another preset's."""
        assert self.preset is not None
        owner = _digests.setdefault(digest, self.preset)
        others = {_kept_sha256(p.model): name for name, p in PRESETS.items() if name != self.preset and not p.local}
        owner = others.get(digest, owner)
        if owner != self.preset:
            raise InputError(
                f"{self.checkpoint} is given for {self.preset}, but holds {owner}'s weights; no two presets share any"
            )

    def _read(self, path: Path) -> nn.Module:
        """The network with a checkpoint's tensors, converted by timm where a published file has others' names."""
        import timm

        config = {key: value for key, value in self._config.items() if key != "model_args"}
        arguments = {**self._config.get("model_args", {}), "pretrained_cfg": config}
        if self.global_pool is not None:
            arguments["global_pool"] = self.global_pool
        name = self.architecture
        if path.suffix == ".npz":
            network: Any = timm.create_model(name, pretrained=False, **arguments)
            _load_arrays(network, path)
        else:
            source: dict[str, Any] = {"custom_load": False}
            source |= {"file": str(path)} if path.suffix == ".safetensors" else {"state_dict": _plain_tensors(path)}
            network = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=source, **arguments)
        network.pretrained_cfg.pop("state_dict", None)  # a second copy of the weights
        network.requires_grad_(False)
        return network  # type: ignore[no-any-return]


def _registered(model: str) -> dict[str, Any]:
    """timm's configuration of a model that it knows by name.

    Raises
    ------
    ParameterError
        It knows none; near names are suggested.
    """
    import timm
    from timm.models import get_pretrained_cfg, is_model, is_model_pretrained

    name, _, tag = model.partition(".")
    known = is_model(name) and "/" not in model and (not tag or is_model_pretrained(model))
    found = get_pretrained_cfg(model) if known else None
    if found is None:
        near = difflib.get_close_matches(model, timm.list_models(pretrained=True), n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `timm.list_models(pretrained=True)` lists them"
        raise ParameterError(f"timm has no model {model!r}, and there is no such folder with a {CONFIG}{hint}")
    config: dict[str, Any] = found.to_dict()
    return config


def _folder_config(path: Path) -> dict[str, Any]:
    """What a folder's ``config.json`` says of its weights, distrusted.

    Raises
    ------
    InputError
        It is no configuration of a timm model.
    """
    try:
        if path.stat().st_size > MAX_CONFIG:
            raise ValueError(f"it is larger than {MAX_CONFIG} bytes")
        whole = json.loads(path.read_text(encoding="utf-8"))
        inner = whole.get("pretrained_cfg", whole)  # one flat mapping in files of old
        config = {key: inner[key] for key in CONFIG_KEYS if inner.get(key) is not None}
        config["num_classes"] = int(whole.get("num_classes", inner.get("num_classes", 1000)))
        config["input_size"] = tuple(int(side) for side in inner["input_size"])
        arguments = dict(whole.get("model_args", {}))
        if any(name.startswith("pretrained") or name in ("checkpoint_path", "cache_dir") for name in arguments):
            raise ValueError("its model_args name weights")
        config |= {"architecture": str(whole["architecture"]), "model_args": arguments}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is no configuration of a timm model: {type(error).__name__}: {error}") from error
    return config


def _plain_tensors(path: Path) -> dict[str, Any]:
    """The tensors of a PyTorch checkpoint; nothing in it is run."""
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    inner = next((loaded[key] for key in WRAPPERS if isinstance(loaded.get(key), Mapping)), loaded)
    return {re.sub(r"^(module\.|_orig_mod\.)+", "", name): value for name, value in inner.items()}


def _load_arrays(network: Any, path: Path) -> None:
    """Read Google's ``.npz``; the model's own reader leaves out what does not fit, so every weight is asked for."""
    if not hasattr(network, "load_pretrained"):
        raise InputError(f"{type(network).__name__} has no reader for .npz")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(torch.nan)
        network.load_pretrained(str(path))
    lacking = [name for name, value in network.named_parameters() if not bool(torch.isfinite(value).all())]
    if lacking:
        raise InputError(f"it lacks {len(lacking)} tensors of the model ({lacking[0]}, …)")


def _file_sha256(path: Path) -> str:
    blob = path.resolve().name  # the hub's cache names large files by their SHA-256
    return blob if re.fullmatch(r"[0-9a-f]{64}", blob) else file_digest(path).partition(":")[2]


def _kept_sha256(model: str) -> str | None:
    """SHA-256 of a preset's weights, if the hub's cache has them; reads no weights and makes no network call."""
    from huggingface_hub import try_to_load_from_cache

    kept = try_to_load_from_cache(f"timm/{model}", FOLDER_FILES[0])
    return _file_sha256(Path(kept)) if isinstance(kept, str) else None
