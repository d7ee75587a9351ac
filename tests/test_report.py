"""The report: exact numbers, hostile text inert, equal bytes for equal results; see test_report_browser.py too."""

from __future__ import annotations

import base64
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pluggy
import pytest
from click.testing import CliRunner

from fiood_core import hookspecs, results
from fiood_core.cli.report import command
from fiood_core.hookspecs import Section, hookimpl
from fiood_core.metrics import evaluate
from fiood_core.report import render, write_report
from fiood_core.report.curves import BINS, SHARES, Inside, pack, pack_rising
from fiood_core.report.payload import AT95, FRACTIONS, fractions, payload
from fiood_core.report.sections import _web
from fiood_core.report.standing import reasons
from fiood_core.report.views import EVERY_GROUP, Views

HOSTILE = "<script>document.title='pwned'</script>\"'&\u2028\u202eевил"
SETS = {"tarns": "near", "moors": "near", "static": "far"}


def make_results(
    directory: Path,
    *,
    backbones: dict[str, float] | None = None,
    detectors: dict[str, float] | None = None,
    sets: dict[str, str] | None = None,
    n_id: int = 400,
    n_ood: int = 300,
    benchmark: str = "hills",
    failed: tuple[tuple[str, str], ...] = (),
) -> results.Results:
    """Results with real scores: normal ones, shifted by how good the backbone, the detector and the set are."""
    rows, broken = [], []
    for b, (backbone, strength) in enumerate((backbones or {"resnet": 0.0}).items()):
        pools: dict[str, dict[str, np.ndarray]] = {}
        for d, (detector, skill) in enumerate((detectors or {"msp": 0.4, "knn": 1.0}).items()):
            random = np.random.default_rng([b, d])
            inside = random.normal(2, 1, n_id)
            pools.setdefault("", {})[detector] = inside
            for s, (ood, group) in enumerate((sets or SETS).items()):
                row = {
                    "benchmark": benchmark,
                    "backbone": backbone,
                    "backbone_key": f"{b:064x}",
                    "detector": detector,
                    "column": detector,
                    "distribution": f"fiood-detector-{detector}",
                    "version": "0.1.0",
                    "parameters": json.dumps({"precision": "float32"}),
                    "protocol": "fpr@95:percentile-linear",
                    "id_digest": "1d" * 32,
                    "ood": ood,
                    "ood_digest": f"{s:064x}",
                    "group": group,
                    "subset": "all",
                    "aggregation": "pooled",
                    "canonical": True,
                    "publishable": True,
                    "skipped": 0,
                    "top1": 0.75,
                }
                if (detector, ood) in failed:
                    broken.append(results.complete({**row, "status": "failed", "reason": f"no {HOSTILE} there"}))
                    continue
                outside = random.normal(2 - skill - strength - (group == "far"), 1.2, n_ood)
                pools.setdefault(ood, {})[detector] = outside
                place = results.scores_path(benchmark, backbone, ood)
                metrics = asdict(evaluate(inside, outside))
                rows.append(results.complete({**row, **metrics, "status": "ok", "scores": place}))
        for ood, columns in pools.items():
            count = len(next(iter(columns.values())))
            path = directory / results.scores_path(benchmark, backbone, ood or None)
            results.write_scores(path, [f"{i}.png" for i in range(count)], columns)
    return results.Results(rows, broken, {"suite": "a walk"}, directory)


def manager(*plugins: object) -> pluggy.PluginManager:
    """A plugin manager with the core's hooks and these, and none that happens to be installed."""
    found = pluggy.PluginManager(hookspecs.PROJECT)
    found.add_hookspecs(hookspecs)
    for number, plugin in enumerate(plugins):
        found.register(plugin, name=f"third-party {number}")
    return found


def unpacked(text: str) -> list[int]:
    """What :func:`pack` was given; written apart from it."""
    values, value, shift = [], 0, 0
    for byte in base64.b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value)
            value, shift = 0, 0
    return values


def data_of(html: str) -> dict:
    """The data that the page's script reads."""
    found = re.search(r'<script type="application/json" id="fiood-data">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


# -- curves --------------------------------------------------------------------------------------------------------

RANDOM = np.random.default_rng(7)
PAIRS = {
    "normal": (RANDOM.normal(2, 1, 997), RANDOM.normal(0, 1, 503)),
    "saturated": (np.minimum(RANDOM.normal(1, 1, 800), 1.0), np.minimum(RANDOM.normal(0, 1, 300), 1.0)),
    "all equal": (np.ones(20), np.ones(5)),
    "hand": (np.arange(1.0, 21.0), np.array([0.5, 1.5, 2, 10, 25])),
    "one each": (np.array([0.25]), np.array([0.75])),
    "huge": (RANDOM.normal(0, 1e307, 100), RANDOM.normal(0, 1e307, 100)),
    "far apart": (RANDOM.normal(-300, 50, 500), RANDOM.normal(-1e9, 1e6, 500)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_curve_holds_the_95_percent_point_exactly(name):
    inside, outside = PAIRS[name]
    metrics = evaluate(inside, outside)
    prepared = Inside(inside)
    _, above = prepared.against(outside)
    assert prepared.thresholds[AT95] == metrics.threshold
    assert above[AT95] / len(outside) == metrics.fpr95
    assert prepared.curve[AT95] == np.count_nonzero(inside >= metrics.threshold)


@pytest.mark.parametrize("name", PAIRS)
def test_every_point_of_a_curve_is_one_of_the_true_curve(name):
    inside, outside = PAIRS[name]
    prepared = Inside(inside)
    _, above = prepared.against(outside)
    assert len(above) == len(SHARES) <= 200
    for threshold, hits, alarms in zip(prepared.thresholds, prepared.curve, above, strict=True):
        assert hits == np.count_nonzero(inside >= threshold)
        assert alarms == np.count_nonzero(outside >= threshold)


def test_a_thinned_curve_has_nearly_the_area_of_the_whole():
    inside, outside = PAIRS["normal"]
    prepared = Inside(inside)
    _, above = prepared.against(outside)
    hits = np.array([0, *prepared.curve, len(inside)]) / len(inside)
    alarms = np.array([0, *above, len(outside)]) / len(outside)
    area = float(np.sum(np.diff(alarms) * (hits[1:] + hits[:-1]) / 2))
    assert area == pytest.approx(evaluate(inside, outside).auroc, abs=0.002)


@pytest.mark.parametrize("name", PAIRS)
def test_a_histogram_counts_every_score_once(name):
    inside, outside = PAIRS[name]
    histogram, _ = Inside(inside).against(outside)
    assert len(histogram.inside) == len(histogram.outside) == BINS
    assert sum(histogram.inside) == len(inside)
    assert sum(histogram.outside) == len(outside)
    assert histogram.low < histogram.high


def test_a_histogram_puts_scores_where_they_are():
    histogram, _ = Inside(np.array([0.0, 0.1, 1.0])).against(np.array([0.999, 0.5]))
    assert (histogram.low, histogram.high, histogram.beyond) == (0.0, 1.0, 0)
    assert [i for i, n in enumerate(histogram.inside) if n] == [0, int(0.1 * BINS), BINS - 1]
    assert [i for i, n in enumerate(histogram.outside) if n] == [BINS // 2, BINS - 1]


def test_one_stray_score_does_not_squeeze_a_histogram():
    inside = np.append(np.random.default_rng(0).normal(0, 1, 5000), -1e6)
    histogram, _ = Inside(inside).against(np.zeros(100))
    assert histogram.low > -6
    assert histogram.beyond >= 1
    assert sum(histogram.inside) == 5001


@pytest.mark.parametrize("values", [[], [0], [127, 128, 0, 16383, 16384, 2**40]])
def test_packed_numbers_come_back(values):
    assert unpacked(pack(values)) == values


def test_a_rising_sequence_is_packed_as_steps():
    assert unpacked(pack_rising([3, 3, 130, 1000])) == [3, 0, 127, 870]


def test_thirty_backbones_by_twenty_one_detectors_by_fifteen_sets_stay_below_fifteen_megabytes():
    random = np.random.default_rng(0)
    histogram, above = Inside(random.normal(2, 1, 50_000)).against(random.normal(0, 3, 10_000))
    cell = sum(map(len, (pack(histogram.inside), pack(histogram.outside), pack_rising(above))))
    row = 60  # a line of the packed table
    assert 30 * 21 * 15 * (cell + row + 60) < 14e6


# -- views ---------------------------------------------------------------------------------------------------------


def row(method="msp", ood="tarns", auroc=0.9, fpr95=0.3, **other):
    """A row with metrics, as far as views read it."""
    given = {
        "benchmark": "hills",
        "backbone": "resnet",
        "column": method,
        "replicate": None,
        "group": SETS.get(ood, "near"),
        "ood": ood,
        "subset": "all",
        "aggregation": "pooled",
        "auroc": auroc,
        "fpr95": fpr95,
        "auroc_stderr": 0.01,
        "fpr95_stderr": 0.02,
        "top1": None,
    }
    return {**given, **other}


def best(views: Views, group: str) -> list:
    found = {g.name: g for g in views.groups("hills")}
    return views.best("hills", "resnet", found[group])


def test_the_best_detector_has_the_highest_mean_auroc_of_a_group():
    views = Views(
        [
            row("a", "tarns", 0.9),
            row("a", "moors", 0.7),
            row("a", "static", 0.99),
            row("b", "tarns", 0.8),
            row("b", "moors", 0.85),
            row("b", "static", 0.95),
        ]
    )
    assert [g.name for g in views.groups("hills")] == ["near", "far", EVERY_GROUP]
    near = best(views, "near")
    assert (near.method, near.next_method) == ("b", "a")
    assert near.value.auroc == pytest.approx(0.825)
    assert near.lead == pytest.approx(0.025)
    assert best(views, "far").method == "a"
    assert best(views, EVERY_GROUP).value.auroc == pytest.approx((0.8 + 0.85 + 0.95) / 3)


def test_a_tie_goes_to_the_lower_fpr_and_then_to_the_first_name():
    assert best(Views([row("a", fpr95=0.3), row("b", fpr95=0.2)]), "near").method == "b"
    assert best(Views([row("b", fpr95=0.2), row("a", fpr95=0.2)]), "near").method == "a"


def test_a_detector_that_lacks_a_set_is_not_ranked():
    views = Views([row("a", "tarns", 0.99), row("b", "tarns", 0.8), row("b", "moors", 0.8)])
    assert best(views, "near").method == "b"
    assert best(views, "near").not_ranked == ("a",)
    assert views.mean(views.tables["hills"]["resnet"]["a"], views.columns("hills")) is None


def test_nobody_is_best_where_nobody_is_complete():
    assert best(Views([row("a", "tarns"), row("b", "moors")]), "near") is None


def test_a_set_counts_once_by_its_pooled_value():
    views = Views(
        [
            row(auroc=0.9),
            row(auroc=0.5, aggregation="class-mean"),
            row(auroc=0.1, subset="bog"),
            row(ood="moors", auroc=0.7),
        ]
    )
    columns = views.columns("hills")
    assert {(c.ood, c.subset, c.aggregation) for c in columns} == {
        ("tarns", "all", "pooled"),
        ("tarns", "all", "class-mean"),
        ("moors", "all", "pooled"),
    }
    assert views.mean(views.tables["hills"]["resnet"]["msp"], columns).auroc == pytest.approx(0.8)


def test_a_set_without_a_value_of_its_own_counts_by_its_subsets():
    views = Views([row(subset=f"level {i}", auroc=0.5 + i / 10) for i in range(5)])
    columns = views.columns("hills")
    assert [c.subset for c in columns] == [f"level {i}" for i in range(5)]
    assert views.mean(views.tables["hills"]["resnet"]["msp"], columns).auroc == pytest.approx(0.7)


def test_replicates_are_one_method_and_averaged():
    rows = [row(f"eoe · words · #{i}", replicate=i, auroc=0.8 + i / 10) for i in range(2)]
    views = Views(rows)
    assert views.methods == ["eoe · words"] * 2
    (value,) = views.tables["hills"]["resnet"]["eoe · words"].values()
    assert value.auroc == pytest.approx(0.85)
    assert value.auroc_stderr == pytest.approx(0.1 / 2**0.5)  # over replicates, their standard deviation


def test_groups_come_near_far_and_then_as_they_are():
    views = Views([row(ood=o, group=g) for o, g in (("x", "covariate"), ("y", "far"), ("z", "near"))])
    assert [g.name for g in views.groups("hills")] == ["near", "far", "covariate", EVERY_GROUP]


# -- standing ------------------------------------------------------------------------------------------------------


def test_a_whole_canonical_gated_run_is_publishable(tmp_path):
    found = make_results(tmp_path)
    assert reasons(found) == []
    assert "<strong>Publishable</strong>" in render(found, manager())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"skipped": 3}, "pictures were skipped"),
        ({"canonical": False}, "stand-in"),
        ({"publishable": False}, "marks 1 of 6 rows"),
    ],
)
def test_what_keeps_a_run_from_being_published_is_said(tmp_path, change, reason):
    found = make_results(tmp_path)
    found.rows[0].update(change)
    (said,) = reasons(found)
    assert reason in said
    assert "Not publishable" in render(found, manager())


def test_an_accuracy_that_nobody_declared_is_said(tmp_path):
    found = make_results(tmp_path)
    gates = [{"message": f"backbone {i}: none declared", "top1": 0.5, "expected": None, "count": 9} for i in range(7)]
    declared = {"message": "as expected", "top1": 0.5, "expected": 0.5, "count": 9}
    found.run["groups"] = [{"benchmark": "hills", "gate": gate, "sets": []} for gate in (*gates, declared, None)]
    assert reasons(found) == [
        *(f"backbone {i}: none declared" for i in range(5)),
        "and 2 more accuracy gates had nothing declared",
    ]


def test_a_failed_cell_stands_with_its_reason(tmp_path):
    found = make_results(tmp_path, failed=(("msp", "moors"),))
    (said,) = reasons(found)
    assert said == "cells are without a result: 1 failed"
    html = render(found, manager())
    assert "1 cell without a result" in html
    assert "no &lt;script&gt;" in html


def test_skipped_pictures_are_listed_with_their_reasons(tmp_path):
    found = make_results(tmp_path)
    skipped = [{"name": "id", "skipped": [["a/<b>.png", "truncated"]]}]
    found.run["groups"] = [{"benchmark": "hills", "backbone": b, "gate": None, "sets": skipped} for b in ("x", "y")]
    html = render(found, manager())
    assert html.count("a/&lt;b&gt;.png") == 1
    assert "1 picture could not be decoded" in html


# -- page ----------------------------------------------------------------------------------------------------------


def test_the_page_holds_every_metric(tmp_path):
    found = make_results(tmp_path, backbones={"resnet": 0.0, "vit": 0.4})
    rows = data_of(render(found, manager()))["rows"]
    for name in FRACTIONS:
        values = [(value - 1) / 1e8 for value in unpacked(rows[name])]
        np.testing.assert_allclose(values, [r[name] for r in found.rows], atol=1.1e-8)
    assert unpacked(rows["n_id"]) == [400] * 12


def test_a_half_is_rounded_as_python_does():
    for value in (0.75135, 0.7513500000000001, 0.60125, 0.00005, 1.0, 0.0):
        (units,) = unpacked(fractions([value]))
        assert f"{(units - 1) / 1e6:.2f}" == f"{100 * value:.2f}"
        assert (units - 1) % 10_000 != 5_000


def test_an_undefined_metric_is_none(tmp_path):
    found = make_results(tmp_path)
    found.rows[1]["auroc_stderr"] = None
    assert unpacked(data_of(render(found, manager()))["rows"]["auroc_stderr"])[1] == 0


def test_equal_results_give_equal_bytes_whenever_and_wherever_they_were_made(tmp_path):
    first, second = make_results(tmp_path / "a"), make_results(tmp_path / "b")
    first.run.update(started="2026-01-01T00:00:00", seconds=3.5, host="fell", platform="Linux", tasks=4)
    second.run.update(started="2026-06-01T00:00:00", seconds=9.5, host="beck", platform="Linux", tasks=0)
    for found in (first, second):
        write_report(found, found.directory / "report.html", manager())
    assert (tmp_path / "a/report.html").read_bytes() == (tmp_path / "b/report.html").read_bytes()
    assert not {"fell", "2026-01-01"} & set(re.findall(r"[\w-]+", (tmp_path / "a/report.html").read_text()))


def test_the_record_is_shown_without_times_and_host(tmp_path):
    found = make_results(tmp_path)
    found.run.update(
        commit="c0ffee", versions={"torch": "9.9"}, host="fell", settings={"seed": 17}, hardware={"cores": 2}
    )
    html = render(found, manager())
    for shown in ("c0ffee", "9.9", "17", 'href="run.json"'):
        assert shown in html
    assert "fell" not in html


def test_the_page_asks_for_nothing_from_outside(tmp_path):
    html = render(make_results(tmp_path), manager())
    assert "default-src 'none'" in html
    assert not re.search(
        r"""(src\s*=|url\(|@import|<link(?! rel="icon" href="data:,"))""", html.replace("font-src", "")
    )


def test_hostile_names_are_escaped_everywhere(tmp_path):
    found = make_results(
        tmp_path,
        backbones={HOSTILE: 0.0},
        detectors={f"d{HOSTILE}": 0.3},
        sets={f"o{HOSTILE}": HOSTILE},
        benchmark=f"b{HOSTILE}",
    )
    found.run["suite"] = f"suite {HOSTILE}"
    found.run["settings"] = {HOSTILE: HOSTILE}
    html = render(found, manager())
    assert "<script>document" not in html
    assert len(re.findall("<script", html)) == 2  # the page's own, and its data
    assert data_of(html)["names"]["backbone"] == [HOSTILE]


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "JAVASCRIPT:x", "//a.example", None])
def test_only_web_addresses_become_links(address):
    assert _web(address) is None
    assert _web("https://arxiv.org/abs/1610.02136")


def test_a_name_in_the_results_never_decides_what_is_imported(tmp_path):
    module = tmp_path / "trap_of_the_report.py"
    module.write_text("raise SystemExit('imported')")
    found = make_results(tmp_path, detectors={"msp": 0.3})
    for name in ("trap_of_the_report:X", f"{module}:X", "no-such"):
        found.rows[0]["detector"] = name
        html = render(found, manager())
        assert "It is not registered here" in html
    assert "trap_of_the_report" not in sys.modules


def test_scores_that_cannot_be_read_cost_only_their_plots(tmp_path):
    found = make_results(tmp_path)
    (tmp_path / found.rows[0]["scores"]).write_bytes(b"PAR1 no more")
    (tmp_path / found.rows[1]["scores"]).unlink()
    html = render(found, manager())
    assert "No plot for 2 score files" in html
    data = data_of(html)
    assert len(unpacked(data["rows"]["auroc"])) == 6
    assert len(data["plots"]["curve"]) == 2


def test_scores_outside_the_results_are_not_read(tmp_path):
    outside = make_results(tmp_path / "elsewhere")
    found = make_results(tmp_path / "here")
    for one, other in zip(found.rows, outside.rows, strict=True):
        one["scores"] = f"../elsewhere/{other['scores']}"
    _, unread = payload(Views(found.rows), found.directory)
    assert len(unread) == 3
    assert all("outside" in reason for _, reason in unread)


def test_results_without_a_row_still_make_a_page(tmp_path):
    html = render(results.Results([], [], {}, tmp_path), manager())
    assert "there is no result" in html
    assert "There are no results." in html


# -- sections of others --------------------------------------------------------------------------------------------


class Appends:
    @hookimpl
    def fiood_report_sections(self, results):
        return [Section("Weather", f"<p id='rain'>{len(results.rows)} rows</p>"), Section("Scores", "<b>twice</b>")]


class Breaks:
    @hookimpl
    def fiood_report_sections(self, results):
        raise SystemExit(f"no {HOSTILE}")


class Lies:
    @hookimpl
    def fiood_report_sections(self, results):
        return [Section("Lies", None)]


def test_sections_of_others_come_last_as_they_are(tmp_path):
    html = render(make_results(tmp_path), manager(Appends()))
    ids = re.findall(r'<section id="([^"]+)"', html)
    assert ids[-2:] == ["s-weather", "s-scores-2"]
    assert ids[0] == "s-best-detectors"
    assert "<p id='rain'>6 rows</p>" in html


def test_a_failing_section_is_shown_with_its_reason_and_harms_no_other(tmp_path):
    found = make_results(tmp_path)
    html = render(found, manager(Breaks(), Lies(), Appends()))
    assert "This section of <code>third-party 0</code> failed" in html
    assert "SystemExit: no &lt;script&gt;" in html
    assert "text, not NoneType" in html
    assert "6 rows" in html
    assert data_of(html)["rows"]


def test_the_reports_own_sections_come_through_the_hook():
    found = manager()
    render(results.Results([], [], {}, Path()), found)
    assert [one.plugin_name for one in found.hook.fiood_report_sections.get_hookimpls()] == ["fiood-core (report)"]
    assert "fiood-core (report)" in dict(hookspecs.manager().list_name_plugin())


def test_fiood_report_writes_the_page_anew(tmp_path):
    found = make_results(tmp_path)
    results.write_rows(tmp_path, found.rows)
    results.write_json(tmp_path / "run.json", found.run)
    done = CliRunner().invoke(command, [str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "a walk" in (tmp_path / "report.html").read_text(encoding="utf-8")
