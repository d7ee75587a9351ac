"""What a reader compares: labelled rows, one table a benchmark, means over groups, the best detector of a backbone.

Nothing here is stored in the results; means and bests are views, with their rules stated beside them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fiood_core.results import method_of, over_replicates

MEAN_RULE = (
    "A group's mean is over its OOD sets, each counted once: by its value over all its pictures (pooled where there is "
    "such a row, else the mean over its classes), or, where there is none, by the mean over its subsets. "
    "Replicates are averaged first, as the mean of the metric with the standard deviation over them."
)
BEST_RULE = (
    "Highest mean AUROC, unrounded; of equals the one with the lower mean FPR@95; of those the first by name. "
    "A detector that lacks a set of the group on that backbone is not ranked."
)
EVERY_GROUP = "all sets"

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a benchmark's table: an OOD set, or one of its subsets."""

    group: str
    ood: str
    subset: str
    aggregation: str


@dataclass(frozen=True)
class Group:
    """Columns under one heading.

    Attributes
    ----------
    name : str
    columns : sequence of Column
        What its mean is over.
    shown : sequence of Column
        Those that stand under it; none for the group of all sets.
    """

    name: str
    columns: Sequence[Column]
    shown: Sequence[Column]

    @property
    def sets(self) -> int:
        """How many OOD sets it has."""
        return len({column.ood for column in self.columns})

    @property
    def has_mean(self) -> bool:
        """Whether its mean is more than a repetition of its only set."""
        return self.sets > 1 or not self.shown


@dataclass(frozen=True)
class Value:
    """A metric pair in a table's cell, with standard errors; over replicates, with their standard deviation.

    A mean over sets has neither.
    """

    auroc: float
    fpr95: float
    auroc_stderr: float | None = None
    fpr95_stderr: float | None = None


@dataclass(frozen=True)
class Best:
    """The best detector of a backbone on a group of OOD sets, its lead in mean AUROC, and who could not be ranked."""

    method: str
    value: Value
    next_method: str | None
    lead: float | None
    not_ranked: tuple[str, ...]


class Views:
    """Rows of a results table, arranged to be compared.

    Parameters
    ----------
    rows : iterable of mappings
        Rows with metrics; see :data:`fiood_core.results.SCHEMA`.

    Attributes
    ----------
    rows : list of mappings
    methods : list of str
        For each row, its detector and vocabulary.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)
        self.methods = [method_of(row) for row in self.rows]

    @cached_property
    def tables(self) -> dict[str, dict[str, dict[str, dict[Column, Value]]]]:
        """Benchmark, backbone, method, column: the value, averaged over replicates."""
        found: dict[tuple[str, str, str, Column], list[Row]] = defaultdict(list)
        for row, method in zip(self.rows, self.methods, strict=True):
            column = Column(row["group"], row["ood"], row["subset"], row["aggregation"])
            found[row["benchmark"], row["backbone"], method, column].append(row)
        tables: dict[str, dict[str, dict[str, dict[Column, Value]]]] = {}
        for (benchmark, backbone, method, column), rows in found.items():
            cells = tables.setdefault(benchmark, {}).setdefault(backbone, {}).setdefault(method, {})
            cells[column] = _value(rows)
        return tables

    def top1(self, benchmark: str, backbone: str) -> float | None:
        """Accuracy on the ID test set, where its pictures are labelled."""
        own = (row["top1"] for row in self.rows if (row["benchmark"], row["backbone"]) == (benchmark, backbone))
        return next((value for value in own if value is not None), None)

    def columns(self, benchmark: str) -> list[Column]:
        """The columns that are shown side by side, by group: a set over all its pictures, or else its subsets."""
        every = [c for methods in self.tables[benchmark].values() for cells in methods.values() for c in cells]
        whole = {(column.group, column.ood) for column in every if column.subset == "all"}
        shown = [c for c in dict.fromkeys(every) if c.subset == "all" or (c.group, c.ood) not in whole]
        return sorted(shown, key=_group_order([column.group for column in shown]))

    def mean(self, cells: Mapping[Column, Value], columns: Sequence[Column]) -> Value | None:
        """The mean over the OOD sets of some columns by :data:`MEAN_RULE`; None where one is missing."""
        sets: dict[tuple[str, str], list[Column]] = defaultdict(list)
        for column in columns:
            sets[column.group, column.ood].append(column)
        if not sets or any(column not in cells for column in columns):
            return None
        counted = [_mean([cells[column] for column in _counting(members)]) for members in sets.values()]
        return _mean(counted)

    def groups(self, benchmark: str) -> list[Group]:
        """The groups of a benchmark; where there are several, :data:`EVERY_GROUP` comes last."""
        members: dict[str, list[Column]] = {}
        columns = self.columns(benchmark)
        for column in columns:
            members.setdefault(column.group, []).append(column)
        groups = [Group(name, own, own) for name, own in members.items()]
        return [*groups, Group(EVERY_GROUP, columns, ())] if len(groups) > 1 else groups

    def best(self, benchmark: str, backbone: str, group: Group) -> Best | None:
        """The best detector of a backbone on a group, by :data:`BEST_RULE`; None where no detector has every set."""
        methods = self.tables[benchmark][backbone]
        means = {method: self.mean(cells, group.columns) for method, cells in methods.items()}
        ranked = sorted(
            ((method, value) for method, value in means.items() if value is not None),
            key=lambda item: (-item[1].auroc, item[1].fpr95, item[0]),
        )
        if not ranked:
            return None
        (method, value), following = ranked[0], ranked[1:2]
        return Best(
            method,
            value,
            next_method=following[0][0] if following else None,
            lead=value.auroc - following[0][1].auroc if following else None,
            not_ranked=tuple(sorted(method for method, mean in means.items() if mean is None)),
        )


def _counting(columns: list[Column]) -> list[Column]:
    """Of the columns of one OOD set, those that stand for it in a mean."""
    pooled = [column for column in columns if column.subset == "all" and column.aggregation == "pooled"]
    return pooled or columns


def _value(rows: Sequence[Row]) -> Value:
    (row,) = over_replicates(rows)
    spread = "stderr" if row["replicates"] == 1 else "std"
    return Value(row["auroc"], row["fpr95"], row[f"auroc_{spread}"], row[f"fpr95_{spread}"])


def _mean(values: Sequence[Value]) -> Value:
    if len(values) == 1:
        return values[0]
    return Value(sum(v.auroc for v in values) / len(values), sum(v.fpr95 for v in values) / len(values))


def _group_order(groups: Sequence[str]) -> Callable[[Column], int]:
    """Near before far before the others, those as they come."""
    known = [*(g for g in ("near", "far") if g in groups), *dict.fromkeys(groups)]
    return lambda column: known.index(column.group)
