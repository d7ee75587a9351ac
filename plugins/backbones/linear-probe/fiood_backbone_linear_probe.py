"""A linear classifier trained on another backbone's stored features."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fiood_core import Backbone, Card, Dataset, __version__, sealed, settings
from fiood_core.backbone import Outputs
from fiood_core.errors import InputError, ParameterError, StoreError
from fiood_core.extract import ExtractSettings, extract, pick_device
from fiood_core.head import Head
from fiood_core.progress import progress_bar
from fiood_core.request import Request
from fiood_core.store import FeatureStore

if TYPE_CHECKING:
    from PIL import Image

REVISION = "revision 1: standardised features, zero weights, Adam, cosine to 0"
"""What training does besides its parameters; it changes with the weights that come of it."""

BLOCK = 4096
"""Rows that are summed at once in float64."""

CONSTANT = 1e-6
"""A feature whose deviation is a smaller share of its mean is constant but for rounding."""

EVERY = 2**20
"""More epochs than any training has, so that each epoch of each seed has an order of its own."""


@dataclass(frozen=True)
class Preset:
    """A backbone of the paper with its probe.

    Attributes
    ----------
    backbone, train : str
        Specifications of the backbone that gives the features and of the probe's training set.
    parameters : int
        Of both.
    pretraining : str
        In the paper's words.
    """

    backbone: str
    train: str
    parameters: int
    pretraining: str


PRESETS: Mapping[str, Preset] = {
    "DINOv2-g/14": Preset(
        "timm(model=vit_giant_patch14_dinov2.lvd142m)",
        "imagenet-1k-train",
        1_136_479_232 + 1537 * 1000,
        "SSL (LVD-142M)",
    ),
    "DINOv3-7B": Preset(
        "timm(model=vit_7b_patch16_dinov3.lvd1689m, global_pool=token)",
        "imagenet-1k-train",
        6_716_030_976 + 4097 * 1000,
        "SSL (LVD-1689M)",
    ),
}
"""The paper's two; both features are the class token after the last norm."""


class LinearProbe(Backbone):
    """Another backbone's features under a linear classifier that is trained on them.

    The training set goes through the backbone once, into the feature store, where detectors find the same features.
    The probe is trained when it is first needed, by cross-entropy, and kept under ``settings.home()`` with its
    provenance; interrupted, it goes on after the last finished epoch and arrives at the same bits.  Training holds all
    features in memory.  A probe belongs to the precision of its features: a run with autocast has one of its own.

    Parameters
    ----------
    backbone : str, mapping or Backbone
        What gives the features, as a run names it: ``"timm(model=…)"``; it need not have a classifier.
    train : str, mapping or Dataset
        What the probe learns from; each picture has one class.
    epochs, batch_size : int
        The defaults are for ImageNet-1k; a set of hundreds wants hundreds of epochs.
    learning_rate : float
        Of the first step; it falls to 0 along a cosine.
    seed : int
        Decides the order of pictures in each epoch, and nothing else is random.
    """

    api_version = 1
    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    def __init__(
        self,
        backbone: str | Mapping[str, Any] | Backbone | None = None,
        train: str | Mapping[str, Any] | Dataset | None = None,
        *,
        epochs: int = 20,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        seed: int = 0,
    ) -> None:
        if backbone is None or train is None:
            raise ParameterError("linear-probe needs backbone= and train=, what gives features and what to learn from")
        if not 1 <= epochs < EVERY or batch_size < 1 or not learning_rate > 0 or seed < 0:
            raise ParameterError(
                "linear-probe takes at least one epoch, a positive batch size and learning rate, and a seed from 0; "
                f"got {epochs}, {batch_size}, {learning_rate} and {seed}"
            )
        self.base: Backbone = _made("backbone", backbone)
        self.train: Dataset = _made("dataset", train)
        self.training = Training(epochs, batch_size, learning_rate, seed)
        self.preset: str | None = None
        self._key = ""
        self._head: Head | None = None

    @classmethod
    def configured(cls, preset: str | None = None, **parameters: Any) -> LinearProbe:
        """An instance with a preset's backbone and training set, overridden by explicit parameters."""
        if preset is None:
            return cls(**parameters)
        if preset not in PRESETS:
            raise ParameterError(f"linear-probe has no preset {preset!r}; have {', '.join(PRESETS)}")
        made = cls(**{"backbone": PRESETS[preset].backbone, "train": PRESETS[preset].train, **parameters})
        made.preset = preset
        return made

    @property
    def card(self) -> Card:  # type: ignore[override]
        """The backbone's, under the probe's name; no accuracy is declared, as none is published for this training."""
        base, known = self.base.card, PRESETS[self.preset] if self.preset else None
        return Card(
            title=self.preset or f"linear probe on {base.title}",
            parameters=known.parameters if known else base.parameters,
            family=base.family,
            pretraining=known.pretraining if known else base.pretraining,
            resolution=base.resolution,
            licence=base.licence,
            source=f"{base.source}, and a probe trained on the spot on {self.train.info.title}",
            extra={"features": base.title},
        )

    @cached_property
    def num_classes(self) -> int:  # type: ignore[override]
        """Classes of the training set: as many as it names, else as its largest label says."""
        names = self.train.class_wnids or self.train.class_names
        if names is not None:
            return len(names)
        return 1 + max((max(target) for target in self.train.view().targets or () if target), default=0)

    @property
    def class_wnids(self) -> Sequence[str] | None:  # type: ignore[override]
        """The training set's."""
        return self.train.class_wnids

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return self.base.transform

    @property
    def transform_digest(self) -> str:
        return self.base.transform_digest

    @property
    def module(self) -> nn.Module:
        """The backbone's; the probe is no part of it."""
        return self.base.module

    @cached_property
    def weights_digest(self) -> str:
        """SHA-256 over the backbone's, the training pictures, and the recipe that makes the probe bit for bit.

        Raises
        ------
        InputError
            The weights or the training pictures are not here; the message says all that is missing.
        """
        missing = list(self.train.missing())
        try:
            base = self.base.weights_digest
        except InputError as error:
            missing.insert(0, str(error))
        if missing:
            raise InputError("; ".join(missing))
        view = self.train.view()
        pictures = hashlib.sha256(repr(list(self.train.stamps(view.ids))).encode()).hexdigest()
        platform = (torch.__version__, torch.backends.cpu.get_cpu_capability())
        text = repr((REVISION, base, self.transform_digest, view.digest, pictures, self.training, platform))
        return hashlib.sha256(text.encode()).hexdigest()

    def features_key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        """The backbone's own."""
        return self.base.features_key(dtype=dtype, autocast=autocast)

    def prepare(self, store: FeatureStore, settings: ExtractSettings) -> None:
        """Find the probe that is kept, or bring the training set through the backbone and train it.

        Raises
        ------
        InputError
            A training picture has no class, or several.
        """
        key = self.key(autocast=settings.autocast)
        if self._key == key:
            return
        self.base.prepare(store, settings)
        kept = _kept(_place(key))
        if kept is not None:
            head = Head(kept.tensor("weight").clone(), kept.tensor("bias").clone())
        else:
            head = store.head(key) or self._trained(key, store, settings)
        store.put_backbone(key, self.card.title, head)
        self._key, self._head = key, head

    def load(self, device: torch.device | str = "cpu") -> None:
        """Read the backbone's weights; outside a run, the probe is trained with the default store and settings."""
        if self._head is None:
            self.prepare(FeatureStore(), ExtractSettings(device=str(device), progress=False))
        self.base.load(device)

    @property
    def head(self) -> Head:
        if self._head is None:
            raise InputError(f"{self.card.title} has no probe yet; call load() first")
        return self._head

    @property
    def provenance(self) -> dict[str, Any]:
        """What the probe was made from, and how: backbone, pictures, parameters, versions, loss and accuracy.

        Raises
        ------
        StoreError
            It is not kept here; :meth:`load` trains one where none is.
        """
        found: dict[str, Any] = json.loads(sealed.read(_root(), _place(self._key)).metadata["provenance"])
        return found

    def forward(self, images: Tensor) -> Outputs:
        """The backbone's features, and the probe's logits of them in float32."""
        return _under(self.base, images, self.head)

    def _trained(self, key: str, store: FeatureStore, settings: ExtractSettings) -> Head:
        """The head that comes of training, kept with its provenance."""
        found = extract(_Untrained(self), self.train, store, settings)
        if found.features.labels is None:
            raise InputError(
                f"a linear probe learns from pictures with one class each; {self.train.info.title} has others, or no "
                "labels at all"
            )
        features = torch.cat([block.stored_features for block in found.features.blocks()])
        labels = torch.as_tensor(found.features.labels)
        device = pick_device(settings.device)
        result = self.training.run(features, labels, self.num_classes, device, _place(key, "part."), settings.progress)
        provenance = {
            "backbone": self.base.card.title,
            "features_key": self.features_key(autocast=settings.autocast),
            "train": self.train.info.title,
            "view": found.view.digest,
            "content": found.content,
            "pictures": len(features),
            "skipped": len(found.skipped),
            "training": self.training._asdict(),
            "recipe": REVISION,
            "device": device.type,
            "versions": {"fiood-core": __version__, "torch": torch.__version__, "numpy": np.__version__},
            "loss": result.loss,
            "top1": result.top1,
        }
        tensors = {"weight": result.weight, "bias": result.bias}
        sealed.write(_root(), _place(key), tensors, {"provenance": json.dumps(provenance)})
        (_root() / _place(key, "part.")).unlink(missing_ok=True)
        return Head(result.weight, result.bias)


class Result(NamedTuple):
    """A trained probe on raw features: weight (C, D), bias (C,), and its mean loss and accuracy in the last epoch."""

    weight: Tensor
    bias: Tensor
    loss: float
    top1: float


class Training(NamedTuple):
    """How a probe is trained; the recipe that its weights follow from."""

    epochs: int
    batch_size: int
    learning_rate: float
    seed: int

    def run(
        self, features: Tensor, labels: Tensor, classes: int, device: torch.device, place: str, progress: bool
    ) -> Result:
        """Train on features (n, D) and labels (n,); each finished epoch is kept at ``place``, and found again there.

        Features are brought to mean 0 and deviation 1, as a batch norm before the classifier would, and the trained
        weights are brought back.

        Raises
        ------
        InputError
            The weights that come of it are not finite.
        """
        n, steps = len(features), math.ceil(len(features) / self.batch_size)
        mean, deviation = _moments(features)
        shift, scale = mean.float().to(device), (1 / deviation).float().to(device)
        with _alone():
            state = _State(nn.Linear(features.shape[1], classes), self.learning_rate, device)
            first = state.resume(place)
            epochs = range(first, self.epochs)
            for epoch in progress_bar(epochs, desc="training the probe", unit="epoch", disable=not progress):
                state.loss, state.right = torch.zeros((), device=device), torch.zeros((), device=device)
                for step, rows in enumerate(self.order(epoch, n)):
                    rate = self.rate((epoch * steps + step) / (self.epochs * steps))
                    state.step((features[rows].to(device) - shift) * scale, labels[rows].to(device), rate)
                state.keep(place, epoch + 1)
        weight = state.layer.weight.detach().cpu().double() / deviation
        bias = state.layer.bias.detach().cpu().double() - weight @ mean
        if not bool(torch.isfinite(weight).all() and torch.isfinite(bias).all()):
            raise InputError(f"the probe diverged; give a smaller learning_rate than {self.learning_rate}")
        return Result(weight.float(), bias.float(), float(state.loss) / n, float(state.right) / n)

    def order(self, epoch: int, n: int) -> Sequence[Tensor]:
        """The batches of an epoch, as rows; the same whether or not there was a pause before it."""
        generator = torch.Generator().manual_seed(self.seed * EVERY + epoch)
        batches: Sequence[Tensor] = torch.randperm(n, generator=generator).split(self.batch_size)
        return batches

    def rate(self, done: float) -> float:
        """Learning rate after a share of all steps."""
        return self.learning_rate * (1 + math.cos(math.pi * done)) / 2


class _State:
    """Weights and moments between two steps."""

    def __init__(self, layer: nn.Linear, rate: float, device: torch.device) -> None:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        self.layer = layer.to(device)
        self.optimiser = torch.optim.Adam(self.layer.parameters(), lr=rate)
        self.loss = self.right = torch.zeros((), device=device)

    def step(self, features: Tensor, labels: Tensor, rate: float) -> None:
        """One step down the mean cross-entropy of a batch."""
        logits = self.layer(features)
        loss = nn.functional.cross_entropy(logits, labels)
        self.optimiser.zero_grad()
        loss.backward()
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.loss = self.loss + loss.detach() * len(labels)
        self.right = self.right + (logits.detach().argmax(dim=1) == labels).sum()

    def keep(self, place: str, epochs: int) -> None:
        """Write everything that the next epoch depends on, at once or not at all."""
        moments = {
            f"moment.{number}.{name}": value
            for number, of in self.optimiser.state_dict()["state"].items()
            for name, value in of.items()
        }
        tensors = {**self.layer.state_dict(), **moments, "loss": self.loss, "right": self.right}
        sealed.write(_root(), place, tensors, {"epochs": str(epochs)})

    def resume(self, place: str) -> int:
        """Take up what an interrupted training kept; gives the number of finished epochs."""
        kept = _kept(place)
        if kept is None:
            return 0
        tensors = {name: kept.tensor(name).clone() for name in kept.entries}
        self.layer.load_state_dict({name: tensors[name] for name in ("weight", "bias")})
        state: dict[int, dict[str, Tensor]] = {0: {}, 1: {}}
        for name, value in tensors.items():
            if name.startswith("moment."):
                _, number, what = name.split(".")
                state[int(number)][what] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})
        self.loss, self.right = tensors["loss"], tensors["right"]
        return int(kept.metadata["epochs"])


class _Untrained(Backbone):
    """The backbone under zeros: what the training set goes through while there is no probe yet."""

    def __init__(self, probe: LinearProbe) -> None:
        self._of = probe
        self._head: Head | None = None
        self.card = Card(title=probe.base.card.title, parameters=probe.card.parameters)
        self.num_classes = probe.num_classes

    def load(self, device: torch.device | str = "cpu") -> None:
        """Load the backbone, and look how wide its features are."""
        from PIL import Image

        self._of.base.load(device)
        with torch.no_grad():
            blank = self._of.base.transform(Image.new("RGB", (512, 512)))
            width = self._of.base.forward(blank[None].to(device)).features.shape[1]
        self._head = Head(torch.zeros(self._of.num_classes, width))

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return self._of.base.transform

    @property
    def transform_digest(self) -> str:
        return self._of.base.transform_digest

    @property
    def module(self) -> nn.Module:
        return self._of.base.module

    @property
    def head(self) -> Head:
        if self._head is None:
            raise InputError(f"{self.card.title} is not loaded; call load() first")
        return self._head

    @property
    def weights_digest(self) -> str:
        text = repr(("untrained probe", self._of.num_classes, self._of.base.weights_digest))
        return hashlib.sha256(text.encode()).hexdigest()

    def features_key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        return self._of.features_key(dtype=dtype, autocast=autocast)

    def forward(self, images: Tensor) -> Outputs:
        return _under(self._of.base, images, self.head)


def _made(kind: str, what: Any) -> Any:
    """A component, or the one that a specification stands for."""
    return Request.parse(kind, what).create() if isinstance(what, (str, Mapping)) else what


def _root() -> Path:
    return settings.home() / "probes"


def _place(key: str, part: str = "") -> str:
    """The file of the probe that belongs to a key, or of what an unfinished training has kept."""
    return f"{key[:32]}.{part}safetensors"


def _kept(place: str) -> sealed.Sealed | None:
    """A file of the probes' folder, if it is there and sound."""
    with contextlib.suppress(StoreError):
        return sealed.read(_root(), place)
    return None


def _under(base: Backbone, images: Tensor, head: Head) -> Outputs:
    """A backbone's features, and their logits under a head, in float32 also where the backbone runs in less."""
    features = base.forward(images).features.float()
    with torch.autocast(features.device.type, enabled=False):
        return Outputs(features, head(features))


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (D,) in float64 of each feature; 1 for the deviation of a constant one."""
    mean = sum(block.double().sum(dim=0) for block in features.split(BLOCK)) / len(features)
    squares = sum((block.double() - mean).square().sum(dim=0) for block in features.split(BLOCK))
    deviation = torch.as_tensor(squares / len(features)).sqrt()
    return torch.as_tensor(mean), torch.where(deviation > CONSTANT * torch.as_tensor(mean).abs(), deviation, 1.0)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One thread, so that sums do not depend on how many there are; gradients, whatever the caller has switched off."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
