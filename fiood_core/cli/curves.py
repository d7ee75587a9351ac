"""Write the curves of graded levels as files."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Default: DIRECTORY/curves."
)
def command(directory: Path, output: Path | None) -> None:
    """Write what the report draws of graded levels in DIRECTORY: pictures as SVG, numbers as CSV.

    For each benchmark with levels: AUROC by level, severity by percentile, risk by coverage, the ranking at the hardest
    level, and the rank correlations between levels.
    """
    from fiood_core import results
    from fiood_core.errors import ResultError
    from fiood_core.report.graded import graded

    found = graded(results.load(directory).rows)
    if not found:
        raise ResultError(f"{directory} has no benchmark with graded levels; 'cood' and 'cood-digits' have")
    target = output or directory / "curves"
    target.mkdir(parents=True, exist_ok=True)
    files: dict[str, str] = {}
    for one in found:
        stem = results.file_name(f"{one.benchmark}.{one.ood}")
        files |= {f"{stem}.{chart.name}.svg": str(chart.svg) for chart in one.charts}
        files[f"{stem}.csv"] = one.table
        if one.correlations is not None:
            files[f"{stem}.correlations.csv"] = one.correlation_table
    for name, text in files.items():
        results.write_atomic(target / name, text.encode())
    click.echo(f"wrote {len(files)} files to {target}")
