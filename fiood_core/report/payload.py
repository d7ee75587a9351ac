"""What the page's script draws from: every row, the tables and the curves, as compact JSON.

Columns of integers are packed (:func:`fiood_core.report.curves.pack`); a fraction is an integer in units of 1e-8, plus
one so that 0 can mean "none".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fiood_core.errors import ResultError
from fiood_core.report.curves import SHARES, Inside, pack, pack_rising
from fiood_core.report.views import Column, Group, Row, Value, Views

FRACTIONS = ("auroc", "fpr95", "aupr_in", "aupr_out", "auroc_stderr", "fpr95_stderr")
COUNTS = ("replicate", "n_id", "n_ood")
LABELS = ("benchmark", "backbone", "group", "ood", "subset", "aggregation")

AT95 = len(SHARES) - 1 - int(np.flatnonzero(SHARES == 0.05)[0])
"""Place of the 95 % point in a curve."""


def payload(views: Views, directory: Path) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The data of a report, and the score files that could not be read, each with the reason."""
    names = _Names()
    rows = {
        "method": names.pack("method", views.methods),
        **{label: names.pack(label, [row[label] for row in views.rows]) for label in LABELS},
        **{count: pack([row[count] or 0 for row in views.rows]) for count in COUNTS},
        **{name: fractions(row[name] for row in views.rows) for name in FRACTIONS},
    }
    tables = [_table(views, benchmark, names) for benchmark in views.tables]
    plots, unread = _plots(views, directory, names)
    data = {
        "names": names.lists,
        "fractions": FRACTIONS,
        "rows": rows,
        "tables": tables,
        "plots": plots.data,
        "insides": plots.insides,
        "at95": AT95,
        "points": len(SHARES),
    }
    return data, unread


def fractions(values: Iterable[float | None]) -> str:
    """Fractions in [0, 1] packed at a resolution of 1e-8."""
    return pack([0 if value is None else _units(value) + 1 for value in values])


def _units(fraction: float) -> int:
    """A fraction in units of 1e-8; one half way between two shown percentages goes to the side that Python prints."""
    units = round(fraction * 1e8)
    if units % 10_000 == 5_000:
        units += 1 if float(f"{100 * fraction:.2f}") * 1e6 > units else -1
    return units


class _Names:
    """Labels, each stored once and referred to by number."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {kind: {} for kind in ("method", *LABELS)}

    def number(self, kind: str, label: str) -> int:
        known = self._known[kind]
        return known.setdefault(label, len(known))

    def pack(self, kind: str, labels: Iterable[str]) -> str:
        return pack([self.number(kind, label) for label in labels])

    @property
    def lists(self) -> dict[str, list[str]]:
        return {kind: list(known) for kind, known in self._known.items()}


def _table(views: Views, benchmark: str, names: _Names) -> dict[str, Any]:
    """A benchmark's comparison: for each group the mean and its columns, for each backbone and method the values."""
    groups = views.groups(benchmark)
    heads: list[dict[str, Any]] = []
    for group in groups:
        labels: list[tuple[str, int | None]] = [("mean", None)] if group.has_mean else []
        labels += [(_head(column), names.number("ood", column.ood)) for column in group.shown]
        heads += [{"label": label, "ood": ood, "first": i == 0} for i, (label, ood) in enumerate(labels)]
    return {
        "benchmark": names.number("benchmark", benchmark),
        "spans": [{"group": group.name, "span": len(group.shown) + group.has_mean} for group in groups],
        "heads": heads,
        "backbones": [
            {
                "backbone": names.number("backbone", backbone),
                "methods": [
                    [names.number("method", method), _line(views, cells, groups)] for method, cells in methods.items()
                ],
            }
            for backbone, methods in views.tables[benchmark].items()
        ],
    }


def _head(column: Column) -> str:
    label = column.ood if column.subset == "all" else f"{column.ood}: {column.subset}"
    return label if column.aggregation == "pooled" else f"{label} ({column.aggregation})"


def _line(views: Views, cells: Mapping[Column, Value], groups: Sequence[Group]) -> str:
    """Values of a method in the order of the heads that :func:`_table` makes, four fractions each."""
    values: list[Value | None] = []
    for group in groups:
        values += [views.mean(cells, group.columns)] if group.has_mean else []
        values += [cells.get(column) for column in group.shown]
    quadruples = (
        (None,) * 4 if value is None else (value.auroc, value.auroc_stderr, value.fpr95, value.fpr95_stderr)
        for value in values
    )
    return fractions(number for quadruple in quadruples for number in quadruple)


class _Plots:
    """Curves of every pair of ID and OOD scores, each read once."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._numbers: dict[str, list[int]] = defaultdict(list)
        self._texts: dict[str, list[Any]] = {name: [] for name in ("low", "high", "in_counts", "out_counts", "curve")}
        self.insides: list[dict[str, Any]] = []

    def add(self, labels: Mapping[str, str], replicate: int, number: int, inside: Inside, outside: np.ndarray) -> None:
        histogram, above = inside.against(outside)
        for kind, label in labels.items():
            self._numbers[kind].append(self._names.number(kind, label))
        for kind, value in (
            ("replicate", replicate),
            ("inside", number),
            ("n_ood", len(outside)),
            ("beyond", histogram.beyond),
        ):
            self._numbers[kind].append(value)
        self._texts["low"].append(_short(histogram.low))
        self._texts["high"].append(_short(histogram.high))
        self._texts["in_counts"].append(pack(histogram.inside))
        self._texts["out_counts"].append(pack(histogram.outside))
        self._texts["curve"].append(pack_rising(above))

    def inside(self, inside: Inside) -> int:
        """Keep an ID set's curve; its number."""
        threshold = float(inside.thresholds[AT95])
        self.insides.append({"size": inside.size, "threshold": _short(threshold), "curve": pack_rising(inside.curve)})
        return len(self.insides) - 1

    @property
    def data(self) -> dict[str, Any]:
        kinds = ("benchmark", "backbone", "method", "ood", "replicate", "inside", "n_ood", "beyond")
        return {**{kind: pack(self._numbers[kind]) for kind in kinds}, **self._texts}


def _short(value: float) -> float:
    """Seven significant digits are more than a drawing shows."""
    return float(f"{value:.7g}")


def _plots(views: Views, directory: Path, names: _Names) -> tuple[_Plots, list[tuple[str, str]]]:
    """Curves of the scores behind the rows, file by file: a file holds a column for each detector."""
    plots = _Plots(names)
    unread: list[tuple[str, str]] = []
    folders: dict[Path, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for number, row in enumerate(views.rows):
        if row["scores"]:
            path = directory / row["scores"]
            folders[path.parent][path.name].setdefault(row["column"], number)
    for folder, files in folders.items():
        wanted = list(dict.fromkeys(_id_column(views.rows[n]) for columns in files.values() for n in columns.values()))
        try:
            scores = _read(directory, folder / "id.parquet", wanted)
        except ResultError as error:
            unread += [(f"{folder.name}/{name}", str(error)) for name in files]
            continue
        insides = {column: Inside(values) for column, values in scores.items()}
        numbers = {column: plots.inside(inside) for column, inside in insides.items()}
        for name, columns in files.items():
            try:
                outside = _read(directory, folder / name, list(columns))
            except ResultError as error:
                unread.append((f"{folder.name}/{name}", str(error)))
                continue
            for column, number in columns.items():
                row = views.rows[number]
                labels = {name: row[name] for name in ("benchmark", "backbone", "ood")}
                labels["method"] = views.methods[number]
                inside = _id_column(row)
                plots.add(labels, row["replicate"] or 0, numbers[inside], insides[inside], outside[column])
    return plots, unread


def _id_column(row: Row) -> str:
    """The column of the ID test set's scores that a row's are compared with."""
    return str(row.get("id_column") or row["column"])


def _read(directory: Path, path: Path, columns: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns of a file of scores, without the ids."""
    if not path.resolve().is_relative_to(directory.resolve()):
        raise ResultError(f"{path.name} lies outside the results")
    shown = path.relative_to(directory)
    try:
        table = pq.read_table(path, columns=list(columns), partitioning=None)
        found = {column: table.column(column).to_numpy().astype(np.float64) for column in columns}
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise ResultError(f"{shown} cannot be read: {type(error).__name__}") from error
    for column, values in found.items():
        if not len(values) or not np.isfinite(values).all():
            raise ResultError(f"{shown} holds no finite scores of {column!r}")
    return found
