"""Does a benchmark behave?  Checked with made-up scores over its own views, where those can be read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fiood_core.benchmark import Benchmark, OODSet, Pool, Row
from fiood_core.dataset import Dataset, View
from fiood_core.errors import ConformanceError
from fiood_core.metrics import Metrics
from fiood_core.registry import API_WINDOW
from fiood_core.testing.outcome import ConformanceReport, Skipped, Subject, check, require

FRACTIONS = ("fpr95", "auroc", "aupr_in", "aupr_out")


def check_benchmark(target: Any, parameters: Mapping[str, Any] | None = None) -> ConformanceReport:
    """Run every conformance check on a benchmark.

    Parameters
    ----------
    target : str, class, factory or instance
    parameters : mapping, optional
        For a name, class or factory.

    Raises
    ------
    ConformanceFailure
        One or more checks failed; the message has a line for each.
    """
    return check("benchmark", target, parameters, BenchmarkSubject, CHECKS)


class BenchmarkSubject(Subject[Benchmark]):
    """A way to make the benchmark, and pools of made-up scores for its views."""

    @cached_property
    def benchmark(self) -> Benchmark:
        """An instance."""
        return self.make()

    @cached_property
    def views(self) -> tuple[View, dict[str, View]]:
        """The ID view and the OOD views; skips the check where pictures are missing."""
        sets = {"ID": self.benchmark.id_test, **{name: s.dataset for name, s in self.benchmark.ood.items()}}
        missing = [sentence for dataset in sets.values() for sentence in dataset.missing()]
        if missing:
            raise Skipped(f"{len(missing)} things are not here, the first: {missing[0]}")
        found = {name: dataset.view() for name, dataset in sets.items()}
        return found.pop("ID"), found

    def pools(self, gap: float) -> tuple[Pool, dict[str, Pool]]:
        """Normal scores, those of the OOD sets lower by ``gap``."""
        rng = np.random.default_rng(0)
        inside, outside = self.views
        made = {name: Pool(rng.standard_normal(len(view)) - gap, view) for name, view in outside.items()}
        return Pool(rng.standard_normal(len(inside)), inside), made


def sets(subject: BenchmarkSubject) -> None:
    """ID sets are datasets, OOD sets have names and groups."""
    benchmark = subject.benchmark
    require(isinstance(benchmark.id_test, Dataset), f"id_test is a {type(benchmark.id_test).__name__}, no Dataset")
    train = benchmark.id_train
    require(train is None or isinstance(train, Dataset), f"id_train is a {type(train).__name__}, no Dataset or None")
    require(len(benchmark.ood) > 0, "ood is empty; a benchmark has at least one OOD set")
    for name, ood in benchmark.ood.items():
        require(
            isinstance(ood, OODSet) and isinstance(ood.dataset, Dataset),
            f"ood[{name!r}] is a {type(ood).__name__}; it must be an OODSet(dataset, group)",
        )
        require(bool(name.strip()) and bool(ood.group.strip()), f"OOD set {name!r} has no name or no group")


def declarations(subject: BenchmarkSubject) -> None:
    """Protocol and API version are stated, and two instances agree on the sets."""
    benchmark = subject.benchmark
    require(bool(benchmark.protocol), "protocol is empty; name the conventions that the metrics follow")
    low, high = API_WINDOW
    require(low <= benchmark.api_version <= high, f"api_version {benchmark.api_version} is outside {low} to {high}")
    again = {name: s.group for name, s in subject.make().ood.items()}
    require(
        list(again.items()) == [(name, s.group) for name, s in benchmark.ood.items()],
        "two instances list other OOD sets, or in another order",
    )


def views(subject: BenchmarkSubject) -> None:
    """ID pictures have targets, and no picture is both ID and OOD."""
    inside, outside = subject.views
    require(inside.targets is not None, "the ID test view has no targets, so accuracy cannot be checked; label it")
    for name, view in outside.items():
        both = set(inside.ids) & set(view.ids) if view.source == inside.source else set()
        require(not both, f"{len(both)} pictures of {name!r} are ID test pictures too, {sorted(both)[:2]} for example")


def rows(subject: BenchmarkSubject) -> None:
    """Rows have finite metrics, known sets and no doubles."""
    for gap in (0.0, 1.0):
        inside, pools = subject.pools(gap)
        found = list(subject.benchmark.rows(inside, pools))
        require(bool(found), "rows() gave no row")
        for row in found:
            require(isinstance(row, Row) and isinstance(row.metrics, Metrics), f"rows() gave {row!r}, no Row")
            values = {name: getattr(row.metrics, name) for name in FRACTIONS}
            wrong = {name: v for name, v in values.items() if not (math.isfinite(v) and 0 <= v <= 1)}
            require(not wrong, f"row {row.ood!r}/{row.subset!r} has {wrong}; metrics are fractions in [0, 1]")
        keys = [(row.ood, row.subset, row.aggregation, row.group) for row in found]
        twice = next((key for i, key in enumerate(keys) if key in keys[:i]), None)
        require(twice is None, f"rows() gives {twice} twice; a row is known by set, subset, aggregation and group")
        lost = set(pools) - {row.ood for row in found}
        require(not lost, f"rows() leaves out the OOD sets {sorted(lost)}")


def direction(subject: BenchmarkSubject) -> None:
    """Scores that separate every set give AUROC 1 and FPR@95 0."""
    for row in subject.benchmark.rows(*subject.pools(gap=100.0)):
        require(
            row.metrics.auroc == 1 and row.metrics.fpr95 == 0,
            f"every ID score exceeds every OOD score, but row {row.ood!r}/{row.subset!r} has AUROC "
            f"{row.metrics.auroc:.3f} and FPR@95 {row.metrics.fpr95:.3f}; pass ID scores first to evaluate",
        )


def repeatable(subject: BenchmarkSubject) -> None:
    """Equal scores give equal rows, and the scores are left alone."""
    inside, pools = subject.pools(1.0)
    before = {name: pool.scores.copy() for name, pool in {**pools, "": inside}.items()}
    try:
        first = list(subject.benchmark.rows(inside, pools))
    except ValueError as error:
        raise ConformanceError(f"rows() raised {error}") from error
    changed = [name for name, pool in {**pools, "": inside}.items() if not np.array_equal(pool.scores, before[name])]
    require(not changed, f"rows() changed the scores of {', '.join(n or 'the ID set' for n in changed)}; sort a copy")
    require(first == list(subject.make().rows(inside, pools)), "equal scores give other rows on a second call")


CHECKS = {
    "sets": sets,
    "declarations": declarations,
    "views": views,
    "rows": rows,
    "direction": direction,
    "repeatable": repeatable,
}
"""Every check of a benchmark, in order, by the name that reports show."""
