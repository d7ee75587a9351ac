"""Does a backbone behave?  Checked on a few made-up pictures."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fiood_core.backbone import Backbone, Card, Outputs, VisionLanguageBackbone
from fiood_core.errors import ConformanceError, InputError
from fiood_core.head import Head
from fiood_core.registry import API_WINDOW
from fiood_core.testing.outcome import ConformanceReport, Skipped, Subject, check, require
from fiood_core.testing.pictures import pictures

CLOSE = 1e-3
"""Allowed difference over the largest logit or feature: batches of other sizes take other kernels."""

LABELS = ("tabby cat", "golden retriever", "fire truck", "teapot", "umbrella")


def check_backbone(target: Any, parameters: Mapping[str, Any] | None = None) -> ConformanceReport:
    """Run every conformance check on a backbone; its weights must be at hand or obtainable.

    Parameters
    ----------
    target : str, class, factory or instance
    parameters : mapping, optional
        For a name, class or factory.

    Raises
    ------
    ConformanceFailure
        One or more checks failed; the message has a line for each.
    """
    return check("backbone", target, parameters, BackboneSubject, CHECKS)


class BackboneSubject(Subject[Backbone]):
    """A way to make the backbone, and what a loaded one gave for a few pictures."""

    @cached_property
    def loaded(self) -> Backbone:
        """An instance on the CPU, with a few classes if it is a vision-language model."""
        backbone = self.make()
        backbone.load("cpu")
        if isinstance(backbone, VisionLanguageBackbone):
            backbone.set_classes(Head(backbone.encode_text(LABELS), temperature=backbone.temperature))
        return backbone

    @cached_property
    def batch(self) -> Tensor:
        """Transformed pictures (n, 3, H, W)."""
        transform = self.loaded.transform
        return torch.stack([transform(picture) for picture in pictures()])

    def forward(self, batch: Tensor) -> Outputs:
        """One pass without gradients."""
        with torch.no_grad():
            return self.loaded.forward(batch)

    @cached_property
    def outputs(self) -> Outputs:
        """What the model gives for the batch."""
        return self.forward(self.batch)


def loads(subject: BackboneSubject) -> None:
    """The backbone loads on the CPU and runs."""
    assert subject.outputs is not None


def transform(subject: BackboneSubject) -> None:
    """The transform gives equal, finite tensors (3, H, W) for pictures of any size, and can be sent to workers."""
    made = subject.loaded.transform
    tensors = [made(picture) for picture in pictures()]
    for tensor in tensors:
        good = (
            isinstance(tensor, Tensor) and tensor.ndim == 3 and tensor.shape[0] == 3 and tensor.dtype == torch.float32
        )
        found = f"{tuple(tensor.shape)} {tensor.dtype}" if isinstance(tensor, Tensor) else type(tensor).__name__
        require(good, f"the transform gave {found}; it must give a float32 tensor (3, H, W) for a PIL picture")
        require(bool(torch.isfinite(tensor).all()), "the transform gave NaN or infinite pixels")
    require(
        all(torch.equal(a, made(p)) for a, p in zip(tensors, pictures(), strict=True)),
        "the transform gives another tensor for the same picture; take evaluation transforms, without random crops",
    )
    try:
        copy = pickle.loads(pickle.dumps(made))
    except Exception as error:
        raise ConformanceError(
            f"the transform cannot be pickled for loader workers: {error}. Use a function or class of the module"
        ) from error
    require(torch.equal(copy(pictures()[1]), tensors[1]), "a pickled copy of the transform gives another tensor")


def shapes(subject: BackboneSubject) -> None:
    """Features (n, D) and logits (n, C), finite, one row a picture."""
    features, logits = subject.outputs
    n, head = len(subject.batch), subject.loaded.head
    require(
        features.shape == (n, head.dim) and logits.shape == (n, head.num_rows),
        f"forward gave features {tuple(features.shape)} and logits {tuple(logits.shape)} for {n} pictures and a head "
        f"of {head.num_rows} × {head.dim}; features are (n, D), exactly what enters the head, and logits (n, C)",
    )
    finite = bool(torch.isfinite(features).all()) and bool(torch.isfinite(logits).all())
    require(finite, "features or logits are NaN or infinite; check how the weights were loaded")
    classes = subject.loaded.num_classes
    require(
        classes is None or isinstance(subject.loaded, VisionLanguageBackbone) or classes == logits.shape[1],
        f"num_classes is {classes}, but there are {logits.shape[1]} logits",
    )
    wnids = subject.loaded.class_wnids
    require(
        wnids is None or len(wnids) == logits.shape[1],
        f"class_wnids has {0 if wnids is None else len(wnids)} entries for {logits.shape[1]} logits",
    )


def head_gives_logits(subject: BackboneSubject) -> None:
    """``head(features)`` equals the logits."""
    features, logits = subject.outputs
    worst = _difference(subject.loaded.head(features), logits)
    require(
        worst <= CLOSE,
        f"head(features) differs from the logits by {worst:.2g} of the largest; features must be exactly what enters "
        "the final layer (after its norm and pooling), and the head must have its bias and temperature",
    )


def eval_mode(subject: BackboneSubject) -> None:
    """The model is in eval mode after loading and stays in it."""
    _ = subject.outputs
    try:
        module = subject.loaded.module
    except InputError:
        raise Skipped("the backbone does not offer its module") from None
    training = [name or type(module).__name__ for name, m in module.named_modules() if m.training]
    require(not training, f"{', '.join(training[:3])} is in training mode; call eval() at the end of load")


def repeatable(subject: BackboneSubject) -> None:
    """The same pictures give the same numbers."""
    again = subject.forward(subject.batch)
    require(
        torch.equal(again.features, subject.outputs.features),
        "two passes over the same pictures differ; switch off dropout and everything else that is random",
    )


def batch_size(subject: BackboneSubject) -> None:
    """A picture's features do not depend on the others in its batch."""
    alone = torch.cat([subject.forward(subject.batch[i : i + 1]).features for i in range(len(subject.batch))])
    worst = _difference(alone, subject.outputs.features)
    require(
        worst <= CLOSE,
        f"features of pictures alone differ from those in a batch by {worst:.2g} of the largest; "
        "batch statistics are in use: put normalisation layers in eval mode",
    )


def load_twice(subject: BackboneSubject) -> None:
    """A second ``load`` changes nothing."""
    digest, before = subject.loaded.weights_digest, subject.outputs.features
    subject.loaded.load("cpu")
    after = subject.forward(subject.batch).features
    require(
        torch.equal(after, before) and subject.loaded.weights_digest == digest,
        "features or weights_digest change when load is called again; a second call may only move the model",
    )


def keys(subject: BackboneSubject) -> None:
    """Digests tell models apart and nothing else: two instances agree, loaded or not."""
    fresh, loaded = subject.make(), subject.loaded
    for what in ("weights_digest", "transform_digest"):
        first, second = getattr(loaded, what), getattr(fresh, what)
        require(isinstance(first, str) and len(first) >= 32, f"{what} is {first!r}; it must be a SHA-256 in hex")
        require(
            first == second,
            f"{what} differs between two instances, so nothing would ever be found in the store; digest the content "
            "(weights, or the repr of a transform without addresses), not the object",
        )
    require(loaded.key(dtype="float32") != loaded.key(dtype="float16"), "key() does not depend on the dtype")


def card(subject: BackboneSubject) -> None:
    """The card says what is known of the model."""
    found = getattr(subject.make(), "card", None)
    require(isinstance(found, Card), "card must be a fiood_core.Card(title=...), set before load")
    assert isinstance(found, Card)
    require(bool(found.title.strip()), "card.title is empty; give the name that a paper gives the model")
    wrong = {name: value for name, value in found.expected_top1.items() if not 0 < value <= 1}
    require(not wrong, f"card.expected_top1 has {wrong}; accuracies are fractions in (0, 1]")
    low, high = API_WINDOW
    version = subject.loaded.api_version
    require(low <= version <= high, f"api_version {version} is outside {low} to {high}")


def text(subject: BackboneSubject) -> None:
    """A vision-language model gives unit embeddings that depend on the text alone."""
    backbone = subject.loaded
    if not isinstance(backbone, VisionLanguageBackbone):
        raise Skipped("the backbone has no text tower")
    together = backbone.encode_text(LABELS)
    require(
        together.shape == (len(LABELS), backbone.head.dim) and together.dtype == torch.float32,
        f"encode_text gave {tuple(together.shape)} {together.dtype}; it must be float32 (n, {backbone.head.dim})",
    )
    norms = torch.linalg.vector_norm(torch.cat([together, subject.outputs.features]), dim=1)
    require(bool((norms - 1).abs().max() < CLOSE), "text embeddings and features must be unit vectors")
    alone = torch.cat([backbone.encode_text([label]) for label in LABELS])
    require(
        _difference(alone, together) <= CLOSE,
        "a text's embedding depends on the others in its batch; mask the padding, or pad to a fixed length",
    )
    require(bool(backbone.text_digest), "text_digest is empty; digest text tower and tokenizer")
    backbone.set_classes(Head(together[:3], temperature=backbone.temperature))
    outputs = subject.forward(subject.batch)
    backbone.set_classes(Head(together, temperature=backbone.temperature))
    require(outputs.logits.shape[1] == 3, f"after set_classes with 3 rows there are {outputs.logits.shape[1]} logits")
    require(torch.equal(outputs.features, subject.outputs.features), "features change with the classes; they must not")


CHECKS = {
    "loads and runs": loads,
    "transform": transform,
    "shapes": shapes,
    "head gives logits": head_gives_logits,
    "eval mode": eval_mode,
    "repeatable": repeatable,
    "batch size": batch_size,
    "load twice": load_twice,
    "keys": keys,
    "card": card,
    "text": text,
}
"""Every check of a backbone, in order, by the name that reports show."""


def _difference(found: Tensor, expected: Tensor) -> float:
    """Largest absolute difference over the largest absolute value."""
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
