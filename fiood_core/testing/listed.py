"""Small copies of listed datasets: real picture files under a set's own names, odd kinds among them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from fiood_core.shelved import ShelvedDataset

SIDE = 24
AnyShelved = TypeVar("AnyShelved", bound=ShelvedDataset)


def picture_file(name: str) -> bytes:
    """A picture file made up from its name: JPEG in colour or CMYK, PNG with 16 bits or alpha, or GIF.

    Every extension that the sets have gets pictures of each of its kinds, depending on a digest of the name.
    """
    digest = hashlib.sha256(name.encode()).digest()
    random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    colour = Image.fromarray(random.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
    odd = digest[8] % 2 == 0
    suffix = PurePosixPath(name).suffix.lower()
    file = io.BytesIO()
    if suffix == ".gif":
        colour.quantize(64).save(file, "GIF")
    elif suffix == ".png":
        deep = Image.fromarray(random.integers(0, 65536, (SIDE, SIDE), dtype=np.uint16))
        (deep if odd else colour.convert("RGBA")).save(file, "PNG")
    else:
        (colour.convert("CMYK") if odd else colour).save(file, "JPEG")
    return file.getvalue()


def manifest(entries: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    """A manifest whose pictures are those of :func:`picture_file`, with their digests."""
    digests = [hashlib.sha256(picture_file(entry["id"])).hexdigest() for entry in entries]
    return {"entries": [{**e, "sha256": digest} for e, digest in zip(entries, digests, strict=True)], **more}


def stand_in(dataset: AnyShelved, entries: Sequence[Mapping[str, Any]]) -> AnyShelved:
    """A dataset's stand-in with the pictures of some entries, written under its root.

    Parameters
    ----------
    dataset : ShelvedDataset
        Made with a ``root`` that may be written to.
    entries : sequence of mappings
        As :meth:`~fiood_core.listed.ListedDataset.with_manifest` takes them.
    """
    for entry in entries:
        path = dataset.root / entry["id"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture_file(entry["id"]))
    return dataset.with_manifest(manifest(entries))
