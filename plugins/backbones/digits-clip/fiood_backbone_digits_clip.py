"""A small CLIP for handwritten digits, trained on captions of all ten in a few seconds and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from fiood_backbone_digits_cnn import DigitsTransform
from fiood_dataset_digits import NAMES, SIDE, Digits, UnseenDigits
from torch import Tensor, nn

from fiood_core import Card, VisionLanguageBackbone, sealed, settings
from fiood_core.backbone import Outputs
from fiood_core.errors import InputError, StoreError
from fiood_core.text import TEMPERATURE, TEMPLATES, render_prompts

if TYPE_CHECKING:
    from PIL import Image

SEED, STEPS, BATCH, SCALE, SMOOTHING, RATE = 0, 500, 128, 50.0, 0.1, 3e-3
CONTEXT = 12
VISION = {"image_size": SIDE, "patch_size": 4, "width": 80, "head_width": 16, "layers": 2, "mlp_ratio": 2.0}
TEXT = {"context_length": CONTEXT, "vocab_size": 49408, "width": 48, "heads": 3, "layers": 1}
JOINT = 32

RECIPE = (
    "revision 1",
    sorted(VISION.items()),
    sorted(TEXT.items()),
    ("joint", JOINT, "token embeddings frozen"),
    "AdamW(weight_decay=0.05), one cycle, shift by up to one pixel, one template a step in turn",
    ("seed", SEED, "steps", STEPS, "batch", BATCH, "scale", SCALE, "smoothing", SMOOTHING, "rate", RATE),
    TEMPLATES,
)
"""All that decides the weights, besides the training pictures, the torch version and the CPU's instruction set."""


class DigitsCLIP(VisionLanguageBackbone):
    """open_clip's CLIP in small, trained to match digits 0 to 9 with captions of their names.

    It knows the words and the looks of all ten digits, whichever are the classes of a run; with 0 to 5 as classes, the
    names of 6 to 9 are negative labels that mean something to it.  Training sees the training half of the digits
    dataset alone, and runs on one thread, so that the same machine always arrives at the same bits.
    """

    api_version = 1
    card = Card(
        title="Digits CLIP",
        parameters=2_513_425,
        family="CLIP",
        pretraining="captions of handwritten digits 0 to 9 (training half)",
        resolution=SIDE,
        licence="Apache-2.0",
        source="trained on the spot",
    )

    def __init__(self) -> None:
        self.temperature = TEMPERATURE
        self._network: Any = None
        self._device = torch.device("cpu")

    @property
    def num_classes(self) -> int | None:  # type: ignore[override]
        """Rows of the head; None before :meth:`set_classes`."""
        return None if self._head is None else self._head.num_rows

    def load(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        if self._network is None:
            self._network = _trained(f"digits-clip-{self.weights_digest[:16]}.safetensors")
        self._network.to(self._device).eval()

    @property
    def module(self) -> nn.Module:
        if self._network is None:
            raise InputError("digits-clip is not loaded; call load() first")
        network: nn.Module = self._network
        return network

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return DigitsTransform()

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 of the recipe: training again gives the same weights bit for bit."""
        platform = (torch.__version__, torch.backends.cpu.get_cpu_capability())
        views = [dataset.view().digest for dataset in _training_sets()]
        return hashlib.sha256(repr((RECIPE, platform, views, repr(self.transform))).encode()).hexdigest()

    @property
    def text_digest(self) -> str:
        """The weights' digest; the tokenizer is CLIP's own."""
        return self.weights_digest

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit text embeddings (n, 32) float32."""
        embeddings: Tensor = self.module.encode_text(_tokens(texts).to(self._device), normalize=True)  # type: ignore[operator]
        return embeddings

    def forward(self, images: Tensor) -> Outputs:
        """Unit image embeddings (n, 32), and their logits."""
        features: Tensor = self.module.encode_image(images.to(self._device), normalize=True)  # type: ignore[operator]
        return Outputs(features, self.head(features))


def _training_sets() -> tuple[Digits, UnseenDigits]:
    return Digits("train"), UnseenDigits("train")


def _tokens(texts: Sequence[str]) -> Tensor:
    from open_clip.tokenizer import SimpleTokenizer

    tokens: Tensor = SimpleTokenizer(context_length=CONTEXT)(list(texts))
    return tokens


def _network() -> nn.Module:
    from open_clip.model import CLIP, CLIPTextCfg, CLIPVisionCfg

    network: nn.Module = CLIP(JOINT, CLIPVisionCfg(**VISION), CLIPTextCfg(**TEXT))
    return network


def _trained(place: str) -> nn.Module:
    """The network with the weights kept at ``place`` under the cache folder, else trained and kept there."""
    root = settings.home() / "weights"
    network = _network()
    try:
        kept = sealed.read(root, place)
        network.load_state_dict({name: kept.tensor(name) for name in kept.entries})
    except (StoreError, RuntimeError):  # nothing kept, or damaged: train again
        network = _train()
        sealed.write(root, place, network.state_dict(), {})
    return network.eval().requires_grad_(False)


def _train() -> nn.Module:
    transform = DigitsTransform()
    images, labels = [], []
    for dataset in _training_sets():
        view = dataset.view()
        images += [transform(dataset.open(image_id)) for image_id in view.ids]
        labels += [int(image_id.partition("/")[0]) for image_id in view.ids]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(SEED)
            return _fit(_network(), torch.stack(images), torch.tensor(labels))
    finally:
        torch.set_num_threads(threads)


def _fit(network: Any, images: Tensor, labels: Tensor) -> nn.Module:
    """Tell each picture's name from the nine others', in one template after the other."""
    captions = [_tokens([render_prompts(name, [template])[0] for name in NAMES]) for template in TEMPLATES]
    network.token_embedding.requires_grad_(
        False
    )  # ten words need no others moved, and the table is most of the weights
    optimiser = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
    framed = nn.functional.pad(images, (1, 1, 1, 1), value=-1.0)
    network.train()
    for step in range(STEPS):
        rows = torch.randint(len(images), (BATCH,))
        top, left = torch.randint(0, 3, (2,)).tolist()
        pictures = network.encode_image(framed[rows, :, top : top + SIDE, left : left + SIDE], normalize=True)
        names = network.encode_text(captions[step % len(captions)], normalize=True)
        loss = nn.functional.cross_entropy(SCALE * pictures @ names.T, labels[rows], label_smoothing=SMOOTHING)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    trained: nn.Module = network
    return trained
