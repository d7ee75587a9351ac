"""Check that a component behaves as its interface asks."""

from __future__ import annotations

import click

KINDS = ("detector", "backbone", "dataset", "vocabulary", "benchmark")
COLOURS = {"passed": "green", "failed": "red", "skipped": "yellow"}


@click.command("check")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="What it is; needed where the name alone does not tell.")
def command(name: str, kind: str | None) -> None:
    """Run the conformance checks on the component NAME.

    NAME is a registered name, module:Object, or a path beginning with ./, with parameters in parentheses where it needs
    some: "knn(k=10)", "folder:pictures", "./mine.py:MyDetector".  The exit status is 1 if a check fails.
    """
    from fiood_core.request import Request
    from fiood_core.spec import parse
    from fiood_core.testing import CHECKS
    from fiood_core.testing.outcome import ConformanceFailure

    kind = kind or _kind_of(parse(name).name)
    asked = Request.parse(kind, name)
    try:
        report = CHECKS[kind](asked.name, parameters=asked.parameters)
    except ConformanceFailure as failure:
        report = failure.report
    click.echo(f"{kind} {name}")
    for outcome in report.outcomes:
        status = click.style(f"{outcome.status:8}", fg=COLOURS[outcome.status])
        click.echo(f"  {status} {outcome.check}{': ' + outcome.message if outcome.message else ''}")
    counts = [f"{sum(o.status == s for o in report.outcomes)} {s}" for s in COLOURS]
    click.echo(f"  {', '.join(counts)}")
    if report.failures:
        raise SystemExit(1)


def _kind_of(name: str) -> str:
    """The kind under which a name is registered, or of which the object at a path is."""
    from fiood_core import registry
    from fiood_core.errors import PluginError

    if name.partition(":")[0] in registry.names("dataset") and ":" in name:
        found, reason = ["dataset"], ""
    elif name.startswith(("./", "../", "/")) or ":" in name:
        found, reason = [], ""
        for kind in KINDS:
            try:
                registry.load(kind, name)
                found.append(kind)
            except PluginError as error:
                reason = reason or str(error)
    else:
        found = [kind for kind in KINDS if name in registry.names(kind)]
        reason = "" if found else _unknown(name)
    if not found:
        raise click.ClickException(reason)
    if len(found) > 1:
        raise click.ClickException(f"{name!r} is a {' and a '.join(found)}; choose one with --kind")
    return found[0]


def _unknown(name: str) -> str:
    import difflib

    from fiood_core import registry

    known = sorted({n for kind in KINDS for n in registry.names(kind)})
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `fiood plugins`"
    return f"nothing is registered as {name!r}; {hint}"
