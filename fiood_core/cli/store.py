"""List, verify and remove what the feature store holds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fiood_core.inventory import Entry
    from fiood_core.store import FeatureStore

HEADINGS = ("KEY", "BACKBONE", "ITS KEY", "SOURCE", "PICTURES", "COLUMNS", "SIZE", "STATE")


@click.group()
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="Feature store; default: in FIOOD_HOME.")
@click.pass_context
def command(context: click.Context, store: Path | None) -> None:
    """List, verify and remove features, columns and statistics that earlier runs stored."""
    from fiood_core.store import FeatureStore

    context.obj = FeatureStore(store)


@command.command("list")
@click.pass_obj
def list_entries(store: FeatureStore) -> None:
    """List every segment: which backbone, which pictures, which columns, how large, and whether it is complete."""
    from fiood_core.inventory import entries

    found = entries(store)
    if found:
        click.echo(_table([HEADINGS, *map(_row, found)]))
    click.echo(f"{len(found)} segments, {_size(sum(entry.bytes for entry in found))} in {store.root}")


@command.command()
@click.pass_obj
def verify(store: FeatureStore) -> None:
    """Read every byte and compare it with its digest; the exit status is 1 if anything is damaged."""
    from fiood_core.inventory import damage

    found = 0
    for damaged in damage(store):
        found += 1
        click.echo(damaged.reason)
    click.echo(f"{found or 'no'} damaged file{'' if found == 1 else 's'} in {store.root}")
    if found:
        sys.exit(1)


@command.command()
@click.argument("keys", nargs=-1)
@click.option("--incomplete", is_flag=True, help="Remove segments that were interrupted.")
@click.option("--damaged", is_flag=True, help="Remove damaged files only; the next run makes just them again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(store: FeatureStore, keys: tuple[str, ...], incomplete: bool, damaged: bool, yes: bool) -> None:
    """Remove segments by the beginning of their key, or of their backbone's key for all of its segments."""
    from fiood_core import inventory

    if bool(keys) + incomplete + damaged != 1:
        raise click.UsageError("give keys (see `fiood store list`), or --incomplete, or --damaged")
    if damaged:
        broken = list(inventory.damage(store))
        click.echo("\n".join(found.place for found in broken) or "nothing is damaged")
        if broken and (yes or click.confirm(f"Remove these {len(broken)} files?", abort=True)):
            inventory.remove_damaged(store, broken)
        return
    chosen = [entry for key in keys for entry in inventory.matching(store, key)]
    if incomplete:
        chosen = [entry for entry in inventory.entries(store) if not entry.complete]
    chosen = list({entry.place: entry for entry in chosen}.values())
    click.echo(_table([HEADINGS, *map(_row, chosen)]) if chosen else "nothing to remove")
    if chosen and (yes or click.confirm(f"Remove these {len(chosen)} segments?", abort=True)):
        inventory.remove(store, chosen)
        click.echo(f"removed {_size(sum(entry.bytes for entry in chosen))}")


def _row(entry: Entry) -> tuple[str, ...]:
    unfinished = [f"{column} {done}/{of} shards" for column, (done, of) in entry.unfinished.items()]
    left_out = f" ({entry.skipped} left out)" if entry.skipped else ""
    return (
        entry.key[:12],
        entry.backbone,
        entry.backbone_key[:12],
        entry.source,
        f"{entry.images}{left_out}",
        ", ".join(entry.columns) or "-",
        _size(entry.bytes),
        "complete" if entry.complete else f"incomplete: {', '.join(unfinished)}",
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
