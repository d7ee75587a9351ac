"""COOD: OOD sets of graded severity, chosen for each model and confidence function from a pool of classes.

The severity of a class is the mean confidence in its pictures of the *estimation* part; its pictures of the *test* part
are evaluated.  Classes are sorted by severity, a window of as many classes as the ID set has slides over them, and the
windows at evenly spaced percentiles are the levels: 0 the easiest, the last the hardest.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from fiood_core import Benchmark, Dataset, OODSet, View
from fiood_core.benchmark import Pool, Row
from fiood_core.dataset import PartOf
from fiood_core.download import Remote
from fiood_core.errors import DataError, ParameterError
from fiood_core.lists import csv_columns
from fiood_core.metrics import Metrics, evaluate
from fiood_core.reference import PublishedRow
from fiood_core.request import Request

Choice = Literal["percentiles", "diversity"]

LEVELS = 11
TEST_SHARE = 0.25
"""Of 200 pictures a class the paper tests on 50; the other 150 estimate the severity."""

ESTIMATION, TEST, POOL = "estimation", "test", "pool"


@dataclass(frozen=True)
class Level:
    """A group of OOD classes of like severity.

    Attributes
    ----------
    number : int
        0 is the easiest.
    percentile : float
        Where its window starts among all windows, in [0, 1].
    severity : float
        Mean of its classes' severities.
    classes : ndarray of int
        Its classes, by rising severity.
    """

    number: int
    percentile: float
    severity: float
    classes: np.ndarray


def class_severity(confidences: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Mean confidence (num_classes,) of each class of the estimation part.

    Parameters
    ----------
    confidences : array (n,)
        Larger = more in-distribution.
    labels : array (n,) of int
        OOD class of each picture, 0 to ``num_classes`` − 1.

    Raises
    ------
    DataError
        A class has no picture.
    """
    counts = np.bincount(labels, minlength=num_classes)
    if len(counts) > num_classes or not counts.all():
        gap = int(np.flatnonzero(counts == 0)[0]) if not counts.all() else len(counts) - 1
        raise DataError(f"class {gap} of {num_classes} has no picture to estimate its severity from")
    sums: np.ndarray = np.bincount(labels, weights=np.asarray(confidences, dtype=np.float64), minlength=num_classes)
    return sums / counts


def severity_levels(
    severity: np.ndarray, window: int, levels: int = LEVELS, choice: Choice = "percentiles"
) -> list[Level]:
    """Groups of ``window`` classes at rising severity.

    Parameters
    ----------
    severity : array (K,)
        Of each class; ties keep the order of the classes.
    window : int
        Classes a group, as many as the ID set has.
    levels : int
        How many groups.
    choice : {"percentiles", "diversity"}
        Windows at evenly spaced percentiles, as in the paper; or, as an option of the official code, windows that are
        chosen one after the other to be farthest in severity from those chosen before, beginning with the easiest.

    Raises
    ------
    DataError
        There are fewer classes than the window, or a severity is not finite.
    ParameterError
        Fewer than two levels or no window.
    """
    if levels < 2 or window < 1:
        raise ParameterError(f"cood needs at least two levels and a window of at least one, got {levels} and {window}")
    if len(severity) < window:
        raise DataError(f"the pool has {len(severity)} classes, fewer than the window of {window}; lower window=")
    if not np.isfinite(severity).all():
        raise DataError(f"the severity of class {int(np.flatnonzero(~np.isfinite(severity))[0])} is not finite")
    order = np.argsort(severity, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(severity[order])])
    means = (sums[window:] - sums[:-window]) / window
    starts, percentiles = _by_percentile(len(means), levels) if choice == "percentiles" else _diverse(means, levels)
    return [
        Level(number, percentile, float(severity[order[start : start + window]].mean()), order[start : start + window])
        for number, (start, percentile) in enumerate(zip(starts, percentiles, strict=True))
    ]


def _by_percentile(windows: int, levels: int) -> tuple[list[int], list[float]]:
    percentiles = [number / (levels - 1) for number in range(levels)]
    return [min(int(q * windows), windows - 1) for q in percentiles], percentiles


def _diverse(means: np.ndarray, levels: int) -> tuple[list[int], list[float]]:
    chosen = [0]
    distance = np.abs(means - means[0])
    for _ in range(levels - 1):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.abs(means - means[chosen[-1]]))
    chosen.sort()
    return chosen, [float(np.mean(means[chosen] < means[start])) for start in chosen]


def evaluate_levels(
    id_scores: np.ndarray, pool_scores: np.ndarray, labels: np.ndarray, levels: Sequence[Level]
) -> list[Metrics]:
    """Metrics of each level's test pictures against the whole ID set, ties counted half.

    Parameters
    ----------
    id_scores : array (m,)
    pool_scores : array (n,)
        Of the pool's test part.
    labels : array (n,) of int
        OOD class of each.
    levels : sequence of Level
    """
    order = np.argsort(labels, kind="stable")
    edges = np.searchsorted(labels[order], np.arange(int(labels.max(initial=-1)) + 2))
    return [
        evaluate(id_scores, pool_scores[np.concatenate([order[edges[c] : edges[c + 1]] for c in level.classes])])
        for level in levels
    ]


class SplitPool(PartOf):
    """A dataset of OOD classes with its pictures divided, class by class, into estimation and test.

    A dataset that brings the division as its own subsets ``estimation`` and ``test`` keeps it.

    Parameters
    ----------
    dataset : Dataset
        Each picture's class is its concept, else the folder that it lies in, else its class index.
    classes : sequence of str, optional
        Wnids or names of the classes that the pool shall have; others are left out.
    excluded : callable, optional
        Gives the classes that must not be in the pool, each with a reason, their names case-folded.
    test_share : float
    seed : int
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        classes: Sequence[str] | None = None,
        excluded: Callable[[], Mapping[str, str]] | None = None,
        test_share: float = TEST_SHARE,
        seed: int = 0,
    ) -> None:
        super().__init__(dataset)
        self.classes, self.excluded = classes, excluded or dict
        self.test_share, self.seed = test_share, seed
        self.info = replace(
            dataset.info, summary=f"{dataset.info.summary}; {test_share:.0%} of each class for the test"
        )

    @cached_property
    def _view(self) -> View:
        view = self.dataset.view()
        names = class_names(view)
        if {ESTIMATION, TEST} <= set(view.subsets) and self.classes is None:
            _refuse(names, None, self.excluded())
            return view
        _refuse(names, self.classes, self.excluded())
        wanted = set(names) if self.classes is None else set(self.classes)
        rows = [row for row, name in enumerate(names) if name in wanted]
        kept = view.take(rows)
        part = split([names[row] for row in rows], kept.ids, self.test_share, self.seed)
        subsets = {ESTIMATION: np.flatnonzero(~part).tolist(), TEST: np.flatnonzero(part).tolist()}
        return replace(kept, subsets=subsets)

    def view(self) -> View:
        return self._view


def class_names(view: View) -> list[str]:
    """The class of each picture: its concept's wnid or name, else the folder that it lies in, else its class index.

    Raises
    ------
    DataError
        A picture has none of them.
    """
    names = []
    for row, image_id in enumerate(view.ids):
        concept = view.concepts[row] if view.concepts is not None else None
        name = (concept.wnid or concept.name) if concept is not None else image_id.rpartition("/")[0]
        if not name and view.targets is not None and len(view.targets[row]) == 1:
            name = str(view.targets[row][0])
        if not name:
            raise DataError(f"{image_id!r} of {view.source!r} has no class: it has no label and lies in no sub-folder")
        names.append(name)
    return names


def split(names: Sequence[str], ids: Sequence[str], test_share: float, seed: int) -> np.ndarray:
    """Which pictures (n,) are for the test: of each class the share, by a seeded order of its pictures' ids.

    A picture's place depends on the seed and the ids of its class alone, not on the order in which they are listed.

    Raises
    ------
    DataError
        A class has too few pictures for both parts.
    """
    if not 0 < test_share < 1:
        raise ParameterError(f"cood: test_share must be between 0 and 1, got {test_share}")
    of_class: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        of_class[name].append(row)
    test = np.zeros(len(names), dtype=bool)
    for name, rows in of_class.items():
        count = round(test_share * len(rows)) or 1
        if count >= len(rows):
            raise DataError(f"class {name!r} has {len(rows)} pictures, too few to estimate on some and test on others")
        ranked = sorted(rows, key=lambda row: hashlib.sha256(f"{seed}:{ids[row]}".encode()).digest())
        test[ranked[:count]] = True
    return test


def _refuse(names: Sequence[str], classes: Sequence[str] | None, excluded: Mapping[str, str]) -> None:
    """Raise where the pool is not what a benchmark can stand on; the message names the class."""
    present = Counter(names)
    twice = [name for name, count in Counter(classes or ()).items() if count > 1]
    if twice:
        raise DataError(f"the class list names {twice[0]!r} twice")
    empty = [name for name in classes or () if name not in present]
    if empty:
        raise DataError(f"class {empty[0]!r} of the class list has no picture in the pool ({len(empty)} such classes)")
    wanted = present if classes is None else {name: present[name] for name in classes}
    if all(name.isdecimal() for name in wanted):
        numbers = sorted(map(int, wanted))
        gap = next((a + 1 for a, b in pairwise(numbers) if b > a + 1), None)
        if gap is not None:
            raise DataError(f"the pool's classes are numbered {numbers[0]} to {numbers[-1]}, but {gap} has no picture")
    folded = Counter(name.casefold() for name in wanted)
    clash = next((name for name in wanted if folded[name.casefold()] > 1), None)
    if clash is not None:
        raise DataError(f"the pool has the class {clash!r} twice, written differently")
    inside = [(name, excluded[key]) for name in wanted for key in _keys(name) & excluded.keys()]
    if inside:
        raise DataError(f"the pool's class {inside[0][0]!r} {inside[0][1]} ({len(inside)} such classes)")


def _keys(name: str) -> set[str]:
    """What a class may be known by: its name, and the last part of it where it is a path."""
    return {name.casefold(), name.rpartition("/")[2].casefold()}


CONFIDENCES = {
    "softmax": "msp",
    "max_logit": "max-logit",
    "entropy": "entropy",
    "odin_temperature-2_noise_mag-1e-05": "odin",
    "mcd_entropy": "mc-dropout",
}
"""fiood's names of the paper's confidence functions."""


class COOD(Benchmark):
    """Levels of rising severity from a pool of OOD classes, for each backbone and detector anew.

    Parameters
    ----------
    id_test, id_train : dataset or specification
        By default ImageNet-1k's validation set; a training set only where a detector learns from one.
    pool : dataset or specification
        By default the pool of the paper, COOD's filtered ImageNet-21k.
    window : int, optional
        Classes a level; by default as many as the ID set has.
    levels : int
    choice : {"percentiles", "diversity"}
    test_share : float
    seed : int
        Of the division into estimation and test.
    classes : path, optional
        A text file of wnids or names, one a line: the classes that the pool shall have.
    """

    published: ClassVar[Remote | None] = Remote(
        "cood_results.csv",
        urls=("https://raw.githubusercontent.com/mdabbah/COOD_benchmarking/HEAD/paper_results/all_paper_results.csv",),
        size=3_027_725,
        digest="sha256:80cac24f7698e3ae8eadcb710573b728c716abf0817e1424f72914c07430263f",
    )
    published_on = "ImageNet-1k's 50,000 validation pictures against the paper's pool of ImageNet-21k, window 1000"

    def __init__(
        self,
        id_test: Dataset | str = "imagenet-1k",
        pool: Dataset | str = "cood-pool",
        id_train: Dataset | str | None = None,
        *,
        window: int | None = None,
        levels: int = LEVELS,
        choice: Choice = "percentiles",
        test_share: float = TEST_SHARE,
        seed: int = 0,
        classes: str | Path | None = None,
    ) -> None:
        if choice not in ("percentiles", "diversity"):
            raise ParameterError(f"cood: choice must be 'percentiles' or 'diversity', got {choice!r}")
        self._id_test, self._pool, self._id_train = id_test, pool, id_train
        self.window, self.levels, self.choice = window, levels, choice
        self.test_share, self.seed, self.classes = test_share, seed, classes

    @cached_property
    def id_test(self) -> Dataset:
        return _dataset(self._id_test)

    @cached_property
    def id_train(self) -> Dataset | None:
        return None if self._id_train is None else _dataset(self._id_train)

    @cached_property
    def ood(self) -> Mapping[str, OODSet]:
        classes = None if self.classes is None else Path(self.classes).expanduser().read_text("utf-8").split("\n")
        pool = SplitPool(
            _dataset(self._pool),
            classes=None if classes is None else [line.strip() for line in classes if line.strip()],
            excluded=self._id_classes,
            test_share=self.test_share,
            seed=self.seed,
        )
        return {POOL: OODSet(pool, "severity")}

    def _id_classes(self) -> dict[str, str]:
        known: dict[str, str] = {}
        for names in (self.id_test.class_names, self.id_test.class_wnids):
            known |= {name.casefold(): "is a class of the ID set" for name in names or ()}
        view = self.id_test.view()
        if view.targets is None:  # a folder: its classes are named by its sub-folders, or by a list
            for row, image_id in enumerate(view.ids):
                concept = view.concepts[row] if view.concepts is not None else None
                own = (concept.wnid, concept.name) if concept is not None else (image_id.rpartition("/")[0],)
                known |= {key: "is a class of the ID set" for name in own if name for key in _keys(name)}
        return known

    @classmethod
    def read_published(cls, path: Path) -> Iterator[PublishedRow]:
        """The 20,328 rows of the paper: AUROC of 1,848 pairs of model and confidence function at eleven levels."""
        columns = ("model name", "confidence function", "severity level", "ood-auroc")
        for line, (model, confidence, level, auroc) in enumerate(csv_columns(path, *columns), 2):
            if confidence not in CONFIDENCES:
                raise DataError(f"{path.name}:{line} has the confidence function {confidence!r}, which is not known")
            yield PublishedRow(model, CONFIDENCES[confidence], f"level-{level}", float(auroc))

    def rows(self, id_scores: Pool, pools: Mapping[str, Pool]) -> Iterator[Row]:
        """One row a level; its details hold percentile, severity, mean confidences, classes and the ID numbers."""
        if POOL not in pools:
            return
        pool = pools[POOL]
        names = class_names(pool.view)
        known = sorted(set(names))
        place = {name: index for index, name in enumerate(known)}
        labels = np.array([place[name] for name in names])
        estimation, test = (np.asarray(pool.view.subsets[part], dtype=np.int64) for part in (ESTIMATION, TEST))
        try:
            severity = class_severity(pool.scores[estimation], labels[estimation], len(known))
        except DataError as error:
            raise DataError(f"{error}; the classes are numbered in the order of {known[:3]} …") from None
        levels = severity_levels(severity, self.window or self._id_count(id_scores.view), self.levels, self.choice)
        scores, of_class = pool.scores[test], labels[test]
        inside = {"id_mean_confidence": float(id_scores.scores.mean()), **_selective(id_scores)}
        for level, metrics in zip(levels, evaluate_levels(id_scores.scores, scores, of_class, levels), strict=True):
            details = {
                "level": level.number,
                "percentile": level.percentile,
                "severity": level.severity,
                "ood_mean_confidence": float(scores[np.isin(of_class, level.classes)].mean()),
                **inside,
                "classes": [known[index] for index in level.classes],
            }
            yield Row(POOL, f"level-{level.number}", metrics, group="severity", details=details)

    def pictures(self, ood: str, subset: str, details: Mapping[str, Any]) -> Sequence[str]:
        """Ids of a level's test pictures: those by which a level becomes an OOD set of its own."""
        view = self.ood[ood].dataset.view()
        names, wanted = class_names(view), set(details.get("classes", ()))
        if not wanted:
            raise DataError(f"the row {subset!r} names no classes; only levels have pictures of their own")
        return [view.ids[row] for row in view.subsets[TEST] if names[row] in wanted]

    def _id_count(self, view: View) -> int:
        """How many classes the ID set has."""
        for names in (self.id_test.class_wnids, self.id_test.class_names):
            if names is not None:
                return len(names)
        found = {target for targets in view.targets or () for target in targets}
        if not found:
            raise DataError("the ID set has no labels to count its classes by; give window=")
        return len(found)


class COODDigits(COOD):
    """A small graded pool from Python packages: unseen digits, patches of photos and noise."""

    published = None

    def __init__(self) -> None:
        super().__init__("digits(split=test)", "digits-pool", "digits(split=train)", test_share=0.5)


COVERAGES = 20
"""At so many coverages, evenly spaced up to all pictures, rows hold the risk."""


def _selective(id_scores: Pool) -> dict[str, Any]:
    """Accuracy, AUROC of right against wrong, and the risk-coverage curve with the area under it, on the ID set."""
    if id_scores.correct is None:
        return {}
    right = id_scores.correct
    numbers: dict[str, Any] = {"id_top1": float(right.mean()), "id_aurc": risk_coverage_area(id_scores.scores, right)}
    coverage, risk = risk_coverage(id_scores.scores, right)
    numbers["id_risk"] = np.interp(np.arange(1, COVERAGES + 1) / COVERAGES, coverage, risk).tolist()
    if 0 < right.sum() < len(right):
        numbers["id_auroc"] = evaluate(id_scores.scores[right], id_scores.scores[~right]).auroc
    return numbers


def risk_coverage(scores: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coverage and risk (n,) as ever less confident pictures are accepted; tied ones enter with their mean error."""
    order = np.argsort(-scores, kind="stable")
    wrong = (~correct[order]).astype(np.float64)
    edges = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) + 1
    sums = np.concatenate([[0.0], np.cumsum(wrong)])[np.concatenate([[0], edges])]
    accepted = np.arange(1, len(scores) + 1)
    errors = np.interp(accepted, np.concatenate([[0], edges]), sums)
    return accepted / len(scores), errors / accepted


def risk_coverage_area(scores: np.ndarray, correct: np.ndarray) -> float:
    """Area under the risk-coverage curve: the mean risk over all coverages (Geifman and El-Yaniv, 2019)."""
    return float(risk_coverage(scores, correct)[1].mean())


def _dataset(given: Dataset | str) -> Dataset:
    return given if isinstance(given, Dataset) else Request.parse("dataset", given).create()
