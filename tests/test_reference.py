"""Published results: fetched by digest, shown, and set beside a run."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from fiood_core import reference
from fiood_core.cli import compare as compare_command
from fiood_core.cli import reference as reference_command
from fiood_core.errors import DataError, ResultError
from fiood_core.results import Results


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def served(shared):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(shared / "paper"))
    handler.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def run(rows):
    return Results(rows=rows, failed=[], run={}, directory=Path("run"))


def row(backbone, detector, subset, auroc, benchmark="cood"):
    return {
        "benchmark": benchmark,
        "backbone": backbone,
        "detector": detector,
        "column": detector,
        "subset": subset,
        "auroc": auroc,
    }


def test_a_benchmark_without_published_results_says_so(home):
    with pytest.raises(DataError, match="'digits' names no published results"):
        reference.fetch("digits")


def test_offline_the_published_results_must_be_here(home):
    with pytest.raises(DataError, match=r"cood_results\.csv is not at .* offline"):
        reference.published("cood")


@pytest.mark.shared
def test_the_cood_table_is_fetched_by_digest(home, served):
    reference.fetch("cood", url=f"{served}/cood_results.csv")
    rows = reference.published("cood")
    assert (len(rows), len({r.model for r in rows})) == (20_328, 706)
    shown = CliRunner().invoke(
        reference_command.command,
        ["show", "cood", "--model", "vit_large_patch32_384_original", "--detector", "max-logit"],
    )
    lines = shown.output.splitlines()
    assert [lines[level].split()[0] for level in (0, 5, 10)] == ["0.99589", "0.96321", "0.77484"]


@pytest.mark.shared
def test_another_file_is_refused(home, served):
    with pytest.raises(DataError, match=r"cood_results\.csv could not be fetched"):
        reference.fetch("cood", url=f"{served}/table1.csv")
    assert not (home / "reference" / "cood_results.csv").exists()


@pytest.mark.shared
def test_a_run_is_set_beside_the_same_model_and_ranked_among_all(home, served):
    reference.fetch("cood", url=f"{served}/cood_results.csv")
    ours = [row("mine", "max-logit", "level-10", 0.78), row("mine", "max-logit", "level-10", 0.99, benchmark="other")]
    models = {"mine": "vit_large_patch32_384_original"}
    (found,) = reference.compare("cood", run(ours), models)
    assert found.published == pytest.approx(0.77484, abs=1e-5)
    published = [r for r in reference.published("cood") if (r.detector, r.subset) == ("max-logit", "level-10")]
    assert found.rank == 1 + sum(r.auroc > 0.78 for r in published if r.model != models["mine"])
    assert found.of == len(published)
    with pytest.raises(ResultError, match="no row of 'cood' that is published"):
        reference.compare("cood", run([row("mine", "knn", "level-10", 0.5)]))


def test_a_pair_without_an_equals_sign_is_refused(home, tmp_path):
    found = CliRunner().invoke(compare_command.command, ["cood", str(tmp_path), "--model", "mine"])
    assert "is not BACKBONE=NAME" in str(found.exception)
