"""One decode policy: how a picture file becomes an 8-bit RGB picture, and when it is refused.

The colours are those of torchvision's default loader, ``Image.open(path).convert("RGB")``: alpha is dropped, not
composited; a palette's transparency is ignored; the first frame of an animation is taken; EXIF orientation and colour
profiles are ignored; an Adobe JPEG's inverted CMYK is inverted as Pillow does.  Where that loader would clip or wrap,
this one scales: grey pictures of 16 bits are divided by 257 and rounded.  Pillow itself keeps the high byte of 16-bit
*colour*.
"""

from __future__ import annotations

import hashlib
import stat
import threading
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from fiood_core.errors import DataError, ImageError, ParameterError

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are opened.  Pillow knows more, some of which run other programs (EPS)."""

DEFAULT_MAX_PIXELS = 178_956_970
"""Pixels (width × height) of the largest picture decoded by default: where Pillow too speaks of a bomb."""

_RULES = "RGB 8-bit; alpha dropped; first frame; EXIF orientation ignored; colour profile ignored; 16-bit grey / 257"

_pillow_limit = threading.Lock()


@dataclass(frozen=True)
class ImagePolicy:
    """What is done with odd and broken pictures.

    Parameters
    ----------
    on_error : {"fail", "skip-and-count"}
        Whether a picture that cannot be decoded stops the run, or is left out, counted and named in the result, which
        then cannot be published.
    max_pixels : int
        Pictures of more pixels are refused before they are decoded.

    Raises
    ------
    ParameterError
    """

    on_error: Literal["fail", "skip-and-count"] = "fail"
    max_pixels: int = DEFAULT_MAX_PIXELS

    def __post_init__(self) -> None:
        if self.on_error not in ("fail", "skip-and-count"):
            raise ParameterError(f"image policy must be 'fail' or 'skip-and-count', got {self.on_error!r}")
        if isinstance(self.max_pixels, bool) or not isinstance(self.max_pixels, int) or self.max_pixels < 1:
            raise ParameterError(f"the pixel limit must be a positive whole number, got {self.max_pixels!r}")

    @property
    def record(self) -> Mapping[str, object]:
        """What a result says of the policy."""
        return {"on_error": self.on_error, "max_pixels": self.max_pixels, "rules": _RULES}

    @property
    def digest(self) -> str:
        """SHA-256 of what decides which pictures are read, and to which pixels; not of what happens to the others."""
        return hashlib.sha256(f"fiood images 1\n{_RULES}\n{self.max_pixels}\n".encode()).hexdigest()


def decode(source: Path | Image.Image, policy: ImagePolicy, *, name: str) -> Image.Image:
    """An 8-bit RGB picture.

    Parameters
    ----------
    source : Path or PIL image
    policy : ImagePolicy
    name : str
        The picture's id, for errors.

    Raises
    ------
    ImageError
        The file is missing, a directory, empty, truncated, no picture, too large, or of a kind whose range of values is
        not known; the message names it and the next step.
    DataError
        The system could not read it, which says nothing about the picture: no policy leaves it out.
    """
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ImageError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so broken pictures would pass as grey ones; "
            "find the library or plugin that sets it, and set it back to False"
        )
    what = _shown(source, name)
    try:
        with warnings.catch_warnings(), _opened(source) as file:
            warnings.simplefilter("ignore")  # of palettes, odd metadata, and sizes that the limit below decides
            image = source if isinstance(source, Image.Image) else _identified(file)
            _check_size(image, policy)
            return _to_rgb(image)
    except _Refusal as error:
        reason = str(error)
    except UnidentifiedImageError:
        reason = f"is not a picture, or of another format than {', '.join(FORMATS)}"
    except (FileNotFoundError, NotADirectoryError):
        reason = "does not exist"
    except PermissionError:
        reason = "may not be read"
    except MemoryError as error:
        raise DataError(f"{what} does not fit into memory; use fewer workers, or lower max_pixels") from error
    except Exception as error:  # Pillow's decoders raise anything on malformed input
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{what} could not be read: {error.strerror}; see to the disk or system") from error
        reason = f"is truncated or damaged: {error or type(error).__name__}"
    raise ImageError(
        f"{what} {reason}; mend or replace it, take it out of the dataset, "
        "or leave such pictures out with the image policy skip-and-count"
    )


class _Refusal(Exception):
    """Why a picture that Pillow can open is not taken."""


def _shown(source: Path | Image.Image, name: str) -> str:
    if isinstance(source, Image.Image) or str(source) == name:
        return f"picture {name!r}"
    return f"picture {name!r} at {source}"


def _opened(source: Path | Image.Image) -> AbstractContextManager[BinaryIO | None]:
    if isinstance(source, Image.Image):
        return nullcontext()
    status = source.stat()
    if stat.S_ISDIR(status.st_mode):
        raise _Refusal("is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise _Refusal("is no regular file")
    if status.st_size == 0:
        raise _Refusal("is an empty file")
    return source.open("rb")


def _identified(file: BinaryIO | None) -> Image.Image:
    """The picture of an open file, its header read, whatever its size: the policy's limit decides, not Pillow's."""
    assert file is not None
    Image.init()
    with _pillow_limit:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(file, formats=[f for f in FORMATS if f in Image.OPEN])
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _check_size(image: Image.Image, policy: ImagePolicy) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise _Refusal(f"has no pixels ({width} × {height})")
    if width * height > policy.max_pixels:
        raise _Refusal(
            f"has {width} × {height} = {width * height:,} pixels, over the limit of {policy.max_pixels:,} "
            "(raise max_pixels if it is no decompression bomb)"
        )


def _to_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if image.mode.startswith("I"):
        return _grey(_from_16_bit(np.asarray(image)))
    if image.mode == "F":
        return _grey(_from_unit_interval(np.asarray(image)))
    return image.convert("RGB")


def _from_16_bit(values: np.ndarray) -> np.ndarray:
    """Grey values 0 to 65535 over 257, rounded; Pillow opens some 16-bit files as 32-bit integers."""
    low, high = int(values.min()), int(values.max())
    if low < 0 or high > 65535:
        raise _Refusal(
            f"holds 32-bit integers from {low} to {high}, whose scale is not known; save it with 8 or 16 bits"
        )
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _from_unit_interval(values: np.ndarray) -> np.ndarray:
    """Grey values 0 to 1 times 255, rounded."""
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        raise _Refusal(f"holds floating-point values from {low:g} to {high:g}, and only 0 to 1 has a known scale")
    return (values * 255 + 0.5).astype(np.uint8)


def _grey(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values).convert("RGB")
