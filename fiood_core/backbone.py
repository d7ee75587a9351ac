"""The backbone interface: pictures in, penultimate features and logits out."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fiood_core._lookup import make_callable
from fiood_core.detector import API_VERSION
from fiood_core.errors import GateError, InputError
from fiood_core.fingerprint import behaviour, fingerprint
from fiood_core.head import Head

if TYPE_CHECKING:
    from PIL import Image

    from fiood_core.extract import ExtractSettings
    from fiood_core.store import FeatureStore
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
        """Digest of all that the transform does; by default its :func:`~fiood_core.fingerprint.fingerprint`."""
        return fingerprint(self.transform)

    @property
    def module(self) -> nn.Module:
        """The loaded module, for columns that hook into it."""
        raise InputError(f"{type(self).__name__} does not offer its module; columns from inner layers need it")

    def key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        """What the feature store knows the backbone by: weights, transform, dtype and autocast."""
        text = repr((self.weights_digest, self.transform_digest, dtype, autocast))
        return hashlib.sha256(text.encode()).hexdigest()

    def features_key(self, *, dtype: str = "float32", autocast: str | None = None) -> str:
        """What the feature store knows the features alone by: the key, unless they are another backbone's.

        A backbone that puts a head of its own on another's features gives the other's, and pictures that the other has
        seen need not be seen again; its logits are the head's float32 product with them, under autocast too.
        """
        return self.key(dtype=dtype, autocast=autocast)

    def prepare(self, store: FeatureStore, settings: ExtractSettings) -> None:
        """Get ready what is made from stored features, before :meth:`load`; by default there is nothing to do.

        Called with the run's own store and settings whenever the backbone is going to be loaded.
        """


class VisionLanguageBackbone(Backbone):
    """A backbone that also embeds text; with an ID vocabulary it is a classifier.

    Image embeddings are unit vectors and are the features; the head is the text embeddings over τ, set by
    :meth:`set_classes` before the head or logits are asked for.  Features do not depend on the vocabulary.
    """

    temperature: float = 0.01
    _head: Head | None = None

    @property
    def head(self) -> Head:
        """The text embeddings over τ.

        Raises
        ------
        InputError
            There are none yet.
        """
        if self._head is None:
            raise InputError(f"{self.card.title} has no classes yet; call set_classes(head) with text embeddings")
        return self._head

    def set_classes(self, head: Head) -> None:
        """Use text embeddings as the head."""
        self._head = head

    @abstractmethod
    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Unit text embeddings (n, D) float32 of plain strings (no templates applied)."""

    @property
    @abstractmethod
    def text_digest(self) -> str:
        """Digest of text tower and tokenizer: what a text-embedding cache is keyed by."""

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
        self, module: nn.Module, transform: Callable[..., Tensor], head: str, name: str | None, card: Card | None
    ) -> None:
        self._module = module
        self._transform = transform
        self._final = module.get_submodule(head)
        self._device = _device(module)
        self._digest: tuple[object, str] = (None, "")
        self.name = name or type(module).__name__
        self.card = card or Card(title=self.name, parameters=sum(p.numel() for p in module.parameters()))
        self.num_classes = self.head.num_rows

    def load(self, device: torch.device | str = "cpu") -> None:
        self._device = torch.device(device)
        self._module.to(self._device).eval()

    @property
    def transform(self) -> Callable[[Image.Image], Tensor]:
        return self._transform

    @property
    def head(self) -> Head:
        final: Any = self._final
        return Head(final.weight.flatten(1), final.bias)

    @property
    def module(self) -> nn.Module:
        return self._module

    @property
    def weights_digest(self) -> str:
        """SHA-256 of state, architecture (``repr``) and code; taken anew when a tensor was changed in place."""
        state = self._module.state_dict()
        version = [
            (name, tensor.data_ptr(), None if tensor.is_inference() else tensor._version)
            for name, tensor in state.items()
            if isinstance(tensor, Tensor)
        ]
        if self._digest[0] != version:
            kinds = dict.fromkeys(type(m) for m in self._module.modules())
            shape = re.sub(r" at 0x[0-9a-f]+", "", repr(self._module))
            text = repr((state_digest(self._module), shape, behaviour(kinds)))
            self._digest = (version, hashlib.sha256(text.encode()).hexdigest())
        return self._digest[1]

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

    The model runs once, on a made-up picture, to find its head: the linear layer or 1×1 convolution whose output is
    the model's output.  It is left in eval mode.

    Parameters
    ----------
    module : nn.Module
        Gives logits (n, C) for images (n, 3, H, W).
    transform : callable
        From a PIL picture to a tensor (3, H, W).
    head : str, optional
        Name of the final submodule, where it should not be looked for.
    name : str, optional
        Shown in results; by default the module's class name.
    card : Card, optional
        What the accuracy gate should expect, and what to show.

    Raises
    ------
    InputError
        The model does not run on a transformed picture, or does not end in a linear map of its penultimate features.
    """
    module.eval()
    ends = _linear_ends(module, transform)
    if head is None and not ends:
        raise InputError(
            f"{type(module).__name__} does not end in an nn.Linear or 1×1 convolution whose output is the logits; take "
            "off what comes after it (a softmax, a pooling, a mean of two heads)"
        )
    chosen = ends[-1] if head is None else head
    names = [key for key, _ in module.named_modules()]
    if chosen not in names:
        raise InputError(
            f"{type(module).__name__} has no submodule {chosen!r}; its final one is {ends or 'not linear'}"
        )
    if chosen not in ends:
        raise InputError(f"the output of {chosen!r} is not the output of {type(module).__name__}; {ends} would be")
    return ModuleBackbone(module, transform, chosen, name, card)


def _linear_ends(module: nn.Module, transform: Callable[..., Tensor]) -> list[str]:
    """Names of the linear submodules that give the model's output, in the order in which they ran."""
    parts: dict[str, Any] = {key: part for key, part in module.named_modules() if _is_linear(part)}
    outputs: dict[str, Tensor] = {}
    handles = [
        part.register_forward_hook(lambda _, args, out, key=key: outputs.update({key: out}))
        for key, part in parts.items()
    ]
    try:
        with torch.no_grad():
            logits = module(_sample(transform)[None].to(_device(module)))
    except Exception as error:
        raise InputError(
            f"{type(module).__name__} does not run on a transformed picture: {type(error).__name__}: {error}"
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if not isinstance(logits, Tensor):
        raise InputError(
            f"{type(module).__name__} gives a {type(logits).__name__}, not a tensor; wrap it to give logits"
        )
    rows = {key: part.weight.shape[0] for key, part in parts.items()}
    return [
        key for key, out in outputs.items() if out.numel() == rows[key] and torch.equal(out.flatten(), logits.flatten())
    ]


def _sample(transform: Callable[..., Tensor]) -> Tensor:
    """A transformed picture of noise, large enough for any crop."""
    from PIL import Image

    noise = torch.randint(0, 256, (512, 512, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return transform(Image.fromarray(noise.numpy()))


def _device(module: nn.Module) -> torch.device:
    return next((tensor.device for tensor in module.parameters()), torch.device("cpu"))


def state_digest(module: nn.Module) -> str:
    """SHA-256 over the names and contents of a module's parameters, buffers and extra state."""
    return fingerprint([(name, value) for name, value in sorted(module.state_dict().items())])


def _is_linear(layer: nn.Module) -> bool:
    """Whether a layer is a linear map of a vector: ``nn.Linear``, or a convolution of one position to one."""
    if isinstance(layer, nn.Conv2d):
        return layer.kernel_size == (1, 1) and layer.groups == 1
    return isinstance(layer, nn.Linear)


make_callable(__name__)
