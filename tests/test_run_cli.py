"""``fiood-run`` as its users call it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from fiood_core import results
from fiood_core.cli import run as entry
from fiood_core.cli._run import asked_for, command
from fiood_core.errors import FioodError

TINY = Path(__file__).parent / "tiny.py"
SUITE = f"""\
name: tiny
benchmark: {TINY}:TinyBenchmark
backbones: ["{TINY}:TinyNet"]
detectors: ["{TINY}:Largest", "{TINY}:Centre"]
settings: {{device: cpu}}
"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call the command in an empty folder with a store of its own."""
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fiood_core.tasks.SHOW_PROGRESS", False)
    (tmp_path / "tiny.yaml").write_text(SUITE)

    def call(*arguments):
        return CliRunner().invoke(command, list(map(str, arguments)))

    return call


def separate(*arguments, home, cwd):
    """Call the installed program in a process of its own."""
    program = [sys.executable, "-c", "from fiood_core.cli import run; run()", *map(str, arguments)]
    environment = {**os.environ, "FIOOD_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.run(program, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def pictures(folder, *greys):
    """PNG files of 8 × 8 pixels."""
    folder.mkdir()
    for number, grey in enumerate(greys):
        Image.new("L", (8, 8), grey).save(folder / f"{number}.png")
    return f"folder:{folder}"


def test_a_suite_file_gives_a_table_and_files(call):
    done = call("tiny.yaml")
    assert done.exit_code == 0, done.output
    assert "./tiny.py:Centre" in done.stdout
    for name in (*results.RESULT_FILES, "report.html"):
        assert Path("runs/tiny", name).is_file()


def test_flags_replace_what_the_suite_says(call):
    done = call(
        "--suite", "tiny.yaml", "--detector", f"msp,{TINY}:Centre(power=2.0)", "--output", "elsewhere", "--seed", 3
    )
    assert done.exit_code == 0, done.output
    found = results.load("elsewhere")
    assert {row["column"] for row in found.rows} == {"msp", "./tiny.py:Centre(power=2.0)"}
    assert found.run["settings"]["seed"] == 3


@pytest.mark.parametrize(("benchmark", "detectors"), [("cood-digits", 4), ("digits", 27)])
def test_a_benchmark_with_a_suite_of_its_name_is_run_by_that(benchmark, detectors):
    flags = dict.fromkeys((p.name for p in command.params), ()) | {"id_set": None, "benchmark": (benchmark,)}
    flags |= dict.fromkeys(
        ("device", "batch_size", "workers", "autocast", "on_bad_image", "precision", "seed", "executor", "expect_top1")
    )
    suite = asked_for(None, flags)
    assert suite.name == benchmark
    assert len(suite.detectors) == detectors


def test_folders_are_a_benchmark(call, tmp_path):
    inside = pictures(tmp_path / "in", 200, 210, 220)
    done = call(
        *("--backbone", f"{TINY}:TinyNet", "--detector", "max-logit", "--output", "out"),
        *("--id", inside, "--train", inside),
        *(
            "--ood",
            f"dark={pictures(tmp_path / 'dark', 10, 20)}",
            "--ood",
            f"bright={pictures(tmp_path / 'bright', 250)}",
        ),
    )
    assert done.exit_code == 0, done.output
    assert [(r["ood"], r["auroc"]) for r in results.load("out").rows] == [("dark", 1.0), ("bright", 0.0)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.yaml"], "no suite file 'nowhere.yaml'"),
        (["--detector", "mps"], "did you mean 'msp'"),
        (["--detector", "knn(k=0)"], "k"),
        (["--detector", "msp(k=3)"], "no parameter 'k'"),
        (["--ood", "a=folder:x"], "--ood needs --id"),
        (["--id", "folder:x"], "needs at least one --ood"),
        (["--id", "folder:x", "--ood", "folder:x"], "write NAME=DATASET"),
        (["--id", "folder:x", "--ood", "a=folder:x", "--benchmark", "digits"], "either --benchmark"),
        (["tiny.yaml", "--suite", "digits"], "two suites"),
        (["tiny.yaml", "--executor", "nonsense"], "no executor is called 'nonsense'"),
        (["tiny.yaml", "--device", "tpu"], "device 'tpu' cannot be used here"),
    ],
)
def test_what_cannot_be_run_is_refused_with_status_2(call, arguments, words):
    done = call(*arguments)
    refusal = str(done.exception) if isinstance(done.exception, FioodError) else done.output
    assert words in refusal
    assert isinstance(done.exception, FioodError) or done.exit_code == 2
    assert not Path("runs/digits").exists()


def test_failed_cells_give_status_1_and_a_summary(call):
    done = call("tiny.yaml", "--detector", f"{TINY}:Largest,{TINY}:Raises")
    assert done.exit_code == 1
    assert "2 cells have no result" in done.stdout
    assert "near, far: failed: RuntimeError: the plugin broke" in done.stdout


def test_a_full_disk_gives_status_3(call, monkeypatch):
    from fiood_core import tasks
    from fiood_core.errors import StoreError

    def full(task):
        raise StoreError("disk full at the store")

    monkeypatch.setattr(tasks, "_score", full)
    done = call("tiny.yaml")
    assert done.exit_code == 3
    assert "disk full" in done.output
    assert "the run stopped: disk full" in results.load("runs/tiny").failed[0]["reason"]


def test_an_output_directory_that_cannot_be_made_gives_status_3(call):
    done = call("tiny.yaml", "--output", "tiny.yaml/runs")
    assert done.exit_code == 3
    assert "cannot write" in done.output
    assert "Not a directory" in done.output


def test_explain_runs_nothing_and_says_what_is_kept(call, tmp_path):
    before = call("tiny.yaml", "--explain")
    assert before.exit_code == 0, before.output
    assert "4 cells, 0 of them kept" in before.stdout
    assert "30 pictures, 0 cached" in before.stdout
    assert "nothing is missing" in before.stdout
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "home").exists()
    call("tiny.yaml")
    after = call("tiny.yaml", "--explain").stdout
    assert "4 cells, 4 of them kept" in after
    assert "30 pictures, 30 cached" in after


def test_explain_lists_every_missing_thing_at_once(call, tmp_path):
    Path("gone.yaml").write_text(
        f"""\
name: gone
benchmark:
  id: folder:no-id
  train: {{name: "{TINY}:Pictures", name: "{TINY}:Pictures", count: 5}}
  ood:
    first: folder:no-first
    second: folder:no-second
    third: nonsense-set
backbones: [digits-cn, "{TINY}:TinyNet"]
detectors: [mps, knn, "{TINY}:Centre(powr=1)"]
vocabularies: [nonsense-words]
settings: {{device: cpu}}
""".replace(f'name: "{TINY}:Pictures", name', "name")
    )
    done = call("gone.yaml", "--explain")
    assert done.exit_code == 1
    for words in (
        "gone.yaml:8: no dataset is registered as 'nonsense-set'",
        "gone.yaml:9: no backbone is registered as 'digits-cn'",
        "gone.yaml:10: no detector is registered as 'mps'",
        "gone.yaml:11: no vocabulary is registered as 'nonsense-words'",
        "no parameter 'powr'",
        "set id: there is no folder",
        "set first: there is no folder",
        "set second: there is no folder",
        "has a bank of only 5 training images",
    ):
        assert words in done.stdout, done.stdout
    assert call("gone.yaml").exception.__class__.__name__ == "SuiteError"


def test_explain_before_the_first_run_blames_no_width_that_it_does_not_know(call):
    done = call("digits", "--detector", "vim,knn", "--explain")
    (told,) = (line for line in done.stdout.splitlines() if line.startswith("  detector"))
    assert "knn(k=1000) has a bank of only 540" in told
    assert call("digits", "--detector", "vim,knn(k=10)", "--explain").stdout.rstrip().endswith("nothing is missing")


def test_offline_refuses_the_network_whoever_asks(tmp_path):
    code = """
import socket, sys
from fiood_core.offline import OfflineError, go_offline
go_offline()
a, b = socket.socketpair()
for attempt in (lambda: socket.socket().connect(("127.0.0.1", int(sys.argv[1]))),
                lambda: socket.getaddrinfo("example.org", 80)):
    try:
        attempt()
    except OfflineError as error:
        print(error)
import os
print(os.environ["HF_HUB_OFFLINE"])
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run([sys.executable, "-c", code, str(port)], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert f"('127.0.0.1', {port})" in lines[0]
    assert "example.org" in lines[1]
    assert lines[2] == "1"


def test_help_is_quick_and_imports_neither_torch_nor_a_plugin():
    code = """
import sys
from fiood_core.cli import run
sys.argv = ["fiood-run", "--help"]
try:
    run()
except SystemExit:
    pass
heavy = ("torch", "numpy", "fiood_detector", "fiood_backbone")
print([name for name in sys.modules if name.startswith(heavy)])
"""
    start = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Exit status" in done.stdout
    assert time.monotonic() - start < 5  # half a second on an idle machine
    assert callable(entry)


@pytest.mark.slow
def test_the_default_is_right_quick_and_the_same_twice(tmp_path):
    first = separate("--offline", home=tmp_path / "home", cwd=tmp_path)
    assert first.returncode == 0, first.stderr[-2000:]
    before = {
        p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.name in ("results.jsonl", "results.parquet")
    }
    again = separate("--offline", home=tmp_path / "home", cwd=tmp_path)
    assert again.stdout == first.stdout
    assert all(path.read_bytes() == content for path, content in before.items())
    other = separate("--offline", "--output", "other", home=tmp_path / "other-home", cwd=tmp_path)
    assert (tmp_path / "other/results.jsonl").read_bytes() == (tmp_path / "runs/digits/results.jsonl").read_bytes()
    assert other.stdout.replace("other", "runs/digits") == first.stdout
    found = results.load(tmp_path / "runs/digits")
    assert found.run["tasks"] == 0
    assert {r["group"] for r in found.rows} == {"near", "far"}
    auroc = {(r["backbone"], r["column"], r["ood"]): r["auroc"] for r in found.rows}
    assert all(auroc["digits-cnn", "msp", r["ood"]] >= 0.93 for r in found.rows)
    mcm, neglabel = (auroc["digits-clip", column, "digits-6-9"] for column in ("mcm", "neglabel · oracle"))
    assert neglabel > mcm + 0.05
    assert all(auroc["digits-clip", "msp", r["ood"]] == auroc["digits-clip", "mcm", r["ood"]] for r in found.rows)
    assert json.loads((tmp_path / "runs/digits/run.json").read_text())["settings"]["device"] == "cpu"
