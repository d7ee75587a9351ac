"""The lists that define datasets: where they come from and how they are read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from fiood_core.download import Remote
from fiood_core.errors import DataError

LARGEST_LIST = 1 << 25


def github(repository: str, path: str, sha256: str, *, name: str | None = None, commit: str | None = None) -> Remote:
    """A list file in a public repository, trusted by its digest alone; at a commit if one is known, then the newest."""
    revisions = ("HEAD",) if commit is None else (commit, "HEAD")
    return Remote(
        name or path.rpartition("/")[2],
        urls=tuple(f"https://raw.githubusercontent.com/{repository}/{revision}/{path}" for revision in revisions),
        digest=f"sha256:{sha256}",
        max_bytes=LARGEST_LIST,
    )


def image_list(path: Path) -> list[tuple[str, str]]:
    """Lines ``<relative path> <label>``, split at the last space since paths may hold spaces.

    Raises
    ------
    DataError
        A line has no label; the message names it.
    """
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        image, _, label = line.rpartition(" ")
        if not image:
            raise DataError(f"{path.name}:{number}: {line!r} is not <path> <label>")
        rows.append((image, label))
    return rows


def csv_columns(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a CSV file with a header, as tuples in the order asked for.

    Raises
    ------
    DataError
        The header lacks a column; the message names it.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        absent = [c for c in columns if c not in (reader.fieldnames or ())]
        if absent:
            raise DataError(f"{path.name} has no column {absent[0]!r}; its header is {reader.fieldnames}")
        rows = []
        for row in reader:
            if any(row[column] is None for column in columns):
                raise DataError(f"{path.name}:{reader.line_num} has too few columns")
            rows.append(tuple(row[column] for column in columns))
        return rows
