"""A three-layer network for handwritten digits 0 to 5, trained on the spot in a few seconds and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from fiood_dataset_digits import SIDE, Digits
from PIL import Image
from torch import Tensor, nn

from fiood_core import Backbone, Card, sealed, settings
from fiood_core.backbone import Outputs
from fiood_core.errors import InputError, StoreError
from fiood_core.head import Head

SEED, EPOCHS, BATCH = 0, 40, 64

RECIPE = (
    "revision 1",
    "conv 32, conv 64, max-pool, dropout 0.3, linear 64, linear 6",
    "AdamW(weight_decay=5e-4), one cycle to 2e-3, shift by up to one pixel",
    ("seed", SEED, "epochs", EPOCHS, "batch", BATCH),
)
"""All that decides the weights, besides the training pictures, the torch version and the CPU's instruction set."""


class DigitsTransform:
    """From a picture to (3, 8, 8): grey, resized to 8×8 (bilinear, antialiased), black −1 to white 1."""

    def __call__(self, picture: Image.Image) -> Tensor:
        grey = picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(grey, dtype=np.float32))
        return (pixels / 127.5 - 1).expand(3, SIDE, SIDE).contiguous()

    def __repr__(self) -> str:
        return "DigitsTransform(grey, 8×8 bilinear, [-1, 1], 3 equal channels)"


class DigitsCNN(Backbone):
    """Handwritten digits 0 to 5; penultimate features are the 64 rectified units of the last hidden layer.

    The training half of the digits dataset is all that training sees.  Training runs on one thread, whatever the
    process uses otherwise, so that the same machine always arrives at the same bits; the weights are kept under
    ``settings.home()``, sealed with their digest, and trained again if the file is damaged.
    """

    card = Card(
        title="Digits CNN",
        parameters=85_382,
        family="CNN",
        pretraining="handwritten digits 0 to 5 (training half)",
        resolution=SIDE,
        expected_top1={"digits": 0.998},
        licence="Apache-2.0",
        source="trained on the spot",
    )
    num_classes = 6

    def __init__(self) -> None:
        self._network: nn.Sequential | None = None
        self._device = torch.device("cpu")

    def load(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        if self._network is None:
            self._network = _trained(f"digits-cnn-{self.weights_digest[:16]}.safetensors")
        self._network.to(self._device).eval().requires_grad_(False)

    @property
    def module(self) -> nn.Sequential:
        if self._network is None:
            raise InputError("digits-cnn is not loaded; call load() first")
        return self._network

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return DigitsTransform()

    @property
    def head(self) -> Head:
        final = self.module[-1]
        return Head(final.weight, final.bias)

    @property
    def weights_digest(self) -> str:
        """SHA-256 of the recipe: training again gives the same weights bit for bit."""
        platform = (torch.__version__, torch.backends.cpu.get_cpu_capability())
        text = repr((RECIPE, platform, Digits("train").view().digest, repr(self.transform)))
        return hashlib.sha256(text.encode()).hexdigest()

    def forward(self, images: Tensor) -> Outputs:
        network = self.module
        features = network[:-1](images.to(self._device))
        return Outputs(features, network[-1](features))


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(64 * (SIDE // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 6),
    )


def _trained(place: str) -> nn.Sequential:
    """The network with the weights kept at ``place`` under the cache folder, else trained and kept there."""
    root = settings.home() / "weights"
    network = _network()
    try:
        kept = sealed.read(root, place)
        network.load_state_dict({name: kept.tensor(name) for name in kept.entries})
    except (StoreError, RuntimeError):  # nothing kept, or damaged: train again
        network = _train()
        sealed.write(root, place, network.state_dict(), {})
    return network


def _train() -> nn.Sequential:
    dataset = Digits("train")
    view = dataset.view()
    transform = DigitsTransform()
    images = torch.stack([transform(dataset.open(image_id)) for image_id in view.ids])
    labels = torch.tensor([target for (target,) in view.targets or ()])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
            torch.manual_seed(SEED)
            return _fit(_network(), images, labels)
    finally:
        torch.set_num_threads(threads)


def _fit(network: nn.Sequential, images: Tensor, labels: Tensor) -> nn.Sequential:
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=5e-4)
    batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=EPOCHS * batches)
    framed = nn.functional.pad(images, (1, 1, 1, 1), value=-1.0)
    network.train()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images))[: batches * BATCH].split(BATCH):
            top, left = torch.randint(0, 3, (2,)).tolist()
            shifted = framed[rows, :, top : top + SIDE, left : left + SIDE]
            loss = nn.functional.cross_entropy(network(shifted), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return network.eval()
