"""Running a plan: what is missing is done, what is there is used, and what fails is written down.

The runner knows no detector, dataset or benchmark by name.  For each backbone and benchmark it makes tasks (bring each
set through the backbone; fit and score all detectors), hands them to an executor, and turns the files that they leave
into rows.  Scores that were made from exactly the same things are used again, so an interrupted run goes on where it
stopped and gives what an unbroken one gives.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fiood_core import __version__, executors, hookspecs, results, settings, tasks
from fiood_core.errors import ResultError, StoreError
from fiood_core.hookspecs import RunEvent
from fiood_core.plan import (
    ID,
    TRAIN,
    Plan,
    PlannedBackbone,
    PlannedBenchmark,
    PlannedSet,
    Problem,
    Variant,
    image_policy,
    tokens,
)
from fiood_core.request import digest
from fiood_core.sealed import make_folder
from fiood_core.tasks import EXTRACT, SCORE, Kept, ScoreFile, Task, execute

if TYPE_CHECKING:
    from fiood_core.benchmark import Pool, Row
    from fiood_core.dataset import View

RECORD = "run.json"
VERSIONS = (
    "torch",
    "torchvision",
    "numpy",
    "pillow",
    "timm",
    "open_clip_torch",
    "transformers",
    "faiss-cpu",
    "pyarrow",
)
"""Distributions whose versions the record holds, if they are installed."""


def run(
    plan: Plan, directory: Path, *, store: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> results.Results:
    """Run a plan, using what a directory and the store already hold.

    Parameters
    ----------
    plan : Plan
    directory : Path
        Where results go; made if it is not there.
    store : Path, optional
        Root of the feature store.
    say : callable, optional
        Told in a line what happens.

    Returns
    -------
    Results
        With ``failed`` rows where a cell has no result.

    Raises
    ------
    SuiteError
        No hook offers the executor.
    StoreError
        The disk is full or the store is damaged; the results so far are written first.
    """
    directory = Path(os.path.abspath(directory))
    store = Path(os.path.abspath(store or settings.home() / "store"))
    executor = executors.create(plan.settings.executor)
    make_folder(directory)
    results.remove_leftovers(directory)
    started = datetime.now(timezone.utc)
    hooks = hookspecs.manager().hook
    tell = _teller(hooks)
    tell("run-started", {"suite": plan.suite.name, "directory": str(directory), "cells": sum(1 for _ in plan.cells)})
    tasks.forget()
    groups = [_Group(plan, benchmark, backbone, directory, store) for benchmark, backbone in plan.groups]
    todo = [task for group in groups for task in group.tasks()]
    stopped: StoreError | None = None
    try:
        for task in executor.run(todo):
            _say_outcome(task, say)
            tell("task-finished", {"kind": task["kind"], "shard": task["shard"]})
    except StoreError as error:
        stopped = error
    finally:
        tasks.forget()
    rows = [row for group in groups for row in group.rows(stopped)]
    for row in rows:
        tell(
            "cell-finished",
            {name: row[name] for name in ("benchmark", "backbone", "column", "ood", "status", "reason")},
        )
    tasks.drop_scoring_outcomes(directory)
    record = _record(plan, groups, started, todo)
    _write(directory, plan, rows, record, groups)
    found = results.load(directory)
    if stopped is None:
        _report(found, directory)
    tell("run-finished", {"directory": str(directory), "rows": len(found.rows), "failed": len(found.failed)})
    if stopped is not None:
        raise stopped
    return found


@dataclass
class _Group:
    """One backbone on one benchmark: what shares one fit."""

    plan: Plan
    benchmark: PlannedBenchmark
    backbone: PlannedBackbone
    directory: Path
    store: Path
    planned: list[Task] = field(default_factory=list)
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variants = self.plan.variants_of(self.backbone)
        self.runnable = [v for v in self.variants if self.plan.problem(self.benchmark, self.backbone, v) is None]
        self.scored = [s for s in self.benchmark.sets if s.view is not None and s.name != TRAIN]
        self.tokens = {
            s.name: tokens(self.plan, self.benchmark, self.backbone, self.runnable, s.name) for s in self.scored
        }
        self.files = {s.name: ScoreFile(self.directory, self._scores(s.name)) for s in self.scored}

    # -- tasks -------------------------------------------------------------------------------------------------

    def tasks(self) -> list[Task]:
        """Tasks for what is missing, inputs first; none where every score is kept and the accuracy was checked."""
        test = self.benchmark.test
        if test is None or test.view is None or not self.runnable:
            return []
        missing = self._missing()
        gate = self._extract(test)
        outcome = tasks.read_outcome(gate)
        checked = outcome is not None and "problem" not in outcome
        if checked and not missing:
            return []
        extractions = {ID: gate}
        if (
            any(v.learns(self.backbone) for v in missing)
            and self.benchmark.train is not None
            and self.benchmark.train.view
        ):
            extractions[TRAIN] = self._extract(self.benchmark.train, after=gate)
        if missing:
            extractions |= {s.name: self._extract(s, after=gate) for s in self.scored if s.name != ID}
        score = [self._score(missing, extractions)] if missing else []
        self.planned = [*extractions.values(), *score]
        return self.planned

    def _missing(self) -> list[Variant]:
        """Variants that lack the scores of a set."""
        kept = {s.name: self.files[s.name].kept(self.tokens[s.name]).columns for s in self.scored}
        return [v for v in self.runnable if any(set(self._names(v, name)) - set(kept[name]) for name in kept)]

    def _names(self, variant: Variant, of_set: str) -> Mapping[str, str | None]:
        """Columns of a set's scores, each with the OOD set that its vocabulary depends on."""
        return variant.names(of_set, self.benchmark.ood)

    def _extract(self, planned: PlannedSet, after: Task | None = None) -> Task:
        reading = [v for v in self.runnable if v.columns and (planned.name != TRAIN or v.learns(self.backbone))]
        spec = {
            **self._common(),
            "set": planned.name,
            "pictures": planned.content,
            "detectors": [v.data() for v in reading],
            "dataset_name": self.benchmark.dataset_name,
            "expected_top1": self.plan.expected_top1(self.backbone),
        }
        inputs = {} if after is None else {ID: str(tasks.outcome_path(after))}
        return {"kind": EXTRACT, "shard": self._shard(planned.name), "inputs": inputs, "spec": spec}

    def _score(self, variants: Sequence[Variant], extractions: Mapping[str, Task]) -> Task:
        spec = {
            **self._common(),
            "detectors": [v.data() for v in variants],
            "tokens": self.tokens,
            "names": {v.column: {s.name: self._names(v, s.name) for s in self.scored} for v in variants},
            "scores": {name: file.name for name, file in self.files.items()},
        }
        inputs = {name: str(tasks.outcome_path(task)) for name, task in extractions.items()}
        return {"kind": SCORE, "shard": self._shard("scores"), "inputs": inputs, "spec": spec}

    def _common(self) -> dict[str, Any]:
        policy = image_policy(self.plan.settings)
        return {
            "benchmark": self.benchmark.request.data(),
            "content": digest([[s.name, s.content] for s in self.benchmark.sets]),
            "backbone": self.backbone.request.data(),
            "backbone_key": self.backbone.key,
            "images": [policy.digest, policy.on_error],
            "settings": self.plan.settings.data(),
            "directory": str(self.directory),
            "store": str(self.store),
        }

    def _shard(self, name: str) -> str:
        return "/".join(map(results.file_name, (self.benchmark.name, self.backbone.name, name)))

    def _scores(self, name: str) -> str:
        return results.scores_path(self.benchmark.name, self.backbone.name, None if name == ID else name)

    # -- rows --------------------------------------------------------------------------------------------------

    def rows(self, stopped: StoreError | None) -> Iterator[dict[str, Any]]:
        """Rows of every detector, and one for each cell without a result."""
        outcomes = {(t["kind"], t["spec"].get("set", "")): tasks.read_outcome(t) for t in self.planned}
        kept = {s.name: self._settle(s) for s in self.scored}
        views = {s.name: _without(s.view, kept[s.name].skipped) for s in self.scored if s.view is not None}
        for variant in self.variants:
            problems = self._problems(variant, outcomes, kept, stopped)
            good = [name for name in self.benchmark.ood if name not in problems]
            for together in [[name] for name in good] if variant.of_ood else [good] if good else []:
                try:
                    pools = {name: _pool(kept[name], views[name], variant.column) for name in together}
                    inside = _pool(kept[ID], views[ID], variant.id_column(together[0]))
                    pools[ID] = dataclasses.replace(inside, correct=self._correct(len(views[ID])))
                    yield from [self._row(variant, row, kept) for row in self._benchmark_rows(pools)]
                except (Exception, SystemExit) as error:
                    problems |= dict.fromkeys(together, Problem.of(error))
            for name in self.benchmark.ood or ("",):
                if name in problems:
                    yield self._failed(variant, name, problems[name], kept)

    def _settle(self, planned: PlannedSet) -> Kept:
        """The good scores of a set; the file is written anew if it holds others too, so that equal runs end equal."""
        file = self.files[planned.name]
        kept = file.kept(self.tokens[planned.name])
        wanted = [c for v in self.runnable for c in self._names(v, planned.name) if c in kept.columns]
        if not wanted:
            file.remove()
            return Kept()
        if file.columns() != wanted:
            columns = {column: kept.columns[column] for column in wanted}
            file.write(kept.ids, columns, self.tokens[planned.name], kept.skipped, kept.labels)
        return kept

    def _problems(
        self,
        variant: Variant,
        outcomes: Mapping[tuple[str, str], dict[str, Any] | None],
        kept: Mapping[str, Kept],
        stopped: StoreError | None,
    ) -> dict[str, Problem]:
        """Why OOD sets have no result for a variant, by set."""
        everywhere = self.plan.problem(self.benchmark, self.backbone, variant)
        everywhere = everywhere or self._set_problem(self.benchmark.test, outcomes)
        if variant.learns(self.backbone):
            everywhere = everywhere or self._set_problem(self.benchmark.train, outcomes)
        failures = (outcomes.get((SCORE, "")) or {}).get("failures", {}).get(variant.column, {})
        inside = kept.get(ID, Kept()).columns
        if everywhere is None and not any(name in inside for name in self._names(variant, ID)):
            known = failures.get("*") or failures.get(ID)
            everywhere = Problem(**known) if known else None if variant.of_ood else _unfinished(stopped)
        if everywhere is not None:
            return dict.fromkeys(self.benchmark.ood or ("",), everywhere)
        found = {}
        for name, planned in self.benchmark.ood.items():
            problem = self._set_problem(planned, outcomes)
            there = variant.column in kept.get(name, Kept()).columns and variant.id_column(name) in inside
            if problem is None and not there:
                known = failures.get(name)
                problem = Problem(**known) if known else _unfinished(stopped)
            if problem is not None:
                found[name] = problem
        return found

    def _set_problem(
        self, planned: PlannedSet | None, outcomes: Mapping[tuple[str, str], dict[str, Any] | None]
    ) -> Problem | None:
        if planned is None:
            return None
        if planned.missing:
            return Problem("failed", "; ".join(planned.missing))
        problem = (outcomes.get((EXTRACT, planned.name)) or {}).get("problem")
        return Problem(**problem) if problem else None

    def _benchmark_rows(self, pools: Mapping[str, Pool]) -> list[Row]:
        assert self.benchmark.benchmark is not None
        others = {name: pool for name, pool in pools.items() if name != ID}
        return list(self.benchmark.benchmark.rows(pools[ID], others))

    def _correct(self, count: int) -> np.ndarray | None:
        """Which of the ID test pictures are classified rightly; None where they have no labels."""
        wrong = self._outcome(self.benchmark.test).get("wrong")
        if wrong is None:
            return None
        correct = np.ones(count, dtype=bool)
        correct[wrong] = False
        return correct

    def _row(self, variant: Variant, row: Row, kept: Mapping[str, Kept]) -> dict[str, Any]:
        metrics = {name: _number(name, value) for name, value in dataclasses.asdict(row.metrics).items()}
        data = {
            **self._identity(variant, row.ood, kept),
            "group": row.group,
            "subset": row.subset,
            "aggregation": row.aggregation,
            "status": "ok",
            **metrics,
            "scores": self.files[row.ood].name if row.ood in self.files else None,
            "id_column": variant.id_column(row.ood) if variant.of_ood else None,
            "details": json.dumps(row.details, sort_keys=True, allow_nan=False) if row.details else None,
        }
        return results.complete(data)

    def _failed(self, variant: Variant, ood: str, problem: Problem, kept: Mapping[str, Kept]) -> dict[str, Any]:
        group = self.benchmark.ood[ood].group if ood in self.benchmark.ood else None
        data = {
            **self._identity(variant, ood, kept),
            "group": group,
            "subset": "all",
            "aggregation": "pooled",
            "status": problem.status,
            "reason": problem.reason,
            "publishable": False,
        }
        return results.complete(data)

    def _identity(self, variant: Variant, ood: str, kept: Mapping[str, Kept]) -> dict[str, Any]:
        """Everything about a row but its numbers."""
        train = self.benchmark.train if variant.learns(self.backbone) else None
        outside = [self.benchmark.ood[ood]] if ood in self.benchmark.ood else list(self.benchmark.ood.values())
        read = [s for s in (self.benchmark.test, train, *outside) if s is not None and s.view is not None]
        skipped = sum(len(kept[s.name].skipped) for s in read if s.name in kept) + len(self._skipped(train))
        canonical = all(s.view.canonical for s in read if s.view is not None)
        ood_digests = [_view_digest(s) for s in outside]
        gate = self._outcome(self.benchmark.test).get("gate", {})
        return {
            "benchmark": self.benchmark.name,
            "backbone": self.backbone.name,
            "backbone_key": self.backbone.key or None,
            "detector": variant.request.name,
            "column": variant.column,
            "distribution": variant.distribution or None,
            "version": variant.version or None,
            "parameters": variant.parameters,
            "vocabulary": None if variant.vocabulary is None else str(variant.vocabulary),
            "vocabulary_digest": kept.get(ID, Kept()).labels.get(variant.id_column(ood), {}).get("digest"),
            "replicate": variant.replicate,
            "ood": ood,
            "protocol": getattr(self.benchmark.benchmark, "protocol", None),
            "id_digest": _view_digest(self.benchmark.test),
            "train_digest": _view_digest(train),
            "ood_digest": ood_digests[0] if len(ood_digests) == 1 else digest(ood_digests),
            "top1": gate.get("top1"),
            "canonical": canonical,
            "skipped": skipped,
            "publishable": canonical and not skipped and not (train is not None and self.benchmark.seen),
            "record": RECORD,
        }

    def _outcome(self, planned: PlannedSet | None) -> dict[str, Any]:
        """What extracting a set came to, now or in an earlier run; read once, after the tasks are done."""
        if planned is None or planned.view is None:
            return {}
        if planned.name not in self.found:
            self.found[planned.name] = tasks.read_outcome(self._extract(planned)) or {}
        return self.found[planned.name]

    def _skipped(self, planned: PlannedSet | None) -> list[list[str]]:
        """Pictures that were left out, each with its reason."""
        return list(self._outcome(planned).get("skipped", ()))

    def _labels(self) -> dict[str, Any]:
        """The record of every list of negative labels, by vocabulary, replicate and OOD set."""
        file = self.files.get(ID)
        labels = {} if file is None else file.kept(self.tokens[ID]).labels
        found = {}
        for variant in self.runnable:
            for column, ood in self._names(variant, ID).items():
                if column in labels:
                    parts = [
                        str(variant.vocabulary),
                        *([f"#{variant.replicate}"] if variant.replicate is not None else []),
                    ]
                    found[" · ".join(parts) + (f" @ {ood}" if ood else "")] = labels[column]
        return found

    def summary(self) -> dict[str, Any]:
        """What the record says of the group."""
        outcome = self._outcome(self.benchmark.test)
        return {
            "benchmark": self.benchmark.name,
            "backbone": self.backbone.name,
            "gate": outcome.get("gate"),
            "problem": outcome.get("problem"),
            "seen": self.benchmark.seen,
            "vocabularies": self._labels(),
            "sets": [
                {
                    "name": s.name,
                    "group": s.group,
                    "pictures": None if s.view is None else len(s.view),
                    "missing": s.missing,
                    "skipped": self._skipped(s),
                }
                for s in self.benchmark.sets
            ],
        }


# -- parts of run --------------------------------------------------------------------------------------------------


def _teller(hooks: Any) -> Callable[[str, Mapping[str, Any]], None]:
    listening = bool(hooks.fiood_run_event.get_hookimpls())

    def tell(name: str, data: Mapping[str, Any]) -> None:
        if listening:
            hookspecs.collect(hooks.fiood_run_event, event=RunEvent(name, data))

    return tell


def _say_outcome(task: Task, say: Callable[[str], None]) -> None:
    outcome = tasks.read_outcome(task) or {}
    if "problem" in outcome:
        say(f"{task['shard']}: {outcome['problem']['reason']}")
    elif task["kind"] == EXTRACT:
        skipped = f", {len(outcome['skipped'])} skipped" if outcome["skipped"] else ""
        say(f"{task['shard']}: {outcome['count']} pictures{skipped}")
        message = outcome.get("gate", {}).get("message")
        if message:
            say(f"{task['shard']}: {message}")


def _unfinished(stopped: StoreError | None) -> Problem:
    return Problem("failed", f"the run stopped: {stopped}" if stopped else "its task left no outcome; run again")


def _without(view: View, skipped: Sequence[Sequence[str]]) -> View:
    """A view without the pictures that were skipped."""
    if not skipped:
        return view
    gone = {image_id for image_id, _ in skipped}
    return view.take([row for row, image_id in enumerate(view.ids) if image_id not in gone])


def _pool(kept: Kept, view: View, column: str) -> Pool:
    from fiood_core.benchmark import Pool

    if tuple(view.ids) != kept.ids:
        raise ResultError(f"the scores of {column!r} are those of {len(kept.ids)} pictures, not of {len(view)}")
    return Pool(kept.columns[column], view)


def _number(name: str, value: Any) -> Any:
    if value is None or name.startswith("n_"):
        return value
    if not math.isfinite(value):
        raise ResultError(f"{name} is {value}; a metric must be finite or null")
    return float(value)


def _view_digest(planned: PlannedSet | None) -> str | None:
    return None if planned is None else planned.digest or None


def _write(
    directory: Path, plan: Plan, rows: Sequence[dict[str, Any]], record: dict[str, Any], groups: Sequence[_Group]
) -> None:
    results.write_rows(directory, rows)
    results.write_atomic(directory / "suite.yaml", plan.suite.text().encode())
    results.write_json(directory / RECORD, record)
    known = {directory / file.name for group in groups for file in group.files.values()}
    for path in (directory / "scores").rglob("*.parquet"):
        if path not in known:
            path.unlink()


def _report(found: results.Results, directory: Path) -> None:
    from fiood_core.report import write_report

    write_report(found, directory / "report.html")


def _record(plan: Plan, groups: Sequence[_Group], started: datetime, todo: Sequence[Task]) -> dict[str, Any]:
    """Versions, hardware, times, seeds and commit: what differs between two equal runs stands only here."""
    finished = datetime.now(timezone.utc)
    return {
        "suite": plan.suite.name,
        "description": plan.suite.description,
        "started": started.isoformat(timespec="seconds"),
        "finished": finished.isoformat(timespec="seconds"),
        "seconds": round((finished - started).total_seconds(), 3),
        "tasks": len(todo),
        "left_out": plan.left_out,
        "groups": [group.summary() for group in groups],
        "settings": plan.settings.data(),
        "images": dict(image_policy(plan.settings).record),
        "fiood": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "versions": _versions(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "hardware": _hardware(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _hardware() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch else []
    return {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "gpus": gpus}


def _commit() -> str | None:
    """The commit that the core runs from, if it runs from a checkout."""
    place = Path(__file__).parent.parent
    if not (place / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


__all__ = ["execute", "run"]
