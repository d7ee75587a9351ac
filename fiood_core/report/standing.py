"""The head of a report: what was run, and whether its numbers may be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fiood_core.results import method_of

if TYPE_CHECKING:
    from fiood_core.results import Results

MANY = 5
"""Open accuracy gates that are named one by one."""


@dataclass(frozen=True)
class Fact:
    """A number at the head of the page."""

    name: str
    value: int
    bad: bool = False


def facts(results: Results) -> list[Fact]:
    """How much was run."""
    rows = [*results.rows, *results.failed]
    cells = {(row["benchmark"], row["backbone"], row["column"], row["ood"]) for row in results.rows}
    return [
        Fact("Backbones", len({row["backbone"] for row in rows})),
        Fact("Detectors", len({method_of(row) for row in rows})),
        Fact("OOD sets", len({(row["benchmark"], row["ood"]) for row in rows if row["ood"]})),
        Fact("Cells with a result", len(cells)),
        Fact("Cells without", len(results.failed), bad=bool(results.failed)),
    ]


def digests(results: Results) -> list[tuple[str, str, str]]:
    """Kind, name and digest of each backbone and view."""
    rows = [*results.rows, *results.failed]
    found: dict[tuple[str, str, str], None] = {}
    for kind, name, digest in (
        ("Backbone", "backbone", "backbone_key"),
        ("ID test set", "benchmark", "id_digest"),
        ("ID training set", "benchmark", "train_digest"),
        ("OOD set", "ood", "ood_digest"),
    ):
        found.update({(kind, row[name], row[digest]): None for row in rows if row[digest]})
    return list(found)


def reasons(results: Results) -> list[str]:
    """Why the results may not be published; none if they may."""
    return [*_rows(results), *_gates(results)]


def _rows(results: Results) -> Iterator[str]:
    if not results.rows:
        yield "there is no result"
    if results.failed:
        kinds = Counter(row["status"] for row in results.failed)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield f"cells are without a result: {counts}"
    skipped = [row for row in results.rows if row["skipped"]]
    if skipped:
        yield f"pictures were skipped under {_of(len(skipped), results)}, at most {max(r['skipped'] for r in skipped)}"
    stand_ins = [row for row in results.rows if not row["canonical"]]
    if stand_ins:
        yield f"a view is a stand-in, not the canonical one, under {_of(len(stand_ins), results)}"
    other = [row for row in results.rows if not row["publishable"] and not row["skipped"] and row["canonical"]]
    if other:
        yield f"the run itself marks {_of(len(other), results)} as not to be published"


def _gates(results: Results) -> Iterator[str]:
    """What the accuracy gate says where nothing was declared that it could hold a backbone to."""
    gates = [group["gate"] for group in results.run.get("groups", ()) if group.get("gate")]
    open_gates = [gate["message"] for gate in gates if gate.get("expected") is None]
    yield from open_gates[:MANY]
    if len(open_gates) > MANY:
        yield f"and {len(open_gates) - MANY} more accuracy gates had nothing declared"


def _of(count: int, results: Results) -> str:
    return f"{count} of {len(results.rows)} rows"
