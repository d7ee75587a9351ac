"""What a run leaves behind: one row a metric's place in a table, per-image scores, and the record.

A directory of results holds

``results.parquet``, ``results.jsonl``
    The same rows in the same order, one for each cell or subset, failed ones included (:data:`SCHEMA`).
``scores/<benchmark>/<backbone>/id.parquet`` and ``ood.<set>.parquet``
    Stable ids and one float64 column a detector, named as the row's ``column``.
``suite.yaml``
    The resolved suite, which gives the same run.
``run.json``
    The record: versions, hardware, times, seeds, commit.  Only here do two equal runs differ.
``report.html``
    The report.

Every file is written under a temporary name, synced and renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fiood_core import sealed
from fiood_core.errors import ResultError

KEY_FIELDS = (
    "backbone_key",
    "id_digest",
    "train_digest",
    "ood_digest",
    "detector",
    "distribution",
    "version",
    "parameters",
    "vocabulary_digest",
    "replicate",
    "protocol",
    "ood",
    "subset",
    "aggregation",
)
"""What decides that two rows are the same result: the fields that ``key`` is the SHA-256 of."""

METRIC_FIELDS = (
    "fpr95",
    "auroc",
    "aupr_in",
    "aupr_out",
    "n_id",
    "n_ood",
    "fpr95_stderr",
    "auroc_stderr",
    "threshold",
)

SCHEMA = pa.schema(
    [
        ("benchmark", pa.string()),
        ("backbone", pa.string()),
        ("detector", pa.string()),
        ("column", pa.string()),
        ("ood", pa.string()),
        ("group", pa.string()),
        ("subset", pa.string()),
        ("aggregation", pa.string()),
        ("status", pa.string()),
        ("reason", pa.string()),
        *((name, pa.int64() if name.startswith("n_") else pa.float64()) for name in METRIC_FIELDS),
        ("top1", pa.float64()),
        ("canonical", pa.bool_()),
        ("skipped", pa.int64()),
        ("publishable", pa.bool_()),
        ("distribution", pa.string()),
        ("version", pa.string()),
        ("parameters", pa.string()),
        ("vocabulary", pa.string()),
        ("vocabulary_digest", pa.string()),
        ("replicate", pa.int64()),
        ("protocol", pa.string()),
        ("backbone_key", pa.string()),
        ("id_digest", pa.string()),
        ("train_digest", pa.string()),
        ("ood_digest", pa.string()),
        ("key", pa.string()),
        ("scores", pa.string()),
        ("id_column", pa.string()),
        ("details", pa.string()),
        ("record", pa.string()),
    ]
)
"""Columns of the long format.

``status`` is ``"ok"``, ``"failed"`` (something raised, or gave what must not be reported) or ``"refused"`` (what was
asked for has no sound answer), with its ``reason``.  ``column`` is the detector with its parameters and vocabulary, as
it stands in ``scores``, the file of per-image scores relative to the directory; ``id_column`` is the one in the ID test
set's file that it is compared with, if that is another (its vocabulary depends on the OOD set).  ``details`` is
whatever else the benchmark says of the row, in JSON.  ``top1`` is the accuracy on the ID test set.  ``publishable`` is
false where pictures were skipped, a view is a stand-in, or training pictures are test pictures too.
"""

RESULT_FILES = ("results.parquet", "results.jsonl", "suite.yaml", "run.json")


@dataclass(frozen=True)
class Scores:
    """Scores of one set.

    Attributes
    ----------
    ids : tuple of str
    values : ndarray (n,) float64
        Larger = more in-distribution.
    """

    ids: tuple[str, ...]
    values: np.ndarray


@dataclass
class Results:
    """Results of a run.

    Attributes
    ----------
    rows : list of dict
        Rows with metrics, in the order of the plan.
    failed : list of dict
        Cells without, each with its ``status`` and ``reason``.
    run : dict
        The record.
    directory : Path
    """

    rows: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    run: dict[str, Any]
    directory: Path

    def scores(self, row: Mapping[str, Any]) -> tuple[Scores, Scores]:
        """Per-image scores behind a row: of the ID test set, and of its whole OOD set.

        Raises
        ------
        ResultError
            The row has none, or the files lack the column.
        """
        if not row["scores"]:
            raise ResultError(f"the row of {row['column']!r} on {row['ood']!r} has no scores of its own")
        outside = self.directory / row["scores"]
        return read_scores(outside.parent / "id.parquet", row["id_column"] or row["column"]), read_scores(
            outside, row["column"]
        )


def load(directory: str | Path) -> Results:
    """Results from a directory.

    Raises
    ------
    ResultError
        A file is missing or damaged; the message says which.
    """
    place = Path(directory)
    try:
        lines = (place / "results.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line, parse_constant=_no_constant) for line in lines]
        run = json.loads((place / "run.json").read_text(encoding="utf-8"), parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise ResultError(f"{place} holds no finished results: {error.filename} is missing") from error
    except ValueError as error:
        raise ResultError(f"the results in {place} are damaged: {error}; run again to write them anew") from error
    ok = [row for row in rows if row["status"] == "ok"]
    return Results(ok, [row for row in rows if row["status"] != "ok"], run, place)


def method_of(row: Mapping[str, Any]) -> str:
    """Detector and vocabulary of a row as the run names them; replicates share it."""
    column = str(row["column"])
    return column if row["replicate"] is None else column.removesuffix(f" · #{row['replicate']}")


def over_replicates(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A view of rows in which the replicates of a method are one: what varies between them is averaged.

    Returns
    -------
    list of dict
        Rows in order of first appearance, with ``method`` (the column without a replicate), ``replicates`` (how many),
        the mean of each metric (null if one is), and its sample standard deviation as ``<metric>_std`` (null for one).
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        place = [row.get(name) for name in ("benchmark", "backbone", "ood", "subset", "aggregation", "protocol")]
        groups.setdefault((*place, method_of(row)), []).append(row)
    return [_averaged(group) for group in groups.values()]


def _averaged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row = {**rows[0], "method": method_of(rows[0]), "replicates": len(rows)}
    if len(rows) > 1:
        row |= {"column": row["method"], "replicate": None, "key": None}
    for name in METRIC_FIELDS:
        values = [r.get(name) for r in rows]
        known = [float(value) for value in values if value is not None]
        whole = len(known) == len(values) and len(rows) > 1
        if whole and not name.startswith("n_"):
            row[name] = statistics.fmean(known)
        row[f"{name}_std"] = statistics.stdev(known) if whole else None
    return row


def row_key(row: Mapping[str, Any]) -> str:
    """SHA-256 of what decides that two rows are the same result, in one canonical JSON form."""
    text = json.dumps({name: row.get(name) for name in KEY_FIELDS}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def complete(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with every column in the order of the schema, and its key.

    Raises
    ------
    ResultError
        A value is not finite, or no column has that name.
    """
    unknown = set(row) - set(SCHEMA.names)
    if unknown:
        raise ResultError(f"a row has no columns {sorted(unknown)}")
    for name, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ResultError(f"{name} of {row.get('column')!r} on {row.get('ood')!r} is {value}; undefined is null")
    full = {name: row.get(name) for name in SCHEMA.names}
    full["key"] = row_key(full)
    return full


def write_rows(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``results.jsonl`` and ``results.parquet``."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n" for row in rows]
    write_atomic(directory / "results.jsonl", "".join(lines).encode())
    write_atomic(directory / "results.parquet", parquet(pa.Table.from_pylist([dict(r) for r in rows], SCHEMA)))


def write_json(path: Path, data: Any) -> None:
    """Write plain data as strict, indented JSON."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomic(path, text.encode())


# -- per-image scores ----------------------------------------------------------------------------------------------


def scores_path(benchmark: str, backbone: str, ood: str | None) -> str:
    """Where the scores of a set lie, relative to the directory; ``ood=None`` is the ID test set."""
    name = "id.parquet" if ood is None else f"ood.{file_name(ood)}.parquet"
    return f"scores/{file_name(benchmark)}/{file_name(backbone)}/{name}"


def file_name(label: str) -> str:
    """A file name that stands for a label, and for no other."""
    name = quote(label, safe="()=,+'")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > 120:
        name = f"{name[:100]}-{hashlib.sha256(label.encode()).hexdigest()[:16]}"
    return name


def write_scores(path: Path, ids: Sequence[str], columns: Mapping[str, np.ndarray]) -> str:
    """Write the scores of one set, and give the SHA-256 of the file."""
    table = pa.table(
        {"id": pa.array(list(ids), pa.string()), **{k: pa.array(v, pa.float64()) for k, v in columns.items()}}
    )
    content = parquet(table)
    write_atomic(path, content)
    return sha256(content)


def parse_scores(content: bytes) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Ids, and every column, of the content of a file of scores."""
    table = pq.read_table(io.BytesIO(content))
    columns = {name: table.column(name).to_numpy() for name in table.column_names if name != "id"}
    return tuple(table.column("id").to_pylist()), columns


def sha256(content: bytes) -> str:
    """SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_scores(path: Path, column: str) -> Scores:
    """One column of a file of scores.

    Raises
    ------
    ResultError
        The file or the column is missing.
    """
    try:
        table = pq.read_table(path, columns=["id", column], memory_map=True)
        ids, values = table.column("id").to_pylist(), table.column(column).to_numpy()
    except (OSError, KeyError, pa.ArrowException) as error:
        raise ResultError(f"{path} has no scores of {column!r}: {error}") from error
    return Scores(tuple(ids), np.asarray(values, dtype=np.float64))


# -- files ---------------------------------------------------------------------------------------------------------


def parquet(table: pa.Table) -> bytes:
    """A table as Parquet, byte for byte the same for equal tables."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", version="2.6", data_page_version="1.0")
    return sink.getvalue()


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or the whole new one, whatever happens.

    Raises
    ------
    StoreError
        The disk is full, or the place cannot be written.
    """
    sealed.write_bytes(path, [content])


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files of writers that are no longer alive."""
    for folder, _, _ in os.walk(directory):
        sealed.sweep(Path(folder))


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
