"""Set a run beside the results that a paper published for its benchmark."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("name")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="BACKBONE=NAME",
    help="The published name of a backbone of the run; by default its own name. May be given several times.",
)
def command(name: str, directory: Path, models: tuple[str, ...]) -> None:
    """Set the results in DIRECTORY beside those published for the benchmark NAME, and rank them among those."""
    from fiood_core import reference, results
    from fiood_core.errors import ParameterError

    named = {}
    for pair in models:
        backbone, equals, model = pair.partition("=")
        if not equals:
            raise ParameterError(f"--model {pair!r} is not BACKBONE=NAME")
        named[backbone] = model
    found = reference.compare(name, results.load(directory), named)
    width = max(len(f"{row.backbone} {row.detector}") for row in found)
    click.echo(f"{'':{width}s}  {'row':9s} {'AUROC':>9s} {'published':>10s} {'difference':>11s}  rank")
    for row in found:
        beside = (
            f"{row.published:10.5f} {row.ours - row.published:+11.5f}"
            if row.published is not None
            else f"{'–':>10s} {'–':>11s}"
        )
        title = f"{row.backbone} {row.detector}"
        click.echo(f"{title:{width}s}  {row.subset:9s} {row.ours:9.5f} {beside}  {row.rank} of {row.of}")
    click.echo(f"published: {reference.published_on(name)}")
