"""A run's results as text: for each backbone and benchmark, detectors by OOD sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fiood_core.results import Results, over_replicates

RULE = "mean: of the sets of a group, unweighted, rows 'all' only; shown where every set of the group has a result"
SHOWN = 20
"""Cells without a result that are listed."""

Row = Mapping[str, Any]


def summary(found: Results) -> str:
    """Tables of AUROC and FPR@95, then what is missing from them and where the files lie."""
    rows = [*found.rows, *found.failed]
    pairs = list(dict.fromkeys((row["benchmark"], row["backbone"]) for row in rows))
    parts = [_table([r for r in found.rows if (r["benchmark"], r["backbone"]) == pair], *pair) for pair in pairs]
    return "\n".join([*filter(None, parts), *_notes(found), *_missing(found), f"results in {found.directory}"])


def _table(rows: Sequence[Row], benchmark: str, backbone: str) -> str:
    whole = [row for row in rows if row["subset"] == "all" and row["aggregation"] == "pooled"]
    whole = whole or list(rows)
    if not whole:
        return ""
    sets = {_set(row): row["group"] for row in whole}
    grouped = {group: [name for name, of in sets.items() if of == group] for group in dict.fromkeys(sets.values())}
    means = [group for group, names in grouped.items() if len(names) > 1]
    counts = {_set(row): row["n_ood"] for row in whole}
    heads = ["detector", *(name for name in sets), *(f"mean {group}" for group in means)]
    under = ["", *(f"{sets[name]} · n={counts[name]}" for name in sets), *("" for _ in means)]
    lines = [heads, under, ["", *["AUROC  FPR@95"] * (len(heads) - 1)]]
    merged = over_replicates(whole)
    for method in dict.fromkeys(row["method"] for row in merged):
        own = [row for row in merged if row["method"] == method]
        cells = {_set(row): (row["auroc"], row["fpr95"]) for row in own}
        averages = [_mean([cells.get(name) for name in grouped[group]]) for group in means]
        lines.append([method, *map(_cell, [*(cells.get(name) for name in sets), *averages])])
        spread = {_set(row): (row["auroc_std"], row["fpr95_std"]) for row in own if row["auroc_std"] is not None}
        if spread:
            count = max(row["replicates"] for row in own)
            deviations = [_cell(spread.get(name)) for name in sets]
            lines.append([f"  ± over {count} replicates", *deviations, *("" for _ in means)])
    first = whole[0]
    accuracy = "" if first["top1"] is None else f" · top-1 {first['top1']:.4f}"
    title = f"{backbone} on {benchmark}: {first['n_id']} ID pictures{accuracy}"
    return "\n".join(["", title, *_aligned(lines), *([RULE] if means else [])]) + "\n"


def _set(row: Row) -> str:
    """The name of a column of the table: the OOD set, or the subset where a benchmark has no whole sets."""
    name: str = row["ood"]
    return name if row["subset"] == "all" else f"{name}/{row['subset']}"


def _mean(cells: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    present = [cell for cell in cells if cell is not None]
    if len(present) < len(cells):
        return None
    return sum(c[0] for c in present) / len(present), sum(c[1] for c in present) / len(present)


def _cell(values: tuple[float, float] | None) -> str:
    return "     –       –" if values is None else f"{values[0]:.4f}  {values[1]:.4f}"


def _aligned(lines: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)),
        ]
        yield "  ".join(cells).rstrip()


def _notes(found: Results) -> Iterator[str]:
    skipped = max((row["skipped"] for row in found.rows), default=0)
    if skipped:
        yield f"{skipped} pictures were skipped; results that lack pictures cannot be published"
    if any(not row["canonical"] for row in found.rows):
        yield "some sets are stand-ins, not the canonical ones; their results cannot be published"
    for group in found.run.get("groups", ()):
        message = (group.get("gate") or {}).get("message")
        if message:
            yield f"{group['backbone']} on {group['benchmark']}: {message}"
        if group.get("seen"):
            yield (
                f"{group['backbone']} on {group['benchmark']}: {group['seen']} ID test pictures are in the training "
                "set too; detectors that learn have seen them, their numbers mean little and cannot be published"
            )
    for column, reason in found.run.get("left_out", {}).items():
        yield f"left out: {column}: {reason}"


def _missing(found: Results) -> Iterator[str]:
    if not found.failed:
        return
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for row in found.failed:
        where = f"{row['backbone']} on {row['benchmark']}: {row['column']}"
        reasons.setdefault((where, row["status"], row["reason"]), []).append(row["ood"])
    yield f"{len(found.failed)} cells have no result:"
    for (where, status, reason), sets in list(reasons.items())[:SHOWN]:
        yield f"  {where} · {', '.join(filter(None, sets)) or 'every set'}: {status}: {reason}"
    if len(reasons) > SHOWN:
        yield f"  … and {len(reasons) - SHOWN} more reasons, all in {found.directory / 'results.jsonl'}"
