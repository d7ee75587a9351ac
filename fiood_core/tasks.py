"""The tasks of a run.

A task is plain data that JSON can hold: ``kind``, ``shard`` (which part of the run), ``inputs`` (outcomes of earlier
tasks that it reads) and ``spec`` (all it needs to know).  :func:`execute` is a function of that data alone, and what it
makes are files: features in the store, scores and an *outcome* in the run's directory.  So an executor can run tasks in
this process, in another, or on another machine that sees the same files.
"""

from __future__ import annotations

import copy
import errno
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fiood_core import results
from fiood_core.errors import DataError, FioodError, ImageError, InputError, ResultError, StoreError
from fiood_core.plan import (
    ID,
    TRAIN,
    PlannedBenchmark,
    PlannedSet,
    Problem,
    image_policy,
    learns,
    make_detector,
    plan_benchmark,
)
from fiood_core.request import Request, digest
from fiood_core.suite import BenchmarkRequest, Settings

if TYPE_CHECKING:
    from fiood_core.backbone import Backbone
    from fiood_core.column import Column
    from fiood_core.detector import Detector
    from fiood_core.extract import Extracted, ExtractSettings
    from fiood_core.features import FeatureSet
    from fiood_core.store import FeatureStore
    from fiood_core.vocabulary import Labels
    from fiood_core.zero_shot import ZeroShot

Task = Mapping[str, Any]

EXTRACT = "extract"
SCORE = "score"
SHOW_PROGRESS = True
"""Whether extraction shows a progress bar."""

STATE = ".fiood"
"""Folder of a run's directory where outcomes are kept, and what each file of scores was made from."""


def execute(task: Task) -> None:
    """Do a task and write its outcome.

    What goes wrong with a plugin, a picture or a dataset is written down as the outcome's problem.  Only what makes
    every further task pointless is raised.

    Raises
    ------
    StoreError
        The store is damaged or the disk is full.
    """
    work: dict[str, Callable[[Task], dict[str, Any]]] = {EXTRACT: _extract, SCORE: _score}
    try:
        outcome = work[task["kind"]](task)
    except StoreError:
        raise
    except (Exception, SystemExit) as error:
        _raise_if_disk_full(error)
        outcome = {"problem": _plain(Problem.of(error))}
    results.write_json(outcome_path(task), {"token": outcome_token(task), **outcome})


def outcome_path(task: Task) -> Path:
    """Where a task's outcome is written."""
    return Path(task["spec"]["directory"], STATE, task["kind"], f"{task['shard']}.json")


def outcome_token(task: Task) -> str:
    """What an outcome must have been made from to be believed: the task, less what changes no outcome."""
    spec = {key: value for key, value in task["spec"].items() if key not in ("directory", "store", "settings")}
    return digest([task["kind"], task["shard"], spec])


def read_outcome(task: Task) -> dict[str, Any] | None:
    """The outcome of exactly this task; None where there is none."""
    try:
        outcome: dict[str, Any] = json.loads(outcome_path(task).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return outcome if outcome.get("token") == outcome_token(task) else None


def _inputs(task: Task) -> dict[str, dict[str, Any]]:
    """The outcomes of the tasks that a task reads, by set."""
    return {name: json.loads(Path(path).read_text(encoding="utf-8")) for name, path in task["inputs"].items()}


def drop_scoring_outcomes(directory: Path) -> None:
    """Remove what scoring tasks said: it is in the rows by now, and the next run asks only for what is missing."""
    shutil.rmtree(directory / STATE / SCORE, ignore_errors=True)


# -- extract -------------------------------------------------------------------------------------------------------


def _extract(task: Task) -> dict[str, Any]:
    """Bring one set through the backbone, and hold the ID test set to the expected accuracy."""
    from fiood_core.gate import check_accuracy

    spec = task["spec"]
    if any("problem" in outcome for outcome in _inputs(task).values()):
        return {"problem": _plain(Problem("failed", "not extracted: without the ID test set nothing comes of it"))}
    settings = Settings(**spec["settings"])
    planned = _set(spec)
    backbone, store = _backbone(spec), _store(spec)
    columns = {c.key: c for d in _detectors(spec["detectors"], settings) for c in d.columns}
    seed(settings)
    extracted, broken = _extract_columns(backbone, planned, store, extraction(settings), list(columns.values()))
    outcome: dict[str, Any] = {
        "count": len(extracted.view),
        "skipped": [list(pair) for pair in extracted.skipped],
        "broken_columns": {key: _plain(problem) for key, problem in broken.items()},
    }
    if planned.name == ID:
        report = _plain(check_accuracy(backbone, spec["dataset_name"], extracted, spec["expected_top1"]))
        outcome["wrong"] = report.pop("wrong")
        outcome["gate"] = report
    return outcome


def _extract_columns(
    backbone: Backbone, planned: PlannedSet, store: FeatureStore, settings: ExtractSettings, columns: Sequence[Column]
) -> tuple[Extracted, dict[str, Problem]]:
    """Extract with all columns; if that fails, without, and each column by itself, so that one harms no other."""
    from fiood_core.extract import extract

    assert planned.dataset is not None
    try:
        return extract(backbone, planned.dataset, store, settings, columns=columns), {}
    except (StoreError, DataError, ImageError):
        raise
    except Exception as error:
        _raise_if_disk_full(error)
        if not columns:
            raise
    extracted = extract(backbone, planned.dataset, store, settings)
    broken: dict[str, Problem] = {}
    for column in columns:
        try:
            extract(backbone, planned.dataset, store, settings, columns=[column])
        except StoreError:
            raise
        except (Exception, SystemExit) as error:
            _raise_if_disk_full(error)
            broken[column.key] = Problem.of(error)
    return extracted, broken


# -- score ---------------------------------------------------------------------------------------------------------


@dataclass
class _Scoring:
    """One backbone on one benchmark, with the detectors that are still in the running."""

    spec: Mapping[str, Any]
    settings: Settings
    benchmark: PlannedBenchmark
    backbone: Backbone
    store: FeatureStore
    zero_shot: ZeroShot | None
    detectors: dict[str, Detector]
    broken_columns: dict[str, Problem]
    failures: dict[str, dict[str, Any]]
    labels: dict[tuple[Any, ...], Labels] = field(default_factory=dict)

    def fail(self, column: str, name: str, error: BaseException | Problem) -> None:
        """Note why a column has no scores for a set (``"*"``: for any)."""
        _raise_if_disk_full(error)
        problem = error if isinstance(error, Problem) else Problem.of(error)
        self.failures.setdefault(column, {}).setdefault(name, _plain(problem))
        if name in ("*", ID):
            self.detectors.pop(column, None)

    def read(self, planned: PlannedSet) -> Extracted:
        """What extraction left in the store for a set."""
        from fiood_core.extract import extract

        assert planned.dataset is not None
        wanted = [d for d in self.detectors.values() if planned.name != TRAIN or learns(d, self.backbone)]
        columns = {c.key: c for d in wanted for c in d.columns if c.key not in self.broken_columns}
        return extract(
            self.backbone, planned.dataset, self.store, extraction(self.settings), columns=list(columns.values())
        )


def _score(task: Task) -> dict[str, Any]:
    """Fit the detectors of one backbone on one benchmark in one pass, and score every set in one pass each."""
    spec = task["spec"]
    settings = Settings(**spec["settings"])
    outcomes = _inputs(task)
    sound = [name for name, outcome in outcomes.items() if "problem" not in outcome]
    broken = {key: Problem(**why) for name in sound for key, why in outcomes[name]["broken_columns"].items()}
    if ID not in sound:
        return {"failures": {}}
    backbone = _backbone(spec)
    scoring = _Scoring(
        spec, settings, _benchmark(spec), backbone, _store(spec), _zero_shot(spec, backbone), {}, broken, {}
    )
    _take_detectors(scoring, train_is_sound=TRAIN in sound)
    _fit(scoring)
    for planned in scoring.benchmark.sets:
        if planned.name in sound and planned.name != TRAIN:
            _score_set(scoring, planned)
    return {"failures": scoring.failures}


def _take_detectors(scoring: _Scoring, *, train_is_sound: bool) -> None:
    for variant in scoring.spec["detectors"]:
        try:
            detector = make_detector(Request.from_data("detector", variant["detector"]), scoring.settings)
        except (Exception, SystemExit) as error:
            scoring.fail(variant["column"], "*", error)
            continue
        if learns(detector, scoring.backbone) and not train_is_sound:
            continue  # the training set's own problem is what the cell shows
        why = next((scoring.broken_columns[c.key] for c in detector.columns if c.key in scoring.broken_columns), None)
        if why is not None:
            scoring.fail(variant["column"], "*", why)
            continue
        scoring.detectors[variant["column"]] = detector


def _fit(scoring: _Scoring) -> None:
    """Fit all that learn in one streamed pass; give the others the head alone."""
    from fiood_core.scoring import fit_all

    learning = {column: d for column, d in scoring.detectors.items() if learns(d, scoring.backbone)}
    others = {column: d for column, d in scoring.detectors.items() if column not in learning}
    if learning:
        assert scoring.benchmark.train is not None
        extracted = scoring.read(scoring.benchmark.train)
        train = extracted.features
        cache = scoring.store.statistics(scoring.spec["backbone_key"], extracted.content)
        seed(scoring.settings)
        fit_all(learning, train, cache, on_error=lambda column, error: scoring.fail(column, "*", error))
    if others:
        assert scoring.benchmark.test is not None
        empty = _without_rows(scoring.read(scoring.benchmark.test).features)
        fit_all(others, empty, on_error=lambda column, error: scoring.fail(column, "*", error))


def _without_rows(features: FeatureSet) -> FeatureSet:
    """The head with no training row beside it: a detector that learns nothing can see nothing of the test set."""
    from fiood_core.features import FeatureSet

    width = features.dim if features.dim is not None else 0
    return FeatureSet(features=np.empty((0, width), dtype=np.float32), head=features.head)


def _score_set(scoring: _Scoring, planned: PlannedSet) -> None:
    from fiood_core.scoring import score_fitted

    file = ScoreFile(Path(scoring.spec["directory"]), scoring.spec["scores"][planned.name])
    tokens = scoring.spec["tokens"][planned.name]
    kept = file.kept(tokens)
    missing = [c for c in _columns(scoring, planned.name) if c.name not in kept.columns]
    if not missing:
        return
    extracted = scoring.read(planned)
    scores: dict[str, np.ndarray] = {}
    records: dict[str, Any] = {}
    for key in dict.fromkeys(c.labels for c in missing):
        batch, record = _against(scoring, extracted.features, key, [c for c in missing if c.labels == key])
        group = {c.name: c for c in missing if c.labels == key and c.column in scoring.detectors}
        if batch is None or not group:
            continue
        seed(scoring.settings)
        scores |= score_fitted(
            {name: scoring.detectors[c.column] for name, c in group.items()},
            batch,
            on_error=lambda name, error, group=group: scoring.fail(  # type: ignore[misc]
                group[name].column, group[name].ood or planned.name, error
            ),
        )
        records |= dict.fromkeys(group, record) if record else {}
    for name, values in scores.items():
        if values.shape != (len(extracted.view),):
            raise ResultError(f"{name!r} gave {values.shape} scores for {len(extracted.view)} pictures")
    ids = tuple(extracted.view.ids)
    columns = {**(kept.columns if kept.ids == ids else {}), **scores}
    ordered = {name: columns[name] for name in tokens if name in columns}
    file.write(ids, ordered, tokens, [list(pair) for pair in extracted.skipped], {**kept.labels, **records})


class _Column(NamedTuple):
    """A column of a set's scores: its name there, the detector's, the labels that it takes, and their OOD set."""

    name: str
    column: str
    labels: tuple[str, int, str | None] | None
    ood: str | None


def _columns(scoring: _Scoring, of_set: str) -> Iterator[_Column]:
    for variant in scoring.spec["detectors"]:
        if variant["column"] not in scoring.detectors:
            continue
        for name, ood in scoring.spec["names"][variant["column"]][of_set].items():
            vocabulary = variant["vocabulary"]
            key = None if vocabulary is None else (json.dumps(vocabulary), variant["replicate"] or 0, ood)
            yield _Column(name, variant["column"], key, ood)


def _against(
    scoring: _Scoring, features: FeatureSet, key: tuple[str, int, str | None] | None, columns: Sequence[_Column]
) -> tuple[FeatureSet | None, dict[str, Any] | None]:
    """The features with a vocabulary's labels as negatives, and the labels' record; None where there can be none."""
    if key is None:
        return features, None
    try:
        if scoring.zero_shot is None:
            raise InputError("negative labels need a model that embeds text")
        labels = _labels_of(scoring, scoring.zero_shot, key)
        batch = copy.copy(features)
        batch.negatives = scoring.zero_shot.negatives(labels)
    except (Exception, SystemExit) as error:
        for column in columns:
            scoring.fail(column.column, column.ood or "*", error)
        return None, None
    return batch, {"digest": labels.digest, **labels.record}


def _labels_of(scoring: _Scoring, zero_shot: ZeroShot, key: tuple[str, int, str | None]) -> Labels:
    """A vocabulary's labels, made once a task."""
    if key not in scoring.labels:
        vocabulary, replicate, ood = key
        view = None if ood is None else scoring.benchmark.find(ood).view
        made = Request.from_data("vocabulary", json.loads(vocabulary)).create()
        scoring.labels[key] = zero_shot.labels(made, replicate, view)
    return scoring.labels[key]


# -- files of scores -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Scores of one set that are still good.

    Attributes
    ----------
    ids : tuple of str
    columns : mapping from column to ndarray (n,)
    skipped : list of [id, reason]
    labels : mapping from column to the record of the negative labels that it was scored against
    """

    ids: tuple[str, ...] = ()
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    skipped: Sequence[Sequence[str]] = ()
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoreFile:
    """A file of scores, and beside it what each of its columns was made from.

    Attributes
    ----------
    directory : Path
    name : str
        Relative to the directory; see :func:`fiood_core.results.scores_path`.
    """

    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The Parquet file."""
        return self.directory / self.name

    @property
    def note(self) -> Path:
        """The file that says what it was made from."""
        return (self.directory / STATE / self.name).with_suffix(".json")

    def kept(self, tokens: Mapping[str, str]) -> Kept:
        """The columns whose tokens match; none if the file is not the one that the note speaks of."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            content = self.path.read_bytes()
        except (OSError, ValueError):
            return Kept()
        if results.sha256(content) != note["sha256"]:
            return Kept()
        ids, columns = results.parse_scores(content)
        good = {c: v for c, v in columns.items() if c in tokens and note["tokens"].get(c) == tokens[c]}
        return Kept(ids, good, note["skipped"], {c: r for c, r in note.get("labels", {}).items() if c in good})

    def write(
        self,
        ids: Sequence[str],
        columns: Mapping[str, np.ndarray],
        tokens: Mapping[str, str],
        skipped: Sequence[Any],
        labels: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write scores, then the note that vouches for them."""
        note = {
            "sha256": results.write_scores(self.path, ids, columns),
            "tokens": {c: tokens[c] for c in columns},
            "skipped": skipped,
            "labels": {c: dict(record) for c, record in (labels or {}).items() if c in columns},
        }
        results.write_json(self.note, note)

    def columns(self) -> list[str]:
        """Columns of the file as its note has them, in their order."""
        note: dict[str, Any] = json.loads(self.note.read_text(encoding="utf-8"))
        return list(note["tokens"])

    def remove(self) -> None:
        """Take the file and its note away, if they are there."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


# -- what tasks share ----------------------------------------------------------------------------------------------


def seed(settings: Settings) -> None:
    """Set the global generators, for plugins that draw from them."""
    import torch

    random.seed(settings.seed)
    np.random.seed(settings.seed)  # noqa: NPY002 - third-party code draws from the global generator
    torch.manual_seed(settings.seed)


def _detectors(variants: Iterable[Mapping[str, Any]], settings: Settings) -> list[Detector]:
    """Detectors of the variants that can be made; the others fail where they are scored."""
    made = []
    for variant in variants:
        try:
            made.append(make_detector(Request.from_data("detector", variant["detector"]), settings))
        except (Exception, SystemExit):
            continue
    return made


def extraction(settings: Settings) -> ExtractSettings:
    """What a suite's settings mean for extraction."""
    from fiood_core.extract import ExtractSettings

    return ExtractSettings(
        device=settings.device,
        batch_size=settings.batch_size,
        workers=settings.workers,
        autocast=settings.autocast,
        images=image_policy(settings),
        progress=SHOW_PROGRESS,
    )


def _store(spec: Mapping[str, Any]) -> FeatureStore:
    from fiood_core.store import FeatureStore

    return FeatureStore(Path(spec["store"]))


def _set(spec: Mapping[str, Any]) -> PlannedSet:
    planned = _benchmark(spec).find(spec["set"])
    if planned.view is None:
        raise DataError("; ".join(planned.missing))
    return planned


def _benchmark(spec: Mapping[str, Any]) -> PlannedBenchmark:
    return _benchmark_of(json.dumps(spec["benchmark"], sort_keys=False), spec["content"])


@lru_cache(maxsize=8)
def _benchmark_of(data: str, content: str) -> PlannedBenchmark:
    """The benchmark with its lists of pictures, as long as the pictures are the same (``content``)."""
    planned = plan_benchmark(BenchmarkRequest.from_data(json.loads(data)))
    if planned.problem is not None:
        raise FioodError(planned.problem.reason)
    return planned


def _backbone(spec: Mapping[str, Any]) -> Backbone:
    """The backbone; a vision-language model with the ID names as its classes."""
    backbone = _backbone_of(json.dumps(spec["backbone"], sort_keys=False))
    zero_shot = _zero_shot(spec, backbone)
    if zero_shot is not None:
        zero_shot.backbone.set_classes(zero_shot.head)
    return backbone


def _zero_shot(spec: Mapping[str, Any], backbone: Backbone) -> ZeroShot | None:
    """The text side of a vision-language model on a benchmark; None for a classifier."""
    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.extract import pick_device
    from fiood_core.zero_shot import ZeroShot

    test = _benchmark(spec).test
    if not isinstance(backbone, VisionLanguageBackbone) or test is None or test.dataset is None:
        return None
    return ZeroShot(backbone, test.dataset, pick_device(spec["settings"]["device"]), SHOW_PROGRESS)


@lru_cache(maxsize=1)
def _backbone_of(data: str) -> Backbone:
    """The backbone of the last task again, its weights loaded once; any other gives way to it."""
    created: Backbone = Request.from_data("backbone", json.loads(data)).create()
    return created


def forget() -> None:
    """Let go of the loaded backbone and of lists of pictures."""
    _backbone_of.cache_clear()
    _benchmark_of.cache_clear()


def _plain(value: Any) -> dict[str, Any]:
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{value!r} is no dataclass instance")
    return asdict(value)


def _raise_if_disk_full(error: object) -> None:
    cause = error
    while isinstance(cause, BaseException):
        if isinstance(cause, StoreError):
            raise cause
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"the disk is full: {cause}; make room and run again, nothing written is lost") from cause
        cause = cause.__cause__
