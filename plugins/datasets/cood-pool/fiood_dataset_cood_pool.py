"""COOD's pool: ImageNet-21k classes that are unrelated to ImageNet-1k's, up to 200 pictures each."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fiood_core import Concept, Dataset, Info, View, settings, wordnet
from fiood_core.errors import DataError, ParameterError
from fiood_core.imagenet import WNID, wnids
from fiood_core.overlap import class_overlap

PICKLE = "IMAGENET_20k_METADATA.pkl"
CUT = "fall11_whole/"
"""The metadata's paths are those of its authors' machine; what comes after this folder is relative."""

ESTIMATION, TEST = "estimation", "test"
MAX_BYTES = 1 << 30
HARMLESS = {
    *(
        ("builtins", name)
        for name in ("dict", "list", "tuple", "set", "frozenset", "str", "bytes", "int", "float", "bool")
    ),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}
"""All that the metadata's pickle may name: containers, numbers, text and NumPy arrays."""


class CoodPool(Dataset):
    """The pool from the paper's metadata, or from a list of classes.

    With ``metadata`` the pictures, their classes and their division into estimation (150 a class) and test (50) are
    the paper's.  With ``classes`` they are the first ``per_class`` pictures, by name, of each listed class that WordNet
    does not relate to an ImageNet-1k class; :attr:`left_out` says why the others are not in the pool.

    Parameters
    ----------
    root : path, optional
        ImageNet-21k, one folder a wnid; by default ``datasets/imagenet-21k/pictures`` in the data home.
    metadata : path, optional
        ``datasets_metadata_v4.zip`` of the official repository, or the pickle inside.
    classes : path, optional
        A text file of wnids, one a line.
    per_class : int
    """

    info = Info(
        title="COOD's pool",
        summary="about 11,800 ImageNet-21k classes unrelated to ImageNet-1k's, 200 pictures each",
        citation="Galil, Dabbah, El-Yaniv: A framework for benchmarking Class-out-of-distribution detection, 2023, "
        "arXiv 2302.11893",
        licence="pictures: image-net.org terms of access; metadata: MIT",
        home="https://github.com/mdabbah/COOD_benchmarking",
        notes="The 25 % share that the paper names is the test share. The metadata is a pickle, which is read through "
        "a restricted unpickler; how many classes and pictures it has is not stated.",
    )

    def __init__(
        self,
        root: str | Path | None = None,
        metadata: str | Path | None = None,
        classes: str | Path | None = None,
        per_class: int = 200,
    ) -> None:
        if (metadata is None) == (classes is None):
            raise ParameterError("cood-pool takes either metadata= (the paper's) or classes= (a list of wnids)")
        default = settings.home() / "datasets" / "imagenet-21k" / "pictures"
        self.root = default if root is None else Path(root).expanduser()
        self.metadata = None if metadata is None else Path(metadata).expanduser()
        self.classes = None if classes is None else Path(classes).expanduser()
        self.per_class = per_class
        self.left_out: dict[str, str] = {}

    def view(self) -> View:
        return self._view

    def open(self, image_id: str) -> Path:
        return self.root / image_id

    def missing(self) -> Sequence[str]:
        if not self.root.is_dir():
            return [
                f"cood-pool: no pictures at {self.root}; get ImageNet-21k from https://image-net.org (an account is "
                "needed), one folder a wnid, and give root="
            ]
        try:
            ids = self.view().ids
        except DataError as error:
            return [str(error)]
        gone = [image_id for image_id in ids if not (self.root / image_id).is_file()]
        return (
            [f"cood-pool: {len(gone)} of {len(ids)} pictures are not under {self.root}, {gone[0]} for one"]
            if gone
            else []
        )

    @cached_property
    def _view(self) -> View:
        return self._from_metadata(self.metadata) if self.metadata is not None else self._from_classes()

    def _from_metadata(self, path: Path) -> View:
        data = read_metadata(path)
        ids = [_relative(file) for file in data["image_files"]]
        names = data.get("class_names", data.get("wordnet_ids"))
        concepts = [Concept("", str(names[int(label)])) for label in data["labels"]]
        odd = next((c.wnid for c in concepts if not WNID.fullmatch(c.wnid or "")), None)
        if odd is not None:
            raise DataError(f"{path} names the class {odd!r}, which is no wnid")
        subsets = {ESTIMATION: list(map(int, data["train_idx"])), TEST: list(map(int, data["val_idx"]))}
        return View("imagenet-21k", ids, concepts=concepts, subsets=subsets)

    def _from_classes(self) -> View:
        assert self.classes is not None
        listed = [line.split()[0] for line in self.classes.read_text("utf-8").splitlines() if line.strip()]
        odd = next((wnid for wnid in listed if not WNID.fullmatch(wnid)), None)
        if odd is not None:
            raise DataError(f"{self.classes} lists {odd!r}, which is no wnid")
        kept, self.left_out = unrelated(listed)
        ids: list[str] = []
        concepts: list[Concept] = []
        for wnid in kept:
            files = sorted(p.name for p in (self.root / wnid).glob("*.JPEG"))[: self.per_class]
            if not files:
                raise DataError(f"cood-pool: class {wnid} of {self.classes} has no picture under {self.root}")
            ids += [f"{wnid}/{file}" for file in files]
            concepts += [Concept("", wnid)] * len(files)
        return View("imagenet-21k", ids, concepts=concepts)


def unrelated(listed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The wnids that WordNet does not relate to ImageNet-1k's classes, and for each other one the reason.

    Left out are the classes themselves, their hypernyms and hyponyms, and synsets that share a word with one.
    """
    overlap = class_overlap({Concept("", wnid): 1 for wnid in listed}, wnids(), wordnet.load())
    reasons = {found.concept.wnid or "": f"{found.relation} of {', '.join(found.id_wnids)}" for found in overlap.found}
    return [wnid for wnid in listed if wnid not in reasons], reasons


def read_metadata(path: Path) -> Mapping[str, Any]:
    """The paper's metadata from its zip archive or pickle, of which nothing is executed.

    Raises
    ------
    DataError
        It is not there, names anything but data, or lacks a key.
    """
    if not path.is_file():
        raise DataError(
            f"there is no {path}; get datasets_metadata/paper_prebuilt_metadata/datasets_metadata_v4.zip from "
            "https://github.com/mdabbah/COOD_benchmarking"
        )
    try:
        data = _Harmless(io.BytesIO(_pickle_bytes(path))).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is not COOD's metadata: {error}") from error
    absent = [key for key in ("image_files", "labels", "train_idx", "val_idx") if key not in data]
    if absent or not {"class_names", "wordnet_ids"} & set(data):
        raise DataError(f"{path} lacks {', '.join(absent) or 'class_names'}; it has {sorted(map(str, data))[:10]}")
    if len(data["image_files"]) != len(data["labels"]):
        raise DataError(f"{path} has {len(data['image_files'])} files but {len(data['labels'])} labels")
    return dict(data)


def _pickle_bytes(path: Path) -> bytes:
    if not zipfile.is_zipfile(path):
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path} is larger than {MAX_BYTES} bytes; it is not COOD's metadata")
        return path.read_bytes()
    with zipfile.ZipFile(path) as bundle:
        inside = [info for info in bundle.infolist() if PurePosixPath(info.filename).name == PICKLE]
        if len(inside) != 1 or inside[0].file_size > MAX_BYTES:
            raise DataError(f"{path} does not hold one {PICKLE} of at most {MAX_BYTES} bytes")
        return bundle.read(inside[0])


class _Harmless(pickle.Unpickler):
    """An unpickler that makes containers, numbers, text and arrays, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no data; do not trust it")
        if module.startswith("numpy.") and name in ("_reconstruct", "scalar"):
            return getattr(_multiarray(), name)
        return super().find_class(module, name)


def _multiarray() -> Any:
    core: Any = getattr(np, "_core", None) or getattr(np, "core")  # noqa: B009 - NumPy 1 has the name without underscore
    return core.multiarray


def _relative(file: Any) -> str:
    text = str(file).replace("\\", "/")
    path = PurePosixPath(text[text.index(CUT) + len(CUT) :] if CUT in text else text)
    if path.is_absolute() or ".." in path.parts:
        raise DataError(f"COOD's metadata names {text!r}, which is no path below {CUT}")
    return path.as_posix()
