"""List, prepare, verify and audit datasets."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fiood_core.dataset import Dataset
    from fiood_core.download import Remote

HEADINGS = ("NAME", "PICTURES", "STATE", "WHAT", "LICENCE", "HOME")
SECONDS_BETWEEN_UPDATES = 0.2


@click.group()
def command() -> None:
    """List, prepare, verify and audit datasets.

    A dataset is a registered name, with parameters in parentheses where it takes some:
    "imagenet-1k(root='/data/imagenet')", "folder:pictures".
    """


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with citations, digests and what is missing.")
def list_datasets(as_json: bool) -> None:
    """List every dataset: how many pictures, whether it is ready on this machine, licence and home."""
    from fiood_core.catalogue import catalogue

    found = list(catalogue())
    if as_json:
        click.echo(json.dumps([listed.data() for listed in found], indent=2))
        return
    rows = []
    for listed in found:
        info = listed.info
        count = f"{info.expected_count:,}" if info is not None and info.expected_count else "-"
        about = (info.title, info.licence, info.home) if info is not None else ("; ".join(listed.missing), "", "")
        rows.append((listed.name, count, listed.state, *about))
    click.echo(_table([HEADINGS, *rows]))
    click.echo(f"{len(found)} datasets, {sum(listed.state == 'ready' for listed in found)} ready")


@command.command()
@click.argument("name")
def info(name: str) -> None:
    """Show what is known of a dataset: citation, licence, lists, archive, digests, traps, and its state here."""
    from fiood_core.catalogue import state

    dataset = _dataset(name)
    about = dataset.info
    lines = [("", about.title), ("", about.summary)]
    lines += [("pictures", f"{about.expected_count:,}" if about.expected_count else "not fixed")]
    lines += [("citation", about.citation), ("licence", about.licence), ("home", about.home)]
    lines += [("list", _remote(remote)) for remote in getattr(dataset, "list_files", ())]
    archive = getattr(dataset, "archive", None)
    lines += [("archive", _remote(archive))] if archive is not None else []
    lines += [("notes", about.notes)]
    root = getattr(dataset, "root", None)
    lines += [("at", str(root))] if root is not None else []
    lines += [("remark", remark) for remark in _remarks(dataset)]
    lines += [("state", state(dataset)), *(("missing", sentence) for sentence in dataset.missing())]
    for label, text in lines:
        if text:
            click.echo(f"{label + ':':10}{text}" if label else text)


@command.command()
@click.argument("name")
@click.option("--adopt", type=click.Path(path_type=Path), metavar="PLACE", help="A folder or archive that you have.")
@click.option("--offline", is_flag=True, help="No network call at all.")
def prepare(name: str, adopt: Path | None, offline: bool) -> None:
    """Get a dataset ready: fetch what may be fetched, check it, and put it in place.

    With --adopt, a folder that you have is checked and linked to, or an archive is checked and extracted.  What needs
    an account is never fetched; the message says what to get from where.
    """
    from fiood_core.errors import DataError

    if offline:
        from fiood_core.offline import go_offline

        go_offline()
    dataset = _dataset(name)
    takes = inspect.signature(dataset.prepare).parameters
    options: dict[str, Any] = {"offline": offline}
    if adopt is not None:
        if "adopt" not in takes:
            raise DataError(f"{name} has nothing that could be adopted; give its place as a parameter instead")
        options["adopt"] = adopt
    with _shown_warnings(), _Progress() as progress:
        if "progress" in takes:
            options["progress"] = progress
        dataset.prepare(**options)
    view = dataset.view()
    root = getattr(dataset, "root", None)
    click.echo(f"{name} is ready: {len(view):,} pictures{f' at {root}' if root is not None else ''}")


@command.command()
@click.argument("name")
def verify(name: str) -> None:
    """Report every missing, empty, extra, altered or misplaced file; the exit status is 1 if there is any."""
    dataset = _dataset(name)
    takes = inspect.signature(dataset.verify).parameters
    with _Progress() as progress:
        findings = list(dataset.verify(**({"progress": progress} if "progress" in takes else {})))
    for finding in findings:
        click.echo(finding)
    if findings:
        click.echo(f"{len(findings)} findings in {name}", err=True)
        sys.exit(1)
    click.echo(f"{name} is as it should be: {len(dataset.view()):,} pictures")


@command.command()
@click.argument("inside", metavar="ID")
@click.argument("outside", metavar="[NAME=]OOD", nargs=-1, required=True)
@click.option("--train", metavar="DATASET", help="An ID training set, whose pictures no OOD set should have.")
@click.option("--results", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it all as JSON.")
@click.option("--distance", type=click.IntRange(0, 16), metavar="BITS", help="Of hashes that count as the same.")
def audit(
    inside: str,
    outside: tuple[str, ...],
    train: str | None,
    results: Path | None,
    output: Path | None,
    distance: int | None,
) -> None:
    """Compare OOD sets with the ID set and with one another: classes by WordNet, pictures by content and by eye.

    Names of OOD sets are those of a run's, so that --results DIR can give its metrics with and without the pictures
    that are flagged.  Pictures that are not on this machine are not compared; classes are all the same.
    """
    from fiood_core import audit as audits
    from fiood_core.lookalikes import DISTANCE

    ids = {"id": _dataset(inside), **({} if train is None else {"train": _dataset(train)})}
    oods: dict[str, Dataset] = {}
    for item in outside:
        name, equals, text = item.partition("=")
        if not equals or "(" in name:
            name, text = item, item
        if name in {*ids, *oods}:
            raise click.UsageError(f"two sets are called {name!r}; write NAME=DATASET")
        oods[name] = _dataset(text)
    with _Progress() as progress:
        audited = audits.audit(ids, oods, distance=DISTANCE if distance is None else distance, progress=progress)
    if results is not None:
        audited.metrics = list(audits.with_and_without(audited, results))
    click.echo(audited.text())
    if output is not None:
        output.write_text(json.dumps(audited.data(), indent=1), encoding="utf-8")


def _remarks(dataset: Dataset) -> Sequence[str]:
    """What the lists say beyond the set itself; nothing where they are not here, which the state tells."""
    from fiood_core.errors import DataError
    from fiood_core.listed import ListedDataset

    try:
        return dataset.remarks() if isinstance(dataset, ListedDataset) else ()
    except DataError:
        return ()


def _dataset(text: str) -> Dataset:
    from fiood_core.request import Request
    from fiood_core.suite import anchored

    dataset: Dataset = anchored(Request.parse("dataset", text), None).create()
    return dataset


def _remote(remote: Remote) -> str:
    where = ". ".join(filter(None, (" or ".join(remote.urls), remote.instructions)))
    source = " (says who mirrors it)" if remote.digest_by_others else ""
    return f"{remote.name}{f', {remote.digest}{source}' if remote.digest else ''}: {where}"


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Print warnings in a line each, without the place in the code that gave them."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: click.echo(f"warning: {message}", err=True)
        yield


class _Progress:
    """What is being done, in one line of the terminal; nothing where there is no terminal."""

    def __init__(self) -> None:
        self._next = 0.0
        self._shown = False

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if not sys.stderr.isatty() or (time.monotonic() < self._next and done != total):
            return
        self._next = time.monotonic() + SECONDS_BETWEEN_UPDATES
        share = f"{done:,} of {total:,} ({done / total:.0%})" if total else f"{done:,}"
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r{f'{what}: {share}'[:width]:{width}}", nl=False, err=True)
        self._shown = True

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo(err=True)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)
