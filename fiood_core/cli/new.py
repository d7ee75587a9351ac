"""Write the skeleton of a plugin."""

from __future__ import annotations

from pathlib import Path

import click

KINDS = ("detector", "backbone", "dataset", "vocabulary", "benchmark")


@click.command("new")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to write it; by default a folder of the distribution's name here.",
)
def command(kind: str, name: str, directory: Path | None) -> None:
    """Write a plugin of KIND called NAME: a distribution that installs and passes fiood check as it is.

    Nothing is overwritten: a folder that exists and is not empty is refused.
    """
    from fiood_core.scaffold import write_plugin

    written = write_plugin(kind, name, directory)
    for path in written:
        click.echo(f"wrote {path}")
    folder = written[0].parent
    click.echo(f"\nNext: pip install -e {folder}, then fiood check {name} --kind {kind}")
