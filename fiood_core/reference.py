"""Published results that a benchmark can be set beside.

A benchmark names the file in which a paper published its results (:attr:`fiood_core.benchmark.Benchmark.published`) and
reads it into :class:`PublishedRow` objects; fetching, lookup, comparison and ranking are here.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fiood_core import registry, settings
from fiood_core.benchmark import Benchmark
from fiood_core.download import fetch as download
from fiood_core.errors import DataError, ResultError
from fiood_core.results import Results


@dataclass(frozen=True)
class PublishedRow:
    """One published number.

    Attributes
    ----------
    model, detector : str
        The paper's name of the model, and fiood's of the detector.
    subset : str
        Which row of the benchmark, e.g. ``"level-5"``.
    auroc : float
        A fraction.
    """

    model: str
    detector: str
    subset: str
    auroc: float


@dataclass(frozen=True)
class Comparison:
    """A result beside what is published.

    Attributes
    ----------
    backbone, detector, subset : str
    ours : float
        AUROC of the run.
    published : float or None
        AUROC of the published model of the same name; None where there is none.
    rank, of : int
        Place of the run's AUROC among the published models with the same detector, 1 the best, itself counted in.
    """

    backbone: str
    detector: str
    subset: str
    ours: float
    published: float | None
    rank: int
    of: int


def fetch(name: str, *, url: str | None = None, offline: bool = False) -> Path:
    """Where the published results of a benchmark lie, fetched and checked if they are not there yet.

    Parameters
    ----------
    name : str
        A benchmark.
    url : str, optional
        A mirror to take instead of the official address; the digest decides all the same.
    offline : bool

    Raises
    ------
    DataError
        The benchmark has no published results, or they could not be had, or are not the published file.
    """
    remote = _benchmark(name).published
    if remote is None:
        raise DataError(f"benchmark {name!r} names no published results")
    if url is not None:
        remote = dataclasses.replace(remote, urls=(url,))
    return download(remote, settings.home() / "reference", offline=offline)


def published(name: str, *, offline: bool = True) -> list[PublishedRow]:
    """The published rows of a benchmark.

    Raises
    ------
    DataError
        They are not on this machine (and ``offline`` holds), or the file cannot be read.
    """
    return list(_benchmark(name).read_published(fetch(name, offline=offline)))


def published_on(name: str) -> str:
    """What the published results of a benchmark were measured on."""
    return _benchmark(name).published_on


def compare(name: str, results: Results, models: Mapping[str, str] | None = None) -> list[Comparison]:
    """A run's rows of a benchmark beside the published ones.

    Parameters
    ----------
    name : str
        The benchmark.
    results : Results
    models : mapping from backbone to the published model's name, optional
        By default the backbone's own name.

    Raises
    ------
    ResultError
        The run has no row of the benchmark with a detector and subset that is published.
    """
    table: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in published(name):
        table[row.detector, row.subset][row.model] = row.auroc
    of_benchmark = [row for row in results.rows if str(row["benchmark"]).partition("(")[0] == name]
    found = list(_compared(table, of_benchmark, models or {}))
    if not found:
        raise ResultError(
            f"{results.directory} has no row of {name!r} that is published; published are the detectors "
            f"{', '.join(sorted({detector for detector, _ in table}))}"
        )
    return found


def _compared(
    table: Mapping[tuple[str, str], Mapping[str, float]],
    rows: Sequence[Mapping[str, object]],
    models: Mapping[str, str],
) -> Iterator[Comparison]:
    for row in rows:
        others = table.get((str(row["detector"]), str(row["subset"])))
        if not others:
            continue
        backbone, ours = str(row["backbone"]), float(str(row["auroc"]))
        name = models.get(backbone, backbone)
        better = sum(auroc > ours for model, auroc in others.items() if model != name)
        of = len(others) + (name not in others)
        yield Comparison(backbone, str(row["column"]), str(row["subset"]), ours, others.get(name), 1 + better, of)


def _benchmark(name: str) -> type[Benchmark]:
    found: type[Benchmark] = registry.load("benchmark", name)
    return found
