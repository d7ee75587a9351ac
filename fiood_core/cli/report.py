"""Write the report of a results directory anew."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Write DIRECTORY/report.html anew from the results that DIRECTORY holds.

    Useful after an update, or after installing a package that adds sections to reports.
    """
    from fiood_core import results
    from fiood_core.report import write_report

    path = directory / "report.html"
    write_report(results.load(directory), path)
    click.echo(f"wrote {path}")
