"""The backbone interface: pictures in, penultimate features and logits out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fiood_core._lookup import make_callable
from fiood_core.detector import API_VERSION
from fiood_core.errors import GateError, InputError
from fiood_core.head import Head

if TYPE_CHECKING:
    from PIL import Image

    from fiood_core.value_branch import ValueBranch


class Outputs(NamedTuple):
    """One forward pass: penultimate features (n, D), exactly what enters the head, and logits (n, C)."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Card:
    """What is known of a backbone before it is loaded.

    Attributes
    ----------
    title : str
        The name a paper gives it.
    parameters : float, optional
        Number of weights.
    family, pretraining : str
        Architecture family; pre-training corpus.
    resolution : int, optional
        Side of the input in pixels.
    expected_top1 : mapping from set name to fraction in [0, 1]
        What the accuracy gate holds the run to; a set that is not named is not gated, and the run says so.
    licence, source : str
        Licence of the weights, and where they come from.
    extra : mapping
        Anything else worth showing (matched pair, notes).
    """

    title: str
    parameters: float | None = None
    family: str = ""
    pretraining: str = ""
    resolution: int | None = None
    expected_top1: Mapping[str, float] = field(default_factory=dict)
    licence: str = ""
    source: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)


class Backbone(ABC):
    """An image classifier.  A plugin's constructor is cheap; weights are read by :meth:`load`.

    Attributes
    ----------
    card : Card
    num_classes : int or None
        C, known before loading where possible.
    class_wnids : sequence of str or None
        WordNet id of each class, where the classes are ImageNet's (sorted wnids).
    """

    api_version: ClassVar[int] = API_VERSION
    card: Card
    num_classes: int | None = None
    class_wnids: Sequence[str] | None = None

    @abstractmethod
    def load(self, device: torch.device | str = "cpu") -> None:
        """Read the weights, put the model on a device and in eval mode.  A second call only moves it."""

    @property
    @abstractmethod
    def transform(self) -> Callable[[Image.Image], Tensor]:
        """From an RGB picture to the tensor (3, H, W) that the model takes; comes from the model, picklable."""

    @abstractmethod
    def forward(self, images: Tensor) -> Outputs:
        """Features and logits of a batch (n, 3, H, W) on the model's device, in eval mode."""

    @property
    @abstractmethod
    def head(self) -> Head:
        """The final linear map, such that ``head(features)`` equals the logits."""

    @property
    @abstractmethod
    def weights_digest(self) -> str:
        """SHA-256 of the weights, or of the recipe that makes them bit for bit; without loading if possible."""

    @property
    def transform_digest(self) -> str:
        """Digest of all that the transform does; by default of its ``repr``."""
        return hashlib.sha256(repr(self.transform).encode()).hexdigest()

    @property
    def module(self) -> nn.Module:
        """The loaded module, for columns that hook into it."""
        raise InputError(f"{type(self).__name__} does not offer its module; columns from inner layers need it")

    def key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        """What the feature store knows the backbone by: weights, transform, dtype and autocast."""
        text = repr((self.weights_digest, self.transform_digest, dtype, autocast))
        return hashlib.sha256(text.encode()).hexdigest()


class VisionLanguageBackbone(Backbone):
    """A backbone that also embeds text; with an ID vocabulary it is a classifier.

    Image embeddings are unit vectors and are the features; the head is the text embeddings over τ, set by
    :meth:`set_classes` before the head or logits are asked for.  Features do not depend on the vocabulary.
    """

    temperature: float = 0.01

    @abstractmethod
    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit text embeddings (n, D) float32 of plain strings (no templates applied)."""

    @property
    @abstractmethod
    def text_digest(self) -> str:
        """Digest of text tower and tokenizer: what a text-embedding cache is keyed by."""

    @abstractmethod
    def set_classes(self, head: Head) -> None:
        """Use text embeddings as the head."""

    @property
    def value_branch(self) -> ValueBranch:
        """How patches get into the joint space, for GL-MCM; by default found by the class of the vision tower.

        Raises
        ------
        InputError
            The tower is none whose value branch is known.
        """
        from fiood_core.value_branch import find

        return find(self.module)


class ModuleBackbone(Backbone):
    """A user's own ``nn.Module`` as a backbone; see :func:`from_module`."""

    def __init__(
        self, module: nn.Module, transform: Callable[..., Tensor], head: nn.Module, name: str, card: Card
    ) -> None:
        self._module = module.eval()
        self._transform = transform
        self._final = head
        self.name = name
        self.card = card
        self._head = _linear_head(head)
        self.num_classes = self._head.num_rows
        self._device = torch.device("cpu")

    def load(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._module.to(self._device).eval()

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return self._transform

    @property
    def head(self) -> Head:
        return self._head

    @property
    def module(self) -> nn.Module:
        return self._module

    @property
    def weights_digest(self) -> str:
        return state_digest(self._module)

    def forward(self, images: Tensor) -> Outputs:
        captured: list[Tensor] = []
        handle = self._final.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
        try:
            logits = self._module(images.to(self._device))
        finally:
            handle.remove()
        if len(captured) != 1:
            raise GateError(
                f"the head of {self.name!r} ran {len(captured)} times in one forward pass; name another head"
            )
        return Outputs(captured[0].flatten(1), logits.flatten(1))


def from_module(
    module: nn.Module,
    transform: Callable[..., Tensor],
    *,
    head: str | None = None,
    name: str | None = None,
    card: Card | None = None,
) -> ModuleBackbone:
    """Make a backbone of a user's own model, torchvision's for example, with any number of classes.

    Parameters
    ----------
    module : nn.Module
        Gives logits (n, C) for images (n, 3, H, W).
    transform : callable
        From a PIL picture to a tensor (3, H, W).
    head : str, optional
        Name of the final linear (or 1×1 convolution) submodule; by default the last one in module order.
    name : str, optional
        Shown in results; by default the module's class name.
    card : Card, optional
        What the accuracy gate should expect, and what to show.

    Raises
    ------
    InputError
        No linear submodule, or no submodule of that name.
    """
    modules = dict(module.named_modules())
    linear = [key for key, m in modules.items() if isinstance(m, nn.Linear)]
    if head is None and not linear:
        raise InputError(f"{type(module).__name__} has no nn.Linear; name its head with from_module(head=...)")
    chosen = head or linear[-1]
    if chosen not in modules:
        raise InputError(f"{type(module).__name__} has no submodule {chosen!r}; its linear ones are {linear}")
    title = name or type(module).__name__
    return ModuleBackbone(module, transform, modules[chosen], title, card or Card(title=title))


def state_digest(module: nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of a module's parameters and buffers."""
    sha = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        sha.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def _linear_head(layer: nn.Module) -> Head:
    weight: Any = getattr(layer, "weight", None)
    if not isinstance(weight, Tensor) or weight.flatten(1).shape[1] * weight.shape[0] != weight.numel():
        raise InputError(f"the head must be a linear layer or a 1×1 convolution, got {type(layer).__name__}")
    bias: Any = getattr(layer, "bias", None)
    return Head(weight.detach().flatten(1), None if bias is None else bias.detach())


make_callable(__name__)
