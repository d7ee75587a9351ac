"""AIMv2 with its text tower, from Hugging Face transformers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fiood_core import Card, VisionLanguageBackbone, settings
from fiood_core.backbone import Outputs
from fiood_core.download import file_digest
from fiood_core.errors import InputError
from fiood_core.text import TEMPERATURE

if TYPE_CHECKING:
    from PIL import Image

PUBLISHED = "apple/aimv2-large-patch14-224-lit"
WEIGHTS = "model.safetensors"
TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json")
CONFIG = "config.json"
TRANSFORM = "preprocessor_config.json"


class ProcessorTransform:
    """A Hugging Face image processor as a transform of one picture."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, picture: Image.Image) -> Tensor:
        pixels: Tensor = self.processor(images=picture.convert("RGB"), return_tensors="pt")["pixel_values"][0]
        return pixels

    def __repr__(self) -> str:
        return f"ProcessorTransform({self.processor.to_json_string()})"


class AIMv2(VisionLanguageBackbone):
    """AIMv2's locked-image-tuned model as a zero-shot classifier: unit image embeddings, text embeddings over τ.

    Parameters
    ----------
    pretrained : str
        A repository of the hub, or a local folder with ``config.json``, ``model.safetensors``,
        ``preprocessor_config.json`` and the tokenizer's files.  Code from the repository is never run.
    """

    api_version = 1
    card = Card(
        title="AIMv2-L",
        parameters=436_680_193,
        family="AIMv2",
        pretraining="DFN-2B, COYO, HQITP; locked-image tuning",
        resolution=224,
        licence="apple-amlr",
        source=f"https://huggingface.co/{PUBLISHED}",
    )

    def __init__(self, pretrained: str = PUBLISHED) -> None:
        self.pretrained = pretrained
        if pretrained != PUBLISHED:
            self.card = Card(title=f"AIMv2 ({Path(pretrained).name})", family="AIMv2", source="transformers")
        self.temperature = TEMPERATURE
        self._network: Any = None
        self._device = torch.device("cpu")

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]
        """Rows of the head; None before :meth:`set_classes`."""
        return None if self._head is None else self._head.num_rows

    def load(self, device: torch.device | str = "cpu") -> None:
        """Read the weights as plain tensors, and refuse a checkpoint that lacks some.

        The text tower's attention is the eager one: transformers leaves the causal mask out where no text of a batch is
        padded, and its faster attention then looks at later tokens.
        """
        from transformers import Aimv2Model

        self._device = torch.device(device)
        if self._network is None:
            read: Any = Aimv2Model.from_pretrained
            network, report = read(
                self.folder,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                dtype=torch.float32,
                attn_implementation={"text_config": "eager", "vision_config": "sdpa"},
            )
            lacking = sorted(report["missing_keys"]) + sorted(map(str, report["mismatched_keys"]))
            if lacking:
                raise InputError(
                    f"{self.folder / WEIGHTS} lacks {len(lacking)} tensors of the model ({lacking[0]}, …); "
                    "it is no AIMv2 with a text tower"
                )
            self._network = network.requires_grad_(False)
        self._network.to(self._device).eval()

    @property
    def module(self) -> nn.Module:
        if self._network is None:
            raise InputError("the aimv2 model is not loaded; call load() first")
        network: nn.Module = self._network
        return network

    @cached_property
    def folder(self) -> Path:
        """The folder with all files; a repository's is fetched from the hub if it is not there.

        Raises
        ------
        InputError
            It is missing and the run is offline, or a file is missing in it.
        """
        place = Path(self.pretrained).expanduser()
        if not place.is_dir():
            place = self._from_hub()
        lacking = [name for name in (CONFIG, WEIGHTS, TRANSFORM) if not (place / name).is_file()]
        if lacking:
            raise InputError(f"{place} has no {' and no '.join(lacking)}; give a complete AIMv2 folder")
        return place

    def _from_hub(self) -> Path:
        from huggingface_hub import snapshot_download

        wanted = [CONFIG, WEIGHTS, TRANSFORM, *TEXT_FILES]
        try:
            return Path(snapshot_download(self.pretrained, allow_patterns=wanted, local_files_only=settings.offline()))
        except Exception as error:
            raise InputError(f"{self.pretrained!r} is no local folder and could not be fetched: {error}") from error

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 of the weights file and the configuration."""
        blob = (self.folder / WEIGHTS).resolve().name  # the hub's cache names large files by their SHA-256
        weights = f"sha256:{blob}" if re.fullmatch(r"[0-9a-f]{64}", blob) else file_digest(self.folder / WEIGHTS)
        return hashlib.sha256(f"{weights} {file_digest(self.folder / CONFIG)}".encode()).hexdigest()

    @cached_property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        from transformers import AutoImageProcessor

        return ProcessorTransform(AutoImageProcessor.from_pretrained(self.folder, local_files_only=True))

    @property
    def transform_digest(self) -> str:
        """Digest of the image processor's configuration file."""
        return hashlib.sha256((self.folder / TRANSFORM).read_bytes()).hexdigest()

    @cached_property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer of the folder."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder, local_files_only=True)

    @cached_property
    def text_digest(self) -> str:
        """Digest of the weights and of the tokenizer's files."""
        files = [(name, file_digest(self.folder / name)) for name in TEXT_FILES if (self.folder / name).is_file()]
        return hashlib.sha256(repr((self.weights_digest, files)).encode()).hexdigest()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit text embeddings (n, D) float32; texts are padded and cut to the tower's context."""
        network: Any = self.module
        tokens = self.tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=network.config.text_config.max_position_embeddings,
            return_tensors="pt",
        ).to(self._device)
        given = {key: tokens[key] for key in ("input_ids", "attention_mask")}
        return F.normalize(_pooled(network.get_text_features(**given)).float(), dim=1)

    def forward(self, images: Tensor) -> Outputs:
        """Unit image embeddings (n, D), and their logits."""
        network: Any = self.module
        features = F.normalize(_pooled(network.get_image_features(images.to(self._device))).float(), dim=1)
        return Outputs(features, self.head(features))


def _pooled(output: Any) -> Tensor:
    """The embedding; newer versions of transformers wrap it."""
    embedding: Tensor = getattr(output, "pooler_output", output)
    return embedding
