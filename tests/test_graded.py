"""Graded levels in the report and as files."""

from __future__ import annotations

import csv
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner

from fiood_core import results
from fiood_core.cli import fiood
from fiood_core.hookspecs import manager
from fiood_core.report import render
from fiood_core.report.graded import graded


def row(backbone, method, level, auroc, **details):
    return {
        "benchmark": "hills",
        "ood": "pool",
        "backbone": backbone,
        "column": method,
        "replicate": None,
        "auroc": auroc,
        "fpr95": 1 - auroc,
        "details": json.dumps({"level": level, "percentile": level / 2, "severity": 5.0 + level, **details}),
    }


def curve(backbone, method, aurocs, **details):
    return [row(backbone, method, level, auroc, **details) for level, auroc in enumerate(aurocs)]


ROWS = [
    *curve("resnet", "msp", [0.9, 0.8, 0.5], id_top1=0.75, id_aurc=0.1, id_risk=[0.0, 0.25]),
    *curve("resnet", "knn", [0.8, 0.7, 0.6]),
    *curve("vit", "<b>", [0.7, 0.9, 0.4]),
]


def test_pairs_are_ranked_by_the_hardest_level():
    (one,) = graded(ROWS)
    assert [pair.name for pair in one.pairs] == ["resnet · knn", "resnet · msp", "vit · <b>"]
    assert one.pairs[1].auroc == (0.9, 0.8, 0.5)
    assert one.pairs[1].inside == {"id_top1": 0.75, "id_aurc": 0.1}


def test_rank_correlations_are_spearmans():
    (one,) = graded(ROWS)
    ranks_by_hand = {"knn": (2, 1, 3), "msp": (3, 2, 2), "<b>": (1, 3, 1)}  # at each level, 3 the best
    np.testing.assert_allclose(one.correlations, np.corrcoef(np.array(list(ranks_by_hand.values())).T), atol=1e-12)


def test_tied_pairs_share_their_rank():
    rows = [*curve("a", "x", [0.5, 0.1]), *curve("a", "y", [0.5, 0.2]), *curve("a", "z", [0.9, 0.3])]
    (one,) = graded(rows)
    assert one.correlations[0, 1] == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])


def test_a_pair_that_lacks_a_level_is_left_out_and_replicates_are_averaged():
    rows = [*ROWS, row("vit", "odd", 0, 0.5)]
    rows += [{**r, "column": f"r · #{k}", "replicate": k} for k in (0, 1) for r in curve("vit", "r", [0.2 + k / 2] * 3)]
    (one,) = graded(rows)
    assert {pair.method for pair in one.pairs} == {"msp", "knn", "<b>", "r"}
    assert next(pair for pair in one.pairs if pair.method == "r").auroc == pytest.approx((0.45,) * 3)


def test_rows_without_levels_give_no_section(tmp_path):
    assert graded([{**row("a", "b", 0, 0.5), "details": None}]) == []
    assert "Graded levels" not in render(results.Results([], [], {}, tmp_path), manager())


def test_every_chart_is_well_formed_and_shows_each_pair_once():
    (one,) = graded(ROWS)
    assert [chart.name for chart in one.charts] == ["levels", "severity", "risk", "ranking", "correlations"]
    for chart in one.charts:
        ElementTree.fromstring(str(chart.svg))
    lines = ElementTree.fromstring(str(one.charts[0].svg)).findall(".//{*}polyline/{*}title")
    assert sorted(line.text for line in lines) == ["resnet · knn", "resnet · msp", "vit · <b>"]
    assert [chart.svg for chart in one.charts] == [chart.svg for chart in graded(ROWS)[0].charts]


def test_a_single_pair_is_drawn_without_correlations():
    (one,) = graded(curve("a", "b", [0.5, 0.5]))
    assert [chart.name for chart in one.charts] == ["levels", "severity", "ranking"]


def test_fiood_curves_writes_pictures_and_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "load", lambda path: results.Results(ROWS, [], {}, path))
    said = CliRunner().invoke(fiood, ["curves", str(tmp_path)], catch_exceptions=False)
    assert said.output == f"wrote 7 files to {tmp_path / 'curves'}\n"
    with (tmp_path / "curves" / "hills.pool.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 9
    assert [line["auroc"] for line in lines if line["detector"] == "msp"] == ["0.9", "0.8", "0.5"]
    assert {line["id_aurc"] for line in lines if line["detector"] == "msp"} == {"0.1"}


def test_fiood_curves_says_that_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "load", lambda path: results.Results([], [], {}, path))
    said = CliRunner().invoke(fiood, ["curves", str(tmp_path)])
    assert "no benchmark with graded levels" in str(said.exception)
