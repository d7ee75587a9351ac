"""A vision-language model, pictures and vocabularies small enough that a whole run takes a fraction of a second.

A picture shows a word: its grey value is the word's number.  Word and picture have nearly the same embedding.  Tests
name them by path, ``…/tests/tiny_text.py:TinyText``.  Every embedded text and every list of labels is counted.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence

import torch
from PIL import Image
from torch import Tensor, nn

from fiood_core import Benchmark, Card, Concept, Dataset, Info, OODSet, View, VisionLanguageBackbone
from fiood_core.backbone import Outputs
from fiood_core.errors import DataError
from fiood_core.vocabulary import Labels, Vocabulary, VocabularyContext, recorded

WORDS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx")
WIDTH = 16
counts: Counter[str] = Counter()


class Shown(Dataset):
    """Pictures of words; the ID words are the first four."""

    info = Info(title="pictures of words")

    def __init__(self, words: Sequence[str], *, inside: bool = False, named: bool = True, each: int = 12) -> None:
        self.words, self.inside, self.named, self.each = words, inside, named, each
        self.class_names = tuple(words) if inside and named else None

    def view(self) -> View:
        ids = [f"{word}/{number:02d}" for word in self.words for number in range(self.each)]
        targets = [(self.words.index(name.partition("/")[0]),) for name in ids] if self.inside else None
        concepts = None if self.inside or not self.named else [Concept(name.partition("/")[0]) for name in ids]
        return View("words", ids, targets=targets, concepts=concepts)

    def open(self, image_id: str) -> Image.Image:
        word, _, number = image_id.partition("/")
        return Image.new("RGB", (4, 4), (WORDS.index(word) * 20, int(number), 0))

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        return ["drawn"] * len(ids)


class WordsBenchmark(Benchmark):
    """ID: ant to dog.  OOD: two sets of named words, and one whose pictures have no label."""

    def __init__(self, named: bool = True) -> None:
        self.named = named

    @property
    def id_test(self) -> Dataset:
        return Shown(WORDS[:4], inside=True, named=self.named)

    @property
    def id_train(self) -> Dataset | None:
        return None

    @property
    def ood(self) -> Mapping[str, OODSet]:
        return {
            "mammals": OODSet(Shown(("elk", "fox", "gnu", "lynx")), "near"),
            "birds": OODSet(Shown(("hen", "ibis", "jay", "kite")), "far"),
            "unnamed": OODSet(Shown(("hen",), named=False), "far"),
        }


def _grey(picture: Image.Image) -> Tensor:
    red, green, _ = picture.getpixel((0, 0))
    return torch.tensor([red / 20, green / 20, 0.0])[:, None, None].expand(3, 4, 4).contiguous()


class TinyText(VisionLanguageBackbone):
    """Embeds a word, in whatever template, as a fixed random direction, and its picture nearby."""

    card = Card("Tiny text")
    weights_digest = text_digest = "tiny-text"
    temperature = 0.1

    def load(self, device: torch.device | str = "cpu") -> None:
        counts["load"] += 1

    @property
    def transform(self):
        return _grey

    @property
    def module(self) -> nn.Module:
        return nn.Identity().eval()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        counts["texts"] += len(texts)
        return torch.stack([_direction(next((word for word in WORDS if word in text), text)) for text in texts])

    def forward(self, images: Tensor) -> Outputs:
        rows = [
            _direction(WORDS[round(float(image[0, 0, 0]))]) + 0.15 * _direction(f"noise {float(image[1, 0, 0]):.2f}")
            for image in images
        ]
        features = nn.functional.normalize(torch.stack(rows), dim=1)
        return Outputs(features, self.head(features))


def _direction(text: str) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    return nn.functional.normalize(torch.randn(WIDTH, generator=torch.Generator().manual_seed(seed)), dim=0)


class ThreeLists(Vocabulary):
    """Another list for each of three replicates; ``TINY_WORD`` in the environment changes all of them."""

    replicates = 3

    @property
    def content(self) -> str:  # type: ignore[override]
        return os.environ.get("TINY_WORD", "")

    def labels(self, context: VocabularyContext) -> Labels:
        counts["lists"] += 1
        return recorded([*WORDS[4 + context.replicate : 8 + context.replicate], self.content or "worm"], context)


class Mined(Vocabulary):
    """The words, least like the ID names first."""

    needs_embeddings = True

    def labels(self, context: VocabularyContext) -> Labels:
        assert context.embed is not None
        nearness = (context.embed(WORDS[4:]) @ context.id_embeddings.T).amax(dim=1)
        return recorded([WORDS[4 + i] for i in nearness.argsort().tolist()], context)


class Gone(Vocabulary):
    """A list whose file is missing."""

    def labels(self, context: VocabularyContext) -> Labels:
        raise DataError("the list is gone; write it again")
