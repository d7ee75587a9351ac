"""A shelf of broken plugins leaves the listing quick and every good plugin working."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from fiood_core import registry

GOOD = """
from fiood_core import Detector

class Mine(Detector):
    def score_block(self, block):
        return block.max_logit
"""

BROKEN = {
    "aa-raises": ("raise RuntimeError('broken on purpose')", "RuntimeError: broken on purpose"),
    "aa-exits": ("import sys; sys.exit('no thanks')", "SystemExit: no thanks"),
    "aa-lacks": ("import aa_no_such_library", "No module named 'aa_no_such_library'"),
    "aa-new": (GOOD + "    api_version = 99\n", "API 99; this core serves 1 to 1: update fiood-core"),
    "aa-slow": ("import time; time.sleep(10)\n" + GOOD, "did not load within 4 s"),
    "aa-dies": ("import os; os._exit(5)", "ended the process (exit status 5)"),
    "aa-crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended the process (exit status -11)"),
    "aa-reads": ("if input() == '': pass", "EOFError"),
}


@pytest.fixture
def shelf(install, monkeypatch):
    """Environment of a process that finds the shelf, two good plugins, and two that clash; the rest is switched off."""
    for name, (source, _) in BROKEN.items():
        install(name, {name: f"{name.replace('-', '_')}:Mine"}, source)
    install("aa-good", {"aa-good": "aa_good:Mine"}, f"print('noise')\n{GOOD}")
    install("aa-one", {"aa-clash": "aa_one:Mine"}, GOOD)
    folder = install("aa-two", {"aa-clash": "aa_two:Mine"}, GOOD)
    others = {c.distribution for c in [*registry.components(), *registry.hooks()]} - {"fiood-detector-msp"}
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "FIOOD_DISABLE": ",".join(sorted(others)),
    }


def fiood(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from fiood_core.cli import main; sys.argv[0] = 'fiood'; main()"
    return python(env, code, *arguments)


def python(env: dict[str, str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)


def test_listing_is_quick_and_marks_the_clash(shelf):
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = fiood(shelf, "plugins")
        seconds.append(time.perf_counter() - began)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in BROKEN)
    clash = [line for line in done.stdout.splitlines() if "aa-clash" in line]
    assert len(clash) == 2
    assert all("[clash: claimed by aa-" in line for line in clash)
    assert min(seconds) < 1.0


def test_every_good_plugin_works_beside_them(shelf):
    code = """
import fiood_core as fiood
batch = fiood.FeatureSet(logits=[[1.0, 0.0]])
print(fiood.detector("aa-good").score(batch), fiood.detector("msp").score(batch))
for name in fiood.names("detectors"):
    try:
        fiood.detector(name)
    except fiood.FioodError as error:
        print(name, "refused")
"""
    shelf["FIOOD_DISABLE"] += ",aa-slow,aa-dies,aa-crashes"
    done = python(shelf, code)
    assert done.returncode == 0, done.stderr
    assert "[1.] [0.731058" in done.stdout
    refused = {line.split()[0] for line in done.stdout.splitlines() if line.endswith("refused")}
    assert refused == {"aa-raises", "aa-exits", "aa-lacks", "aa-new", "aa-reads", "aa-clash"}


@pytest.mark.slow
def test_check_gives_the_reason_of_each(shelf):
    done = fiood(shelf, "plugins", "--check", "--timeout", "4", "--json")
    assert done.returncode == 1, done.stderr
    rows = {(row["name"], row["distribution"]): row for row in json.loads(done.stdout)}
    for name, (_, reason) in BROKEN.items():
        row = rows[name, name]
        assert row["status"] == "broken"
        assert reason in row["reason"]
    assert rows["aa-good", "aa-good"]["status"] == "ok"
    assert rows["msp", "fiood-detector-msp"]["status"] == "ok"
    assert {rows["aa-clash", name]["status"] for name in ("aa-one", "aa-two")} == {"clash"}
    assert {row["status"] for row in rows.values()} == {"ok", "broken", "clash", "disabled"}


@pytest.mark.slow
def test_check_succeeds_where_every_plugin_is_sound(shelf):
    shelf["FIOOD_DISABLE"] += ",aa-two," + ",".join(BROKEN)
    done = fiood(shelf, "plugins", "--check")
    assert done.returncode == 0, done.stdout
    assert "[broken" not in done.stdout


@pytest.mark.slow
def test_strict_mode_stops_a_run_with_the_whole_list(shelf, tmp_path):
    shelf["FIOOD_DISABLE"] += ",aa-slow,aa-dies,aa-crashes"
    shelf["FIOOD_STRICT"] = "1"
    done = python(
        shelf, "from fiood_core.cli import run; run()", "--detector", "msp", "--output", str(tmp_path / "out")
    )
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()
    assert done.stderr.startswith("fiood: FIOOD_STRICT is set, and not every plugin is sound")
    for name in ("aa-raises", "aa-exits", "aa-lacks", "aa-new", "aa-reads", "aa-clash"):
        assert f"'{name}'" in done.stderr
