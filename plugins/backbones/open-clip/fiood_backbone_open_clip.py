"""Any model of open_clip, with the seven of Fi-ImageNet-1k as presets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from fiood_core import Card, VisionLanguageBackbone, settings
from fiood_core.backbone import Outputs
from fiood_core.download import file_digest
from fiood_core.errors import GateError, InputError, ParameterError
from fiood_core.text import TEMPERATURE

if TYPE_CHECKING:
    from PIL import Image

CHECKPOINT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
HUB_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")

OPENAI_MEAN, OPENAI_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5, 0.5, 0.5)

PROBE = "A photo of a Tench!"
CLIP_PROBE = (49406, 320, 1125, 539, 320, 1149, 634, 256, 49407)
"""CLIP's byte-pair tokens of the probe: lower-cased, the exclamation mark a token of its own."""


@dataclass(frozen=True)
class Preset:
    """A checkpoint of the paper, and what is known of its activation, transform and tokenizer."""

    model: str
    pretrained: str
    title: str
    parameters: float
    pretraining: str
    pixels: int
    resize_mode: str
    interpolation: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    context_length: int
    tokenizer: str
    quick_gelu: bool = False


CLIP_BPE, CANONICAL, CASED = "CLIP byte pairs", "lower-case, no punctuation", "case-sensitive"

PRESETS: Mapping[str, Preset] = {
    "clip-b16": Preset(
        "ViT-B-16-quickgelu", "openai", "CLIP-B/16", 149_620_737, "WIT-400M", 224, "shortest", "bicubic",
        OPENAI_MEAN, OPENAI_STD, 77, CLIP_BPE, quick_gelu=True,
    ),
    "clip-l14": Preset(
        "ViT-L-14-336-quickgelu", "openai", "CLIP-L/14", 427_944_193, "WIT-400M", 336, "shortest", "bicubic",
        OPENAI_MEAN, OPENAI_STD, 77, CLIP_BPE, quick_gelu=True,
    ),
    "openclip-h14": Preset(
        "ViT-H-14-378-quickgelu", "dfn5b", "OpenCLIP-H/14", 986_714_881, "DFN-5B", 378, "squash", "bicubic",
        OPENAI_MEAN, OPENAI_STD, 77, CLIP_BPE, quick_gelu=True,
    ),
    "metaclip2-h14": Preset(
        "ViT-H-14-worldwide-378", "metaclip2_worldwide", "MetaCLIP2-H/14", 1_859_389_185, "MetaCLIP 2 worldwide", 378,
        "squash", "bicubic", OPENAI_MEAN, OPENAI_STD, 77, CASED,
    ),
    "siglip-so400m": Preset(
        "ViT-SO400M-14-SigLIP-384", "webli", "SigLIP-SO400M", 877_960_498, "WebLI", 384, "squash", "bicubic",
        HALF, HALF, 64, CANONICAL,
    ),
    "siglip2-g": Preset(
        "ViT-gopt-16-SigLIP2-384", "webli", "SigLIP2-g", 1_871_885_426, "WebLI", 384, "squash", "bicubic",
        HALF, HALF, 64, CANONICAL,
    ),
    "pe-core-l14": Preset(
        "PE-Core-L-14-336", "meta", "PE-Core-L/14", 671_138_817, "MetaCLIP and PE video data", 336, "squash",
        "bilinear", HALF, HALF, 32, CLIP_BPE,
    ),
}  # fmt: skip
"""The paper's names of its open_clip checkpoints; the activation, transform and tokenizer are checked on loading."""


class OpenCLIP(VisionLanguageBackbone):
    """A model of open_clip as a zero-shot classifier: unit image embeddings, text embeddings over τ.

    Parameters
    ----------
    model : str
        open_clip's name of the architecture.
    pretrained : str
        A pre-training tag, or a local checkpoint file (``.safetensors``, ``.pt``, ``.pth``, ``.bin``; read as plain
        tensors).
    transform_of : str, optional
        The tag whose transform a local checkpoint was trained with; may be left out where all tags of the model agree.
    tokenizer : str, optional
        Folder of a Hugging Face tokenizer, for models that otherwise fetch theirs from the hub.
    """

    api_version = 1
    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    def __init__(
        self,
        model: str = "ViT-B-16-quickgelu",
        pretrained: str = "openai",
        *,
        transform_of: str | None = None,
        tokenizer: str | None = None,
    ) -> None:
        self.model, self.pretrained, self.transform_of = model, pretrained, transform_of
        self.tokenizer_folder = tokenizer
        self.preset = next((p for p in PRESETS.values() if (p.model, p.pretrained) == (model, pretrained)), None)
        self.temperature = TEMPERATURE
        self._network: Any = None
        self._device = torch.device("cpu")

    @classmethod
    def configured(cls, preset: str | None = None, **parameters: Any) -> OpenCLIP:
        """An instance with a preset's model and tag, overridden by explicit parameters.

        A local checkpoint given with a preset takes the preset's transform.
        """
        if preset is None:
            return cls(**parameters)
        if preset not in PRESETS:
            raise ParameterError(f"open-clip has no preset {preset!r}; have {', '.join(PRESETS)}")
        given = {"model": PRESETS[preset].model, "pretrained": PRESETS[preset].pretrained, **parameters}
        if Path(given["pretrained"]).suffix in CHECKPOINT_SUFFIXES:
            given.setdefault("transform_of", PRESETS[preset].pretrained)
        return cls(**given)

    @property
    def card(self) -> Card:  # type: ignore[override]
        """The paper's, for a preset; else what the names say."""
        if self.preset is None:
            return Card(title=f"{self.model} ({Path(self.pretrained).name})", family="CLIP", source="open_clip")
        p = self.preset
        return Card(
            title=p.title,
            parameters=p.parameters,
            family="CLIP",
            pretraining=p.pretraining,
            resolution=p.pixels,
            source=f"open_clip {p.model} / {p.pretrained}",
        )

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]
        """Rows of the head; None before :meth:`set_classes`."""
        return None if self._head is None else self._head.num_rows

    def load(self, device: torch.device | str = "cpu") -> None:
        """Read the checkpoint as plain tensors; a preset's activation, transform and tokenizer are checked."""
        import open_clip

        self._device = torch.device(device)
        if self._network is None:
            if self.preset is not None:
                check_preset(self, self.preset)
            try:
                network = open_clip.create_model(
                    self.model, pretrained=str(self.checkpoint), weights_only=True, pretrained_text=False
                )
            except Exception as error:
                raise InputError(
                    f"{self.checkpoint} could not be loaded as {self.model}: {type(error).__name__}: {error}"
                ) from error
            self._network = network.requires_grad_(False)
        self._network.to(self._device).eval()

    @property
    def module(self) -> nn.Module:
        if self._network is None:
            raise InputError("the open-clip model is not loaded; call load() first")
        network: nn.Module = self._network
        return network

    @cached_property
    def checkpoint(self) -> Path:
        """The checkpoint file; a tag's is fetched from the hub if it is not there.

        Raises
        ------
        InputError
            No such tag or file, or the file is missing and the run is offline.
        """
        import open_clip
        from open_clip import pretrained

        place = Path(self.pretrained).expanduser()
        if place.suffix in CHECKPOINT_SUFFIXES or place.is_file():
            if place.suffix not in CHECKPOINT_SUFFIXES:
                raise InputError(f"{place} is no checkpoint of plain tensors; give {', '.join(CHECKPOINT_SUFFIXES)}")
            if not place.is_file():
                raise InputError(f"there is no checkpoint file {place}")
            return place
        _model_config(self.model)
        config = pretrained.get_pretrained_cfg(self.model, self.pretrained)
        if not config:
            tags = open_clip.list_pretrained_tags_by_model(self.model)
            raise InputError(f"{self.model!r} has no pre-training tag {self.pretrained!r}; open_clip knows {tags}")
        kept = _in_hub_cache(config.get("hf_hub", ""))
        if kept is None and settings.offline():
            raise InputError(
                f"the weights of {self.model} / {self.pretrained} are not on this machine; a run that may use the "
                f"network fetches them from {config.get('hf_hub') or config.get('url')}, or give pretrained=FILE"
            )
        try:
            return kept or Path(pretrained.download_pretrained(config))
        except Exception as error:
            raise InputError(
                f"the weights of {self.model} / {self.pretrained} could not be fetched "
                f"({type(error).__name__}: {error}); run again with network, or give pretrained=FILE"
            ) from error

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 of the checkpoint file."""
        blob = self.checkpoint.resolve().name  # the hub's cache names large files by their SHA-256
        digest = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else file_digest(self.checkpoint).partition(":")[2]
        return hashlib.sha256(f"{self.model} {digest}".encode()).hexdigest()

    @cached_property
    def preprocessing(self) -> Any:
        """open_clip's preprocessing configuration of the tag."""
        from open_clip.transform import PreprocessCfg

        size = _model_config(self.model)["vision_cfg"].get("image_size", PreprocessCfg().size)
        return PreprocessCfg(size=size, **self._tag_preprocessing())

    def _tag_preprocessing(self) -> dict[str, Any]:
        import open_clip
        from open_clip.pretrained import get_pretrained_cfg

        tags = open_clip.list_pretrained_tags_by_model(self.model)
        wanted = self.transform_of or (self.pretrained if self.pretrained in tags else None)
        if wanted is not None and wanted not in tags:
            raise InputError(f"{self.model!r} has no pre-training tag {wanted!r} to take the transform of; have {tags}")
        found = []
        for tag in [wanted] if wanted is not None else tags:
            config = get_pretrained_cfg(self.model, tag)
            values = {key: config[key] for key in PREPROCESSING if config.get(key) is not None}
            if values not in found:
                found.append(values)
        if len(found) > 1:
            raise InputError(
                f"the tags of {self.model} were trained with different transforms; say whose the checkpoint "
                f"{self.pretrained} takes: transform_of={' or '.join(map(repr, tags))}"
            )
        return found[0] if found else {}

    @cached_property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        from open_clip.transform import image_transform_v2

        transform: Callable[[Image.Image], Tensor] = image_transform_v2(self.preprocessing, is_train=False)
        return transform

    @property
    def transform_digest(self) -> str:
        """Digest of the preprocessing configuration."""
        return hashlib.sha256(repr(sorted(asdict(self.preprocessing).items())).encode()).hexdigest()

    @cached_property
    def tokenizer(self) -> Callable[[Sequence[str]], Tensor]:
        """From texts to token ids (n, context length)."""
        import open_clip

        if self.tokenizer_folder is None:
            found: Callable[[Sequence[str]], Tensor] = open_clip.get_tokenizer(self.model)
            return found
        from open_clip.tokenizer import HFTokenizer

        text = _model_config(self.model)["text_cfg"]
        made: Callable[[Sequence[str]], Tensor] = HFTokenizer(
            str(Path(self.tokenizer_folder).expanduser()),
            context_length=text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH),
            tokenizer_mode=text.get("tokenizer_mode"),
            **text.get("tokenizer_kwargs", {}),
        )
        return made

    @cached_property
    def text_digest(self) -> str:
        """Digest of the checkpoint and of what decides the tokens."""
        folder = self.tokenizer_folder
        files = [] if folder is None else sorted(p for p in Path(folder).expanduser().glob("*") if p.is_file())
        tokens = [sorted(_model_config(self.model)["text_cfg"].items()), [(p.name, file_digest(p)) for p in files]]
        return hashlib.sha256(repr((self.weights_digest, tokens)).encode()).hexdigest()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit text embeddings (n, D) float32."""
        tokens = self.tokenizer(list(texts)).to(self._device)
        embeddings: Tensor = self.module.encode_text(tokens, normalize=True)  # type: ignore[operator]
        return embeddings.float()

    def forward(self, images: Tensor) -> Outputs:
        """Unit image embeddings (n, D), and their logits."""
        features: Tensor = self.module.encode_image(images.to(self._device), normalize=True)  # type: ignore[operator]
        return Outputs(features.float(), self.head(features.float()))


def check_preset(backbone: OpenCLIP, preset: Preset) -> None:
    """Hold activation, transform and tokenizer of a checkpoint to what is known of it.

    Raises
    ------
    GateError
        One differs; the message names it, what it is and what it must be.
    """
    from open_clip.pretrained import get_pretrained_cfg

    found = {
        "activation of the model (quick GELU)": (
            _model_config(preset.model).get("quick_gelu", False),
            preset.quick_gelu,
        ),
        "activation of the tag (quick GELU)": (
            get_pretrained_cfg(preset.model, preset.pretrained).get("quick_gelu", False),
            preset.quick_gelu,
        ),
        "tokens": _tokens(backbone, preset),
    }
    size = backbone.preprocessing.size
    found["pixels"] = (size if isinstance(size, int) else size[0], preset.pixels)
    for name in PREPROCESSING:
        value = getattr(backbone.preprocessing, name)
        found[name] = (tuple(value) if isinstance(value, (list, tuple)) else value, getattr(preset, name))
    wrong = [f"{name} is {is_!r} and must be {must!r}" for name, (is_, must) in found.items() if is_ != must]
    if wrong:
        raise GateError(
            f"{preset.title} would not be the published model: {'; '.join(wrong)}. Install another version of open_clip"
        )


def _tokens(backbone: OpenCLIP, preset: Preset) -> tuple[Any, Any]:
    """What the tokenizer does with a probe, and what it must do."""
    plain, shouted = (backbone.tokenizer([text])[0].tolist() for text in (PROBE, PROBE.upper()))
    if len(plain) != preset.context_length:
        return len(plain), preset.context_length
    if preset.tokenizer == CLIP_BPE:
        return tuple(plain[: len(CLIP_PROBE)]), CLIP_PROBE
    if preset.tokenizer == CANONICAL:
        bare = backbone.tokenizer([PROBE.rstrip("!")])[0].tolist()
        return plain == shouted == bare, True
    return plain == shouted, False


def _in_hub_cache(location: str) -> Path | None:
    """A tag's file in the hub's cache; makes no network call."""
    from huggingface_hub import try_to_load_from_cache

    repository, _, filename = location.rpartition("/")
    for name in [filename] if filename else HUB_FILES:
        found = try_to_load_from_cache(repository, name) if repository else None
        if isinstance(found, str):
            return Path(found)
    return None


def _model_config(model: str) -> dict[str, Any]:
    import open_clip

    config: dict[str, Any] | None = open_clip.get_model_config(model)
    if config is None:
        raise InputError(f"open_clip has no model {model!r}; `open_clip.list_models()` lists them")
    return config
