"""List the OOD pictures behind a row of results."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--backbone", help="The row's backbone, where there are several.")
@click.option("--detector", help="The row's detector with its parameters, where there are several.")
@click.option("--ood", help="The row's OOD set, where there are several.")
@click.option("--subset", default="all", show_default=True, help="The row's subset, class or level.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="A file to write, instead of the screen."
)
def command(
    directory: Path, backbone: str | None, detector: str | None, ood: str | None, subset: str, output: Path | None
) -> None:
    """List the ids of the OOD pictures behind one row of the results in DIRECTORY, one a line.

    The list is what the dataset "subset" takes, so that a severity level, say, becomes an OOD set of its own.
    """
    from fiood_core import results
    from fiood_core.errors import ParameterError
    from fiood_core.request import Request

    asked = {"backbone": backbone, "column": detector, "ood": ood, "subset": subset}
    rows = [
        row
        for row in results.load(directory).rows
        if all(value in (None, row[field]) for field, value in asked.items()) and row["aggregation"] == "pooled"
    ]
    distinct = {(row["benchmark"], row["ood"], row["details"]) for row in rows}
    if len(distinct) != 1:
        found = sorted({f"{row['backbone']} · {row['column']} · {row['ood']} · {row['subset']}" for row in rows})
        what = "no row fits" if not found else f"{len(found)} rows fit ({'; '.join(found[:5])} …)"
        raise ParameterError(f"{directory}: {what}; name one with --backbone, --detector, --ood and --subset")
    benchmark, name, details = distinct.pop()
    made = Request.parse("benchmark", benchmark).create()
    ids = made.pictures(name, subset, json.loads(details) if details else {})
    if output is None:
        click.echo("\n".join(ids))
        return
    results.write_atomic(output, "".join(f"{image_id}\n" for image_id in ids).encode())
    click.echo(f"wrote {len(ids):,} ids to {output}")
