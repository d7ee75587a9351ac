"""Suites and plans: what is asked for is understood, or every problem is named with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fiood_core import suite as suites
from fiood_core.errors import SuiteError
from fiood_core.plan import resolve
from fiood_core.request import Request

TINY = Path(__file__).parent / "tiny.py"

GOOD = f"""\
name: tiny
benchmark: {TINY}:TinyBenchmark
backbones: {TINY}:TinyNet
detectors:
  - msp
  - {TINY}:Largest
  - {{name: "{TINY}:Centre", power: 2}}
settings: {{device: cpu, batch_size: 8}}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        suites.read(text, source="s.yaml")
    return str(caught.value).splitlines()


def test_a_suite_gives_its_cells_in_order():
    plan = resolve(suites.read(GOOD))
    plan.require_sound()
    assert [(c.column, c.ood) for c in plan.cells] == [
        (column, ood) for column in ("msp", "./tiny.py:Largest", "./tiny.py:Centre(power=2)") for ood in ("near", "far")
    ]
    assert plan.settings.batch_size == 8


def test_the_resolved_suite_gives_the_same_plan_again():
    first = suites.read(GOOD)
    second = suites.read(first.text())
    assert second.text() == first.text()
    assert list(resolve(second).cells) == list(resolve(first).cells)


def test_every_problem_is_named_with_its_line():
    found = problems(
        "name: x\n"
        "benchmark: digits\n"
        "backbone: digits-cnn\n"
        "detectors:\n"
        "  - knn(k=)\n"
        "  - {k: 3}\n"
        "settings:\n"
        "  batchsize: 3\n"
        "  workers: many\n"
        "  precision: float16\n"
        "expect_top1: 99\n"
    )
    assert [line.split(":")[1] for line in found] == ["1", "3", "5", "6", "8", "9", "10", "11"]
    assert "'backbones' is missing" in found[0]
    assert "did you mean 'backbones'?" in found[1]
    assert "did you mean 'batch_size'?" in found[4]


def sets(given):
    """A suite whose benchmark is its sets."""
    return re.sub("benchmark: .*", f"benchmark: {{{given}}}", GOOD)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: [x\n", 2, "YAML"),
        ("- a\n- b\n", 1, "a suite is a mapping"),
        (GOOD.replace("settings:", "name: again\nsettings:"), 8, "given twice"),
        (GOOD.replace("name: tiny", "name: ../tiny"), 1, "letters"),
        (GOOD.replace("device: cpu", "device: !!python/object/apply:os.system [ls]"), 8, "python/object"),
        (GOOD.replace("batch_size: 8", "batch_size: true"), 8, "whole number"),
        (GOOD.replace("power: 2", "power: 2026-01-01"), 7, "no plain value"),
        (sets("id_test: noise, ood: {far: noise}"), 2, "unknown key 'id_test'"),
        (sets("train: noise, ood: {far: noise}"), 2, "its sets: 'id', 'ood'"),
        (sets("id: noise, ood: [noise]"), 2, "a mapping from set name"),
    ],
)
def test_a_broken_suite_is_refused_at_its_line(text, line, words):
    found = problems(text)
    assert found[0].startswith(f"s.yaml:{line}:"), found
    assert words in found[0]


def test_a_text_that_nests_too_deeply_is_refused():
    assert "nested too deeply" in problems("[" * 5000)[0]


def test_aliases_that_expand_without_end_are_refused():
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases" in problems("\n".join(levels))[0]


def test_unknown_names_are_gathered_with_near_ones():
    text = GOOD.replace("- msp", "- mps\n  - nonsense-detector").replace(f"{TINY}:TinyNet", "digits-cn")
    plan = resolve(suites.read(text, source="s.yaml"))
    with pytest.raises(SuiteError) as caught:
        plan.require_sound()
    found = str(caught.value)
    assert "s.yaml:5: no detector is registered as 'mps'; did you mean 'msp'" in found
    assert "s.yaml:6: no detector is registered as 'nonsense-detector'" in found
    assert "s.yaml:3: no backbone is registered as 'digits-cn'; did you mean 'digits-cnn'" in found


def test_a_parameter_that_does_not_exist_is_named_with_its_line():
    plan = resolve(suites.read(GOOD.replace("power", "powr"), source="s.yaml"))
    with pytest.raises(SuiteError, match=r"s\.yaml:7: .*powr"):
        plan.require_sound()


def test_all_and_globs_stand_for_registered_names():
    suite = suites.read(GOOD.replace("- msp", "- m*").replace("detectors:", "detectors:\n  - all"))
    names = [request.name for request in suite.detectors]
    assert "msp" in names
    assert len(names) == len(set(names))
    assert "msp" not in suite.named


def test_a_pattern_that_fits_nothing_is_a_problem():
    assert "no detector fits 'zzz*'" in problems(GOOD.replace("- msp", "- zzz*"))[0]


def test_a_pattern_leaves_out_what_cannot_run_and_a_name_is_refused():
    text = GOOD.replace(f"{TINY}:TinyBenchmark", f'{{name: "{TINY}:TinyBenchmark", train: 0}}')
    plan = resolve(suites.read(text.replace("- msp", "- all")))
    refused = [v for v in plan.variants if plan.problem(*next(plan.groups), v)]
    assert [v.column for v in refused] == ["./tiny.py:Centre(power=2)"]
    assert "training" in plan.problem(*next(plan.groups), refused[0]).reason
    assert all("Centre" not in column for column in plan.left_out)


def test_sets_given_one_by_one_make_a_benchmark(tmp_path):
    text = GOOD.replace(
        f"benchmark: {TINY}:TinyBenchmark",
        f"""benchmark:
  id: {{name: "{TINY}:Pictures"}}
  ood:
    near: {{group: near, dataset: {{name: "{TINY}:Pictures", count: 9, labelled: false}}}}
    gone: {{name: "{TINY}:Pictures", gone: true}}
    none: {{name: "{TINY}:Pictures", count: 0}}""",
    )
    plan = resolve(suites.read(text))
    (benchmark,) = plan.benchmarks
    assert benchmark.name == "tiny"
    assert benchmark.ood["near"].group == "near"
    assert benchmark.ood["gone"].missing == ("the pictures of 'id' are missing; draw them",)
    assert "no pictures" in benchmark.ood["none"].missing[0]
    assert suites.read(resolve(suites.read(text)).suite.text()).text() == suites.read(text).text()


def test_relative_paths_of_a_suite_are_taken_from_its_folder(tmp_path):
    (tmp_path / "suite.yaml").write_text(GOOD.replace(str(TINY), "./mine.py"))
    (tmp_path / "mine.py").write_text(TINY.read_text())
    plan = resolve(suites.load(tmp_path / "suite.yaml"))
    plan.require_sound()
    assert plan.backbones[0].request.name == f"{tmp_path}/mine.py:TinyNet"


def test_the_plan_of_a_file_changes_with_its_text(tmp_path):
    (tmp_path / "mine.py").write_text(TINY.read_text())
    text = GOOD.replace(f"{TINY}:Largest", f"{tmp_path}/mine.py:Largest")
    before = resolve(suites.read(text)).variants[1]
    assert before.version.startswith("sha256:")
    assert before.distribution == "mine.py"


def test_precision_of_the_suite_is_a_default():
    text = GOOD.replace("settings: {", "settings: {precision: float64, ").replace("power: 2", "precision: float32")
    plan = resolve(suites.read(text))
    assert [v.detector.precision for v in plan.variants] == ["float64", "float64", "float32"]


def test_a_detector_named_twice_is_one_and_two_of_one_label_are_refused(tmp_path):
    (tmp_path / "tiny.py").write_text(TINY.read_text())
    assert len(suites.read(GOOD.replace("- msp", "- msp\n  - msp")).detectors) == 3
    two = GOOD.replace("- msp", f"- {tmp_path}/tiny.py:Largest")
    with pytest.raises(SuiteError, match="both called"):
        resolve(suites.read(two)).require_sound()


def test_embedded_suites_can_be_planned():
    for path in suites.EMBEDDED.glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["name"] == path.stem
        suites.load(path.stem)


def test_a_request_survives_as_plain_data():
    request = Request.parse("detector", "knn(k=50, precision=float64)")
    assert Request.from_data("detector", request.data()) == request
    assert str(request) == "knn(k=50, precision='float64')"
