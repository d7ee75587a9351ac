"""Components small enough that a whole run takes a fraction of a second, and some that misbehave.

Tests name them by path, ``…/tests/tiny.py:TinyNet``.  Every batch, block of a statistic and block of scores is counted;
the process is killed at the one that ``FIOOD_TEST_KILL`` names (``extract:3``).
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fiood_core import Backbone, Benchmark, Block, Card, Column, Dataset, Detector, Info, OODSet, Paper, Statistic, View
from fiood_core.backbone import Outputs
from fiood_core.errors import DataError
from fiood_core.head import Head

HERE = str(Path(__file__))
CLASSES = 3
counts: Counter[str] = Counter()


def tick(stage: str) -> None:
    """Count a step of a stage, and die there if the environment says so."""
    counts[stage] += 1
    if os.environ.get("FIOOD_TEST_KILL") == f"{stage}:{counts[stage]}":
        os.kill(os.getpid(), signal.SIGKILL)


class Pictures(Dataset):
    """Pictures of 8 × 8 pixels made from their ids: class ``c`` is bright in column ``c``, class -1 nowhere special."""

    info = Info(title="tiny pictures")

    def __init__(self, name: str = "id", count: int = 30, labelled: bool = True, gone: bool = False) -> None:
        self.name, self.count, self.labelled, self.gone = name, count, labelled, gone

    def missing(self) -> Sequence[str]:
        return [f"the pictures of {self.name!r} are missing; draw them"] if self.gone else []

    def view(self) -> View:
        if self.gone:
            raise DataError(self.missing()[0])
        ids = [f"{self.name}/{number:03d}" for number in range(self.count)]
        targets = [(number % CLASSES,) for number in range(self.count)] if self.labelled else None
        half = {"first half": range(self.count // 2)} if self.name == "halved" else {}
        return View("tiny", ids, targets=targets, subsets=half)

    def open(self, image_id: str) -> Image.Image:
        random = np.random.default_rng(int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big"))
        pixels = random.integers(0, 120, (8, 8))
        if self.labelled:
            pixels[:, int(image_id.rpartition("/")[2]) % CLASSES] += 130
        return Image.fromarray(pixels.astype(np.uint8))

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        return ["1"] * len(ids)


class TinyBenchmark(Benchmark):
    """Two OOD sets, and as much training data as is asked for."""

    def __init__(self, train: int = 60, far: str = "there") -> None:
        self.train, self.far = train, far

    @property
    def id_test(self) -> Dataset:
        return Pictures("id")

    @property
    def id_train(self) -> Dataset | None:
        return Pictures("train", self.train) if self.train else None

    @property
    def ood(self) -> Mapping[str, OODSet]:
        return {
            "near": OODSet(Pictures("halved", 24, labelled=False), "near"),
            "far": OODSet(Pictures("far", 20, labelled=False, gone=self.far == "gone"), "far"),
        }


class TinyTransform:
    """Grey, from 0 to 1, three equal channels."""

    def __call__(self, picture: Image.Image) -> Tensor:
        pixels = torch.from_numpy(np.array(picture.convert("L"), dtype=np.float32))
        return (pixels / 255).expand(3, 8, 8).contiguous()

    def __repr__(self) -> str:
        return "TinyTransform()"


class TinyNet(Backbone):
    """Mean brightness of each column of pixels; class ``c`` is the brightness of column ``c``."""

    num_classes = CLASSES

    def __init__(self, shift: int = 0, broken: bool = False) -> None:
        self.card = Card(title="tiny net", parameters=24, resolution=8, expected_top1={"id": 1.0})
        self.shift, self.broken = shift, broken

    def load(self, device: torch.device | str = "cpu") -> None:
        if self.broken:
            raise RuntimeError("the weights are gone")

    @property
    def transform(self) -> TinyTransform:
        return TinyTransform()

    @property
    def head(self) -> Head:
        return Head(20 * torch.roll(torch.eye(CLASSES, 8), self.shift, 0))

    @property
    def module(self) -> nn.Module:
        return nn.Identity().eval()

    @property
    def weights_digest(self) -> str:
        return f"tiny {self.shift}"

    def forward(self, images: Tensor) -> Outputs:
        tick("extract")
        features = images.mean(dim=(1, 2))
        return Outputs(features, self.head(features))


class Mean(Statistic):
    """Mean of the features."""

    key = "tiny-mean"

    def begin(self, context: object) -> None:
        self.total, self.count = torch.zeros(8, dtype=torch.float64), 0

    def update(self, block: Block) -> None:
        tick("statistics")
        self.total = self.total + block.features.double().sum(dim=0)
        self.count += len(block)

    def merge(self, other: Mean) -> None:
        self.total, self.count = self.total + other.total, self.count + other.count

    def result(self) -> Mapping[str, Tensor]:
        return {"mean": self.total / self.count}


class Spread(Mean):
    """The same under another key, so that two statistics are gathered."""

    key = "tiny-spread"


class Centre(Detector):
    """Negative distance to the training mean."""

    reference = Paper("Distance to the mean", 2026)
    needs = ("features",)
    mean = Mean()
    other = Spread()
    power: float = 1.0

    def learn(self, stats: Mapping[Statistic, Mapping[str, Tensor]], head: Head | None) -> None:
        self.centre = (stats[self.mean]["mean"] + stats[self.other]["mean"]) / 2

    def score_block(self, block: Block) -> Tensor:
        tick("score")
        return -((block.features - self.centre.to(block.dtype)).norm(dim=1) ** self.power)


class Largest(Detector):
    """The largest logit."""

    reference = Paper("The largest logit", 2022)

    def score_block(self, block: Block) -> Tensor:
        tick("score")
        return block.max_logit


class Brightness(Column):
    """Mean of the pixels."""

    key = "tiny-brightness"

    def compute(self, batch: object, backbone: Backbone, head: Head) -> Tensor:
        return batch.images.mean(dim=(1, 2, 3))  # type: ignore[attr-defined]


class Dark(Detector):
    """The darker, the more in-distribution; reads a column."""

    reference = Paper("Darkness", 2026)
    needs = ()

    @property
    def columns(self) -> Sequence[Column]:
        return (Brightness(),)

    def score_block(self, block: Block) -> Tensor:
        return -block.column(Brightness.key)


class BrokenColumn(Brightness):
    key = "tiny-broken"

    def compute(self, batch: object, backbone: Backbone, head: Head) -> Tensor:
        raise RuntimeError("no gradient here")


class NeedsBrokenColumn(Dark):
    @property
    def columns(self) -> Sequence[Column]:
        return (BrokenColumn(),)


class Raises(Largest):
    """Fails on every set, or on one: the one with ``rows`` rows."""

    rows: int = 0

    def score_block(self, block: Block) -> Tensor:
        if self.rows in (0, len(block)):
            raise RuntimeError("the plugin broke")
        return block.max_logit


class Short(Largest):
    def score_block(self, block: Block) -> Tensor:
        return block.max_logit[1:]


class NotANumber(Largest):
    def score_block(self, block: Block) -> Tensor:
        return block.max_logit * float("nan")


class Exits(Largest):
    def score_block(self, block: Block) -> Tensor:
        raise SystemExit(3)


class NeedsMany(Centre):
    """Refuses small training sets."""

    def check(self, context: object) -> None:
        from fiood_core.errors import StatisticError

        if context.n < 1000:  # type: ignore[attr-defined]
            raise StatisticError(f"power needs 1000 training rows, there are {context.n}")  # type: ignore[attr-defined]
