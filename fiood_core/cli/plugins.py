"""List every component that is installed, and check that each loads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from fiood_core import registry, settings
from fiood_core.registry import Component

COLUMNS = ("kind", "name", "distribution", "version", "path")


@click.command()
@click.option("--check", is_flag=True, help="Load each one in another process and say why those that fail do.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds that loading one may take.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(check: bool, timeout: float, as_json: bool) -> None:
    """List every component and hook that is installed, with its distribution, version and path.

    Nothing is imported.  Names that two distributions claim and components that FIOOD_DISABLE switches off are marked.
    With --check, or where FIOOD_STRICT is set, each is loaded, and the exit status is 1 if any fails or clashes.
    """
    check = check or settings.strict()
    installed = [*registry.components(), *registry.hooks()]
    found = _checked_rows(installed, timeout) if check else map(_row, installed)
    rows = list(found if as_json else _printed(found, installed))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    for problem in registry.unreadable():
        click.echo(problem, err=True)
    if check and (registry.unreadable() or any(row["status"] in {"clash", "broken"} for row in rows)):
        sys.exit(1)


def _row(component: Component) -> dict[str, Any]:
    row: dict[str, Any] = {key: getattr(component, key) for key in COLUMNS}
    row |= {"value": component.value, "status": "ok", "reason": None}
    if component.disabled:
        row |= {"status": "disabled", "reason": "switched off by FIOOD_DISABLE"}
    for group in registry.clashes():
        if component in group:
            others = sorted(c.distribution for c in group if c != component)
            row |= {"status": "clash", "reason": f"claimed by {', '.join(others)} too"}
    return row


def _checked_rows(installed: list[Component], timeout: float) -> Iterator[dict[str, Any]]:
    from fiood_core.probe import probe

    outcomes = probe([c for c in installed if not c.disabled], timeout)
    for component in installed:
        row = _row(component)
        if not component.disabled:
            outcome = next(outcomes)
            row["seconds"] = round(outcome.seconds, 3)
            if outcome.reason is not None:
                row |= {"status": "broken", "reason": outcome.reason}
        yield row


def _printed(rows: Iterator[dict[str, Any]], installed: list[Component]) -> Iterator[dict[str, Any]]:
    """The rows as they come, each printed as a line of a table."""
    widths = {key: max((len(str(getattr(c, key))) for c in installed), default=0) for key in COLUMNS[:-1]}
    for row in rows:
        cells = [str(row[key]).ljust(width) for key, width in widths.items()]
        mark = "" if row["status"] == "ok" else f"  [{row['status']}: {row['reason']}]"
        click.echo("  ".join([*cells, row["path"] or "(no such module)"]) + mark)
        yield row
