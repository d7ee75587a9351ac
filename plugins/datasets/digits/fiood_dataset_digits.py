"""Small real pictures that come with Python packages: handwritten digits, patches of photos, and noise.

The pictures are read from the files inside the scikit-learn and scikit-image wheels, each checked against its SHA-256;
neither library is imported and nothing is downloaded.  Everything drawn at random is seeded by the picture's own id.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from PIL import Image

from fiood_core import Concept, Dataset, Info, View
from fiood_core.errors import DataError, ParameterError

Split = Literal["train", "test"]

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
"""Name of each digit; the first six are the in-distribution classes."""

SIDE = 8
"""Side of a digit and of a noise picture, in pixels."""

PATCH_SIDE = 32
"""Side of a patch of a photo, in pixels."""

DIGITS = ("sklearn/datasets/data/digits.csv.gz", "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22")

PHOTOS = {
    "astronaut": ("skimage/data/astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    "brick": ("skimage/data/brick.png", "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf"),
    "camera": ("skimage/data/camera.png", "b0793d2adda0fa6ae899c03989482bff9a42d3d5690fc7e3648f2795d730c23a"),
    "chelsea": ("skimage/data/chelsea.png", "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
    "china": ("sklearn/datasets/images/china.jpg", "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"),
    "coffee": ("skimage/data/coffee.png", "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
    "coins": ("skimage/data/coins.png", "f8d773fc9cfa6f4d8e5942dc34d0a0788fcaed2a4fefbbed0aef5398d7ef4cba"),
    "flower": (
        "sklearn/datasets/images/flower.jpg",
        "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638",
    ),
    "grass": ("skimage/data/grass.png", "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89"),
    "gravel": ("skimage/data/gravel.png", "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12"),
    "hubble": (
        "skimage/data/hubble_deep_field.jpg",
        "3a19c5dd8a927a9334bb1229a6d63711b1c0c767fb27e2286e7c84a3e2c2f5f4",
    ),
    "motorcycle": (
        "skimage/data/motorcycle_left.png",
        "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
    ),
    "rocket": ("skimage/data/rocket.jpg", "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c"),
}
"""Photos: file within its package, and SHA-256."""

NOISES = ("blobs", "gaussian", "rademacher", "shuffled", "speckle", "stripes", "uniform")
"""Kinds of noise; ``shuffled`` are digits whose pixels are permuted."""


class _Bundled(Dataset):
    """Pictures made from files inside installed packages."""

    files: ClassVar[Sequence[tuple[str, str]]]
    revision: ClassVar[str] = "1"

    def missing(self) -> Sequence[str]:
        return [
            f"{name} is missing; install its package: pip install {_package(name)}"
            for name, _ in self.files
            if (place := _locate(name)) is None or not place.is_file()
        ]

    def verify(self) -> Sequence[str]:
        problems = list(self.missing())
        for name, digest in self.files:
            try:
                _read(name, digest)
            except DataError as error:
                problems += [] if any(name in problem for problem in problems) else [str(error)]
        return problems

    def stamps(self, ids: Sequence[str]) -> Sequence[str]:
        return [self.revision] * len(ids)


class Digits(_Bundled):
    """scikit-learn's handwritten digits 0 to 5, 8×8 grey: the in-distribution set.

    Parameters
    ----------
    split : {"test", "train"}
        Half of each digit's pictures is for training.  The halves are drawn by the SHA-256 of the row number, over all
        ten digits, so that a model trained on the training half of every digit has seen no test picture.
    """

    info = Info(
        title="Handwritten digits 0 to 5",
        summary="1,083 grey pictures of 8×8 pixels, half for training and half for testing",
        citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998",
        licence="CC BY 4.0",
        home="https://archive.ics.uci.edu/dataset/80",
        digests=dict([DIGITS]),
        notes="scikit-learn ships the 1,797 pictures of the original test part",
    )
    files = (DIGITS,)
    digits: ClassVar[range] = range(6)
    class_names: Sequence[str] | None = NAMES[:6]

    def __init__(self, split: Split = "test") -> None:
        if split not in ("test", "train"):
            raise ParameterError(f"split must be 'test' or 'train', got {split!r}")
        self.split = split

    def view(self) -> View:
        rows = self._rows()
        labels = [int(label) for label in digit_pictures()[1][rows]]
        ids = [f"{label}/{row:04d}" for label, row in zip(labels, rows, strict=True)]
        return self._view(ids, labels)

    def _view(self, ids: Sequence[str], labels: Sequence[int]) -> View:
        return View("scikit-learn/digits", ids, targets=[(label,) for label in labels])

    def _rows(self) -> list[int]:
        labels = digit_pictures()[1]
        train = training_rows()
        return [
            row
            for digit in self.digits
            for row in np.flatnonzero(labels == digit).tolist()
            if (row in train) == (self.split == "train")
        ]

    def open(self, image_id: str) -> Image.Image:
        pictures = digit_pictures()[0]
        return Image.fromarray(pictures[int(image_id.rpartition("/")[2])])


class UnseenDigits(Digits):
    """scikit-learn's handwritten digits 6 to 9: near the distribution of :class:`Digits`, but outside its classes."""

    info = Info(
        title="Handwritten digits 6 to 9",
        summary="714 grey pictures of 8×8 pixels, half for training (of models that know ten digits), half for testing",
        citation=Digits.info.citation,
        licence=Digits.info.licence,
        home=Digits.info.home,
        digests=Digits.info.digests,
        notes=Digits.info.notes,
    )
    digits = range(6, 10)
    class_names = None

    def _view(self, ids: Sequence[str], labels: Sequence[int]) -> View:
        return View("scikit-learn/digits", ids, concepts=[Concept(NAMES[label]) for label in labels])


class PhotoPatches(_Bundled):
    """Square patches of 32 pixels, forty from each of thirteen photos, at places seeded by the id."""

    info = Info(
        title="Patches of photos",
        summary="520 patches of 32×32 pixels from the photos bundled with scikit-learn and scikit-image",
        licence="per photo, mostly public domain or CC0; china and flower are CC BY 2.0",
        home="https://scikit-image.org/docs/stable/api/skimage.data.html",
        expected_count=40 * len(PHOTOS),
        digests=dict(PHOTOS.values()),
    )
    files = tuple(PHOTOS.values())

    def view(self) -> View:
        ids = [f"{photo}/{number:02d}" for photo in PHOTOS for number in range(40)]
        return View("photo-patches", ids, concepts=[Concept(image_id.partition("/")[0]) for image_id in ids])

    def open(self, image_id: str) -> Image.Image:
        pixels = photo(image_id.partition("/")[0])
        random = _random(f"photo-patches/{image_id}")
        top, left = (int(random.integers(side - PATCH_SIDE + 1)) for side in pixels.shape[:2])
        return Image.fromarray(pixels[top : top + PATCH_SIDE, left : left + PATCH_SIDE])


class Noise(_Bundled):
    """Grey noise pictures of 8×8 pixels, seventy of each of seven kinds, seeded by the id."""

    info = Info(
        title="Synthetic noise",
        summary="490 pictures of 8×8 pixels: low-frequency blobs, Gaussian, black-and-white (Rademacher), "
        "digits with permuted pixels, sparse speckle, stripes, and uniform",
        licence="Apache-2.0",
        expected_count=70 * len(NOISES),
        digests=dict([DIGITS]),
        notes="kinds after the OOD unit tests of NINCO (Bitterwolf et al., arXiv 2306.00826), written anew",
    )
    files = (DIGITS,)

    def view(self) -> View:
        ids = [f"{kind}/{number:02d}" for kind in NOISES for number in range(70)]
        return View("digits-noise", ids, concepts=[Concept(image_id.partition("/")[0]) for image_id in ids])

    def open(self, image_id: str) -> Image.Image:
        pixels = _noise(image_id.partition("/")[0], _random(f"digits-noise/{image_id}"))
        return Image.fromarray(np.clip(np.rint(pixels * 255), 0, 255).astype(np.uint8))


class GradedPool(_Bundled):
    """Unseen digits, patches of photos and noise in one pool of 24 classes, from hard to easy."""

    info = Info(
        title="Graded pool for digits",
        summary="1,368 pictures of 24 classes: digits 6 to 9, thirteen photos and seven kinds of noise",
        licence="that of each part",
        digests={**Digits.info.digests, **PhotoPatches.info.digests},
    )
    files = (DIGITS, *PHOTOS.values())

    def __init__(self) -> None:
        self._parts: dict[str, Dataset] = {"digits": UnseenDigits(), "photos": PhotoPatches(), "noise": Noise()}

    def view(self) -> View:
        views = {name: part.view() for name, part in self._parts.items()}
        ids = [f"{name}/{image_id}" for name, view in views.items() for image_id in view.ids]
        concepts = [concept for view in views.values() for concept in view.concepts or ()]
        return View("digits-pool", ids, concepts=concepts)

    def open(self, image_id: str) -> Image.Image | Path:
        part, _, inner = image_id.partition("/")
        return self._parts[part].open(inner)


@cache
def digit_pictures() -> tuple[np.ndarray, np.ndarray]:
    """All 1,797 digits: pictures (n, 8, 8) uint8, white on black, and labels (n,) int64.

    Raises
    ------
    DataError
        scikit-learn is not installed, or its file is another one.
    """
    table = np.loadtxt(io.BytesIO(gzip.decompress(_read(*DIGITS))), delimiter=",")
    pictures = np.rint(table[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, SIDE, SIDE)
    return pictures, table[:, -1].astype(np.int64)


@cache
def training_rows() -> frozenset[int]:
    """Rows of :func:`digit_pictures` in the training half: of each digit, the half whose SHA-256 sorts first."""
    labels = digit_pictures()[1]
    drawn: set[int] = set()
    for digit in range(10):
        rows = np.flatnonzero(labels == digit).tolist()
        rows.sort(key=lambda row: hashlib.sha256(f"digits/{row}".encode()).digest())
        drawn.update(rows[: len(rows) // 2])
    return frozenset(drawn)


@cache
def photo(name: str) -> np.ndarray:
    """Pixels (H, W, 3) uint8 of one of :data:`PHOTOS`."""
    with Image.open(io.BytesIO(_read(*PHOTOS[name]))) as picture:
        return np.asarray(picture.convert("RGB"))


def _noise(kind: str, random: np.random.Generator) -> np.ndarray:
    """Grey values (8, 8), black 0 to white 1; values outside are to be clipped."""
    square = (SIDE, SIDE)
    if kind == "uniform":
        return random.random(square)
    if kind == "gaussian":
        return 0.5 + 0.25 * random.standard_normal(square)
    if kind == "rademacher":
        return (random.random(square) < 0.5).astype(float)
    if kind == "speckle":
        return (random.random(square) < 0.1).astype(float)
    if kind == "stripes":
        lines = np.broadcast_to((random.random(SIDE) < 0.5).astype(float), square)
        return lines if random.random() < 0.5 else lines.T
    if kind == "shuffled":
        pixels = digit_pictures()[0][int(random.integers(len(digit_pictures()[0])))]
        return random.permutation(pixels.ravel()).reshape(square) / 255
    coarse = Image.fromarray(random.random((3, 3)).astype(np.float32))
    return np.asarray(coarse.resize(square, Image.Resampling.BICUBIC), dtype=float)


def _random(image_id: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big"))


def _read(name: str, digest: str) -> bytes:
    place = _locate(name)
    if place is None or not place.is_file():
        raise DataError(f"{name} is missing; install its package: pip install {_package(name)}")
    content = place.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise DataError(f"{place} is not the file this set is made from; reinstall {_package(name)}")
    return content


def _locate(name: str) -> Path | None:
    package, _, rest = name.partition("/")
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / rest


def _package(name: str) -> str:
    return "scikit-learn" if name.startswith("sklearn/") else "scikit-image"
