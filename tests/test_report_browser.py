"""The report in a real browser: what is drawn, sorted and pressed, and that hostile text stays text."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fiood_core.hookspecs import Section, hookimpl
from fiood_core.report import write_report

pytestmark = pytest.mark.slow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
SETS = {"<img src=x onerror=document.title='pwned'>": "near", "moors": "near", "static": "far"}


def _unit_tests() -> Any:
    """The module beside this one, whose results these tests draw."""
    spec = importlib.util.spec_from_file_location("report_unit_tests", Path(__file__).with_name("test_report.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


unit = _unit_tests()
HOSTILE = unit.HOSTILE


class Unclosed:
    """A section that closes nothing it opens."""

    @hookimpl
    def fiood_report_sections(self, results: Any) -> list[Section]:
        return [Section("Unclosed", "<div><table><tr><td><b>open <!-- and a comment")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    results = unit.make_results(
        tmp_path_factory.mktemp("results"),
        backbones={HOSTILE: 0.0, "vit": 0.4},
        detectors={"msp": 0.4, "knn": 1.0, f"energy{HOSTILE}": 0.7},
        sets=SETS,
        failed=(("knn", "static"),),
    )
    write_report(results, results.directory / "report.html", unit.manager(Unclosed()))
    return results


@pytest.fixture
def page(browser: Any, found: Any) -> Iterator[Any]:
    size(browser, 1200)
    browser.get((found.directory / "report.html").as_uri())
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []


def size(browser: Any, width: int) -> None:
    view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)


def texts(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
    return browser.execute_script(script, selector)


def press(browser: Any, selector: str, number: int = 0) -> None:
    browser.execute_script("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, number)


def choose(browser: Any, selector: str, label: str) -> None:
    script = """
        const select = document.querySelector(arguments[0]);
        select.value = [...select.options].find((option) => option.textContent === arguments[1]).value;
        select.dispatchEvent(new Event("change"));
    """
    browser.execute_script(script, selector, label)


def percents(cells: list[str]) -> list[float]:
    return [float(cell.split("±")[0]) for cell in cells]


AUROC = "#results-table th[data-name=auroc]"
AUROC_CELLS = "#results-table tbody td:nth-child(6)"


def test_all_results_are_sorted_by_press_and_by_key(page, found):
    from selenium.webdriver.common.keys import Keys

    expected = sorted((r["auroc"] for r in found.rows), reverse=True)
    assert texts(page, "#results-table thead th")[5].strip() == "AUROC"
    before = percents(texts(page, AUROC_CELLS))
    press(page, f"{AUROC} button")
    after = percents(texts(page, AUROC_CELLS))
    assert after == [float(f"{100 * value:.2f}") for value in expected] != before
    head = page.find_element("css selector", AUROC)
    assert head.get_attribute("aria-sort") == "descending"
    page.find_element("css selector", f"{AUROC} button").send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "ascending"
    assert percents(texts(page, AUROC_CELLS)) == after[::-1]
    assert "AUROC, ascending" in texts(page, "#said")[0]


def test_names_are_sorted_as_text_and_only_one_column_is_marked(page):
    press(page, f"{AUROC} button")
    press(page, "#results-table th[data-name=method] button")
    shown = texts(page, "#results-table tbody td:nth-child(2)")
    assert shown == sorted(shown)
    assert len(page.find_elements("css selector", "#results-table [aria-sort]")) == 1


def test_rows_are_filtered_and_counted(page, found):
    choose(page, "#s-all-results select[data-name=group]", "far")
    assert set(texts(page, "#results-table tbody td:nth-child(4)")) == {"static"}
    box = page.find_element("css selector", "#results-search")
    box.send_keys("vit msp")
    assert texts(page, "#results-where") == ["rows 1 to 1 of 1"]


def test_the_comparison_shows_the_chosen_backbone_and_metric(page, found):
    choose(page, "#comparison-backbone", "vit")
    press(page, "input[name=comparison-metric][value=fpr95]")
    rows = [r for r in found.rows if r["backbone"] == "vit" and r["ood"] == "moors"]
    column = texts(page, "#comparison-table thead tr:nth-child(2) th").index("moors") + 1
    shown = texts(page, f"#comparison-table tbody td:nth-child({column + 1})")
    assert shown == [f"{100 * r['fpr95']:.2f}±{100 * r['fpr95_stderr']:.2f}" for r in rows]
    best = texts(page, f"#comparison-table tbody td.best:nth-child({column + 1})")
    assert percents(best) == [min(percents(shown))]


def test_the_comparison_is_sorted_with_missing_values_last(page):
    column = texts(page, "#comparison-table thead tr:nth-child(2) th").index("static") + 1
    heads = page.find_elements("css selector", "#comparison-table thead tr:nth-child(2) th button")
    for _ in range(2):
        page.execute_script("arguments[0].click()", heads[column - 1])
        shown = texts(page, f"#comparison-table tbody td:nth-child({column + 1})")
        assert shown[-1] == "–"
    assert percents(shown[:2]) == sorted(percents(shown[:2]))


def test_the_best_detectors_are_sorted(page):
    press(page, "#s-best-detectors th[data-column='3'] button")
    first = percents(texts(page, "#s-best-detectors tbody td:nth-child(4)"))
    press(page, "#s-best-detectors th[data-column='3'] button")
    assert percents(texts(page, "#s-best-detectors tbody td:nth-child(4)")) == first[::-1]
    assert first[0] > first[1]


def test_a_chosen_cell_has_its_histogram_and_curve(page, found):
    for selector, label in (("#plot-backbone", "vit"), ("#plot-method", "knn"), ("#plot-ood", "moors")):
        choose(page, selector, label)
    (row,) = [r for r in found.rows if (r["backbone"], r["detector"], r["ood"]) == ("vit", "knn", "moors")]
    assert texts(page, "#histogram-caption b") == ["Scores: knn on moors"]
    for shape in (".in.area", ".out.area", ".in-line", ".out-line", ".rule"):
        (drawn,) = page.find_elements("css selector", f"#histogram {shape}")
        assert drawn.rect["height"] > 50, shape
    threshold = texts(page, "#histogram .strong")[0]
    assert float(threshold.split(":")[1].replace("−", "-")) == pytest.approx(row["threshold"], rel=1e-3)
    assert f"{100 * row['fpr95']:.2f} %" in " ".join(texts(page, "#roc .strong"))
    assert f"{100 * row['auroc']:.2f} ±{100 * row['auroc_stderr']:.2f} %" in texts(page, "#plot-readout dd")
    assert len(page.find_elements("css selector", "#roc .curve.chosen")) == 1
    assert len(texts(page, "#plot-others button")) == 2


def test_a_row_and_a_number_lead_to_their_plot(page):
    press(page, "#results-table tbody button", 1)
    assert texts(page, "#histogram-caption b") == ["Scores: msp on moors"]
    press(page, "#comparison-table td[data-plot]", 0)
    assert texts(page, "#histogram-caption b") == [f"Scores: msp on {next(iter(SETS))}"]


def test_another_curve_lights_up_and_is_chosen(page):
    press(page, "input[name=plot-beside][value=ood]")
    others = texts(page, "#plot-others button")
    assert len(others) == 2
    page.execute_script("document.querySelector('#plot-others button').focus()")
    assert len(page.find_elements("css selector", "#roc .curve.lit")) == 1
    press(page, "#plot-others button")
    assert texts(page, "#roc-caption b")[0].split(" on ")[1] in others[0]


def test_hostile_names_are_shown_as_they_are_and_run_nothing(page):
    assert page.title == "a walk · fiood report"
    assert HOSTILE in texts(page, "#results-table tbody td:first-child")
    assert HOSTILE in texts(page, "#plot-backbone option")
    assert any(HOSTILE in reason for reason in texts(page, "td.reason"))
    assert page.find_elements("css selector", "img") == []
    assert len(page.find_elements("css selector", "script")) == 2


def test_nothing_is_loaded(page):
    assert page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_a_section_that_closes_nothing_leaves_the_report_alive(page):
    assert texts(page, "#s-unclosed h2") == ["Unclosed"]
    assert texts(page, "#s-unclosed b")[0].startswith("open")


@pytest.mark.parametrize("width", [1200, 400])
def test_the_page_fits_its_window(page, width):
    size(page, width)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    (drawing,) = page.find_elements("css selector", "#histogram svg")
    assert drawing.rect["width"] <= width


def test_text_has_enough_contrast_in_light_and_dark(page):
    script = """
        const style = getComputedStyle(document.documentElement);
        const light = (name) => {
          const parts = style.getPropertyValue(name).trim().match(/[0-9a-f]{2}/gi);
          const channels = parts.map((part) => parseInt(part, 16) / 255);
          const [r, g, b] = channels.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        return arguments[0].map((pair) => {
          const [a, b] = pair.map((name) => light(name) + 0.05);
          return Math.max(a, b) / Math.min(a, b);
        });
    """
    words = ("--text", "--muted", "--link", "--bad", "--good", "--warn")
    pairs = [[word, ground] for word in words for ground in ("--page", "--panel")] + [["--warn", "--warn-panel"]]
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        ratios = page.execute_script(script, pairs)
        assert {tuple(p): r for p, r in zip(pairs, ratios, strict=True) if r < 4.5} == {}, scheme
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_every_table_and_control_has_a_name(page):
    script = """
        const bad = (selector, test) => [...document.querySelectorAll(selector)].filter(test).length;
        return bad("table", (table) => !table.caption && table.closest("#s-unclosed") === null)
          + bad("thead th", (th) => !th.scope || !th.textContent.trim())
          + bad("select, input", (input) => input.labels.length === 0)
          + bad("svg", (svg) => svg.getAttribute("role") !== "img");
    """
    assert page.execute_script(script) == 0
