"""Does a dataset behave?  Where its pictures are absent, the checks that need them are skipped and say so."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from fiood_core.dataset import Concept, Dataset, Info, View
from fiood_core.errors import ConformanceError, DataError
from fiood_core.images import ImagePolicy, decode
from fiood_core.registry import API_WINDOW
from fiood_core.testing.outcome import ConformanceReport, Skipped, Subject, check, require

SAMPLE = 16
"""Pictures that are decoded, spread over the view."""


def check_dataset(target: Any, parameters: Mapping[str, Any] | None = None) -> ConformanceReport:
    """Run every conformance check on a dataset.

    Parameters
    ----------
    target : str, class, factory or instance
        Give an instance ``with_manifest`` to check one whose pictures are not at hand.
    parameters : mapping, optional
        For a name, class or factory.

    Raises
    ------
    ConformanceFailure
        One or more checks failed; the message has a line for each.
    """
    return check("dataset", target, parameters, DatasetSubject, CHECKS)


class DatasetSubject(Subject[Dataset]):
    """A way to make the dataset, and its view."""

    @cached_property
    def dataset(self) -> Dataset:
        """An instance."""
        return self.make()

    @cached_property
    def view(self) -> View:
        """The view of :attr:`dataset`; skips the check where pictures are missing."""
        missing = list(self.dataset.missing())
        if missing:
            raise Skipped(f"the pictures are not here: {missing[0]}")
        return self.dataset.view()

    def some_rows(self) -> list[int]:
        """Row numbers spread over the view."""
        n = len(self.view)
        return sorted({round(i * (n - 1) / max(1, SAMPLE - 1)) for i in range(SAMPLE)}) if n else []


def describes_itself(subject: DatasetSubject) -> None:
    """``info`` says what the dataset is, without its pictures."""
    info = getattr(subject.dataset, "info", None)
    require(isinstance(info, Info), "info must be a fiood_core.Info(title=...)")
    assert isinstance(info, Info)
    require(bool(info.title.strip()), "info.title is empty")
    require(bool(info.licence.strip()), "info.licence is empty; write 'not stated' where it is not known")
    count = info.expected_count
    require(count is None or count > 0, f"info.expected_count is {count}; leave it None where it is not known")
    low, high = API_WINDOW
    version = subject.dataset.api_version
    require(low <= version <= high, f"api_version {version} is outside {low} to {high}")


def absence(subject: DatasetSubject) -> None:
    """Where the pictures are absent, ``missing`` says what and how to get it, and ``view`` refuses."""
    with _empty_home():
        try:
            dataset = subject.make()
            missing = list(dataset.missing())
        except Exception as error:
            raise ConformanceError(
                f"without its files the dataset raised {type(error).__name__}: {error}; the constructor must not read "
                "them, and missing() must list what is absent, one sentence each"
            ) from error
        if not missing:
            return
        require(
            all(isinstance(m, str) and m.strip() for m in missing), f"missing() gave {missing!r}; it gives sentences"
        )
        try:
            dataset.view()
        except DataError:
            return
        except Exception as error:
            raise ConformanceError(
                f"view() raised {type(error).__name__}: {error} where files are absent; raise a DataError that says "
                "what is missing and what to do"
            ) from error
        raise ConformanceError("missing() names missing files, but view() gave a view; it must raise a DataError")


def view(subject: DatasetSubject) -> None:
    """The view is not empty and the same every time."""
    require(len(subject.view) > 0, "the view is empty")
    again = subject.make().view()
    require(
        list(again.ids) == list(subject.view.ids) and again.digest == subject.view.digest,
        "two instances give other ids, or another order of them; sort what a folder or a set lists",
    )
    require(bool(subject.view.source), "view.source is empty; the feature store is keyed by it")
    count = subject.dataset.info.expected_count
    require(
        not subject.view.canonical or count is None or count == len(subject.view),
        f"info.expected_count is {count}, the view has {len(subject.view)} pictures and calls itself canonical",
    )


def ids(subject: DatasetSubject) -> None:
    """Ids are relative paths with forward slashes, and do not tell where the pictures lie."""
    for image_id in subject.view.ids:
        good = isinstance(image_id, str) and image_id and "\\" not in image_id and "\n" not in image_id
        require(bool(good), f"id {image_id!r} is empty, no string, or has a backslash or line break")
        parts = image_id.split("/")
        require(
            parts[0] != "" and ".." not in parts and not Path(image_id).is_absolute(),
            f"id {image_id!r} is an absolute path or climbs out; ids are relative to the dataset's root",
        )


def labels(subject: DatasetSubject) -> None:
    """Targets are class indices, concepts have names, subsets have rows of the view."""
    view = subject.view
    for image_id, target in zip(view.ids, view.targets or (), strict=False):
        good = isinstance(target, tuple) and all(type(c) is int and c >= 0 for c in target)
        require(good, f"targets of {image_id!r} are {target!r}; they must be a tuple of class indices from 0")
        require(len(set(target)) == len(target), f"targets of {image_id!r} name a class twice: {target}")
    for image_id, concept in zip(view.ids, view.concepts or (), strict=False):
        good = concept is None or (isinstance(concept, Concept) and bool(concept.name.strip() or concept.wnid))
        require(good, f"concept of {image_id!r} is {concept!r}; it must be a Concept with a name or wnid, or None")
    for name, rows in view.subsets.items():
        good = len(rows) > 0 and all(0 <= r < len(view) for r in rows) and len(set(rows)) == len(rows)
        require(good, f"subset {name!r} is empty, repeats a row, or has rows outside 0 to {len(view) - 1}")


def decodes(subject: DatasetSubject) -> None:
    """Pictures open under the default image policy."""
    for row in subject.some_rows():
        image_id = subject.view.ids[row]
        picture = decode(subject.dataset.open(image_id), ImagePolicy(), name=image_id)
        require(
            isinstance(picture, Image.Image) and picture.mode == "RGB" and min(picture.size) > 0,
            f"{image_id!r} does not decode to an RGB picture",
        )


def stamps(subject: DatasetSubject) -> None:
    """Each picture has a stamp, the same while the picture is the same."""
    chosen = [subject.view.ids[row] for row in subject.some_rows()]
    first, second = list(subject.dataset.stamps(chosen)), list(subject.make().stamps(chosen))
    require(
        len(first) == len(chosen) and all(isinstance(s, str) and s for s in first),
        f"stamps gave {len(first)} entries for {len(chosen)} ids; it gives one non-empty string each",
    )
    require(first == second, "stamps of unchanged pictures change; derive them from size and time of change or content")


def travels(subject: DatasetSubject) -> None:
    """The dataset can be sent to loader workers."""
    image_id = subject.view.ids[0]
    try:
        copy = pickle.loads(pickle.dumps(subject.dataset))
    except Exception as error:
        raise ConformanceError(
            f"the dataset cannot be pickled for loader workers: {error}. Keep no open files, locks or lambdas on it"
        ) from error
    first = decode(subject.dataset.open(image_id), ImagePolicy(), name=image_id)
    second = decode(copy.open(image_id), ImagePolicy(), name=image_id)
    require(first.tobytes() == second.tobytes(), f"a pickled copy of the dataset opens another picture as {image_id!r}")


CHECKS = {
    "describes itself": describes_itself,
    "absence": absence,
    "view": view,
    "ids": ids,
    "labels": labels,
    "decodes": decodes,
    "stamps": stamps,
    "travels": travels,
}
"""Every check of a dataset, in order, by the name that reports show."""


@contextmanager
def _empty_home() -> Iterator[None]:
    before = os.environ.get("FIOOD_HOME")
    with TemporaryDirectory() as home:
        os.environ["FIOOD_HOME"] = home
        try:
            yield
        finally:
            if before is None:
                del os.environ["FIOOD_HOME"]
            else:
                os.environ["FIOOD_HOME"] = before
