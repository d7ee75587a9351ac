"""Fetch and show the results that a paper published for a benchmark."""

from __future__ import annotations

import click


@click.group()
def command() -> None:
    """Fetch and show the results that a paper published for a benchmark."""


@command.command()
@click.argument("name")
@click.option("--url", help="A mirror to take instead of the official address; the digest decides all the same.")
@click.option("--offline", is_flag=True, help="Make no network call.")
def fetch(name: str, url: str | None, offline: bool) -> None:
    """Fetch the published results of the benchmark NAME, and check them against their digest."""
    from fiood_core import reference, settings

    path = reference.fetch(name, url=url, offline=offline or settings.offline())
    rows = reference.published(name)
    models = len({row.model for row in rows})
    click.echo(f"{path}: {len(rows):,} rows, {models} models")


@command.command()
@click.argument("name")
@click.option("--model", help="Part of the published model's name.")
@click.option("--detector", help="A detector, by fiood's name.")
@click.option("--subset", help="Only this row of the benchmark, e.g. level-10; models are ranked by it.")
def show(name: str, model: str | None, detector: str | None, subset: str | None) -> None:
    """Show published AUROCs of the benchmark NAME, best first."""
    from fiood_core import reference

    rows = [
        row
        for row in reference.published(name)
        if (model or "") in row.model and detector in (None, row.detector) and subset in (None, row.subset)
    ]
    if subset is not None:
        rows.sort(key=lambda row: -row.auroc)
    for row in rows:
        click.echo(f"{row.auroc:.5f}  {row.subset:9s}  {row.detector:11s}  {row.model}")
    click.echo(f"{len(rows):,} rows")
