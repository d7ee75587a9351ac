"""What a benchmark of graded levels shows: curves over the levels, the ranking at the hardest, how far levels agree.

Any benchmark whose rows carry ``details`` with a ``level`` is drawn; ``percentile``, ``severity`` and the numbers on
the ID set (``id_top1``, ``id_auroc``, ``id_aurc``, ``id_risk``) are drawn where they are.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup

from fiood_core.report.charts import COLOURS, Curve, bars, line_chart, matrix
from fiood_core.results import method_of

RANKED = 20
"""Bars of a ranking; the table and the file have all."""

ID_NUMBERS = ("id_top1", "id_auroc", "id_aurc", "id_mean_confidence")


@dataclass(frozen=True)
class Pair:
    """A backbone with a detector over all levels, averaged over replicates.

    Attributes
    ----------
    backbone, method : str
    auroc, fpr95, percentile, severity : tuple of float
        One a level.
    inside : mapping
        Numbers on the ID set that the rows carry, of :data:`ID_NUMBERS`.
    risk : tuple of float
        Error on the ID set at evenly spaced coverages up to 1; empty where it is not labelled.
    """

    backbone: str
    method: str
    auroc: tuple[float, ...]
    fpr95: tuple[float, ...]
    percentile: tuple[float, ...]
    severity: tuple[float, ...]
    inside: Mapping[str, float]
    risk: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.backbone} · {self.method}"


@dataclass(frozen=True)
class Chart:
    """A picture with what it is called: a short name for its file, a title, and how to read it."""

    name: str
    title: str
    note: str
    svg: Markup


class Graded:
    """The pairs of one benchmark and OOD set, the best at the last level first.

    Parameters
    ----------
    benchmark, ood : str
    pairs : sequence of Pair
        All over the same levels.
    """

    def __init__(self, benchmark: str, ood: str, pairs: Sequence[Pair]) -> None:
        self.benchmark, self.ood = benchmark, ood
        self.pairs = sorted(pairs, key=lambda pair: (-pair.auroc[-1], pair.fpr95[-1], pair.name))
        self.last = len(self.pairs[0].auroc) - 1

    @cached_property
    def correlations(self) -> np.ndarray | None:
        """Spearman's correlation (levels, levels) of the ranking at each level with that at each other.

        None for fewer than three pairs, or where all of them are equal at some level.
        """
        if len(self.pairs) < 3:
            return None
        ranks = np.stack([_ranks(level) for level in np.array([pair.auroc for pair in self.pairs]).T])
        if (ranks.std(axis=1) == 0).any():
            return None
        found: np.ndarray = np.corrcoef(ranks)
        return found

    @property
    def charts(self) -> list[Chart]:
        """Everything that can be drawn."""
        levels, loud = range(self.last + 1), self._loud()
        by_level = [Curve(p.name, p.auroc, p in loud) for p in self.pairs]
        found = [Chart("levels", "AUROC by level", "0 is the easiest.", line_chart(by_level, levels, "level", "AUROC"))]
        rising = [(pair, _unit(pair.severity)) for pair in self.pairs if pair.severity and pair.percentile]
        if rising:
            chart = line_chart(
                [Curve(pair.name, values, pair in loud) for pair, values in rising],
                [100 * share for share in rising[0][0].percentile],
                "percentile",
                "severity",
            )
            note = "Mean confidence in a level's classes, of each pair from its lowest (0) to its highest (1)."
            found.append(Chart("severity", "Severity by percentile", note, chart))
        risky = [Curve(pair.name, pair.risk, pair in loud) for pair in self.pairs if pair.risk]
        if risky:
            steps = len(risky[0].values)
            chart = line_chart(risky, [(k + 1) / steps for k in range(steps)], "coverage", "risk")
            note = "Error on the ID set where only the most confident share of it is answered."
            found.append(Chart("risk", "Selective prediction", note, chart))
        best = self.pairs[:RANKED]
        chart = bars([pair.name for pair in best], [pair.auroc[-1] for pair in best], f"AUROC at level {self.last}")
        found.append(Chart("ranking", f"Ranking at level {self.last}", f"AUROC; the best {len(best)}.", chart))
        if self.correlations is not None:
            note = f"Spearman's, over {len(self.pairs)} pairs of backbone and detector."
            chart = matrix(self.correlations, "rank correlations")
            found.append(Chart("correlations", "Rank correlations between levels", note, chart))
        return found

    @property
    def table(self) -> str:
        """CSV with a line for each pair and level."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["backbone", "detector", "level", "percentile", "severity", "auroc", "fpr95", *ID_NUMBERS])
        for pair in self.pairs:
            numbers = [pair.inside.get(name, "") for name in ID_NUMBERS]
            for level in range(self.last + 1):
                own = [values[level] if values else "" for values in (pair.percentile, pair.severity)]
                both = [pair.auroc[level], pair.fpr95[level]]
                writer.writerow([pair.backbone, pair.method, level, *own, *both, *numbers])
        return out.getvalue()

    @property
    def correlation_table(self) -> str:
        """CSV of :attr:`correlations`."""
        found = self.correlations
        lines = [] if found is None else [[level, *map(float, row)] for level, row in enumerate(found)]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([["level", *range(self.last + 1)], *lines])
        return out.getvalue()

    def _loud(self) -> list[Pair]:
        """As many as there are colours: of each backbone, evenly over its ranking, from the best to the last."""
        of_backbone: dict[str, list[Pair]] = defaultdict(list)
        for pair in self.pairs:
            of_backbone[pair.backbone].append(pair)
        share = max(1, len(COLOURS) // len(of_backbone))
        places = [(own, np.linspace(0, len(own) - 1, min(share, len(own)))) for own in of_backbone.values()]
        chosen = [own[round(float(place))] for own, spread in places for place in spread]
        return sorted(chosen, key=self.pairs.index)[: len(COLOURS)]


def graded(rows: Sequence[Mapping[str, Any]]) -> list[Graded]:
    """The graded benchmarks of a results table; a pair that lacks a level is left out."""
    found: dict[tuple[str, str], dict[tuple[str, str], dict[int, list[tuple[Any, Any]]]]] = {}
    for row in rows:
        details = json.loads(row.get("details") or "{}")
        if isinstance(details.get("level"), int) and row["auroc"] is not None:
            pairs = found.setdefault((row["benchmark"], row["ood"]), {})
            levels = pairs.setdefault((row["backbone"], method_of(row)), defaultdict(list))
            levels[details["level"]].append((row, details))
    return [Graded(*name, kept) for name, pairs in found.items() if (kept := _whole(pairs))]


def _whole(pairs: Mapping[tuple[str, str], Mapping[int, Any]]) -> list[Pair]:
    count = 1 + max(level for levels in pairs.values() for level in levels)
    return [_pair(*key, levels) for key, levels in pairs.items() if len(levels) == count > 1]


def _pair(backbone: str, method: str, levels: Mapping[int, Sequence[tuple[Any, Any]]]) -> Pair:
    ordered = [levels[number] for number in sorted(levels)]

    def metric(name: str) -> tuple[float, ...]:
        return tuple(float(np.mean([row[name] for row, _ in level])) for level in ordered)

    def detail(name: str) -> tuple[float, ...]:
        if not all(name in details for level in ordered for _, details in level):
            return ()
        return tuple(float(np.mean([details[name] for _, details in level])) for level in ordered)

    inside = {name: values[0] for name in ID_NUMBERS if (values := detail(name))}
    risks = [details["id_risk"] for _, details in ordered[0] if "id_risk" in details]
    risk = tuple(np.mean(risks, axis=0).tolist()) if len(risks) == len(ordered[0]) else ()
    return Pair(
        backbone, method, metric("auroc"), metric("fpr95"), detail("percentile"), detail("severity"), inside, risk
    )


def _unit(values: Sequence[float]) -> tuple[float, ...]:
    """The same from 0 to 1."""
    low, span = min(values), (max(values) - min(values)) or 1.0
    return tuple((value - low) / span for value in values)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks (n,), equal values sharing their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: np.ndarray = (ends - (counts - 1) / 2)[place]
    return shared
