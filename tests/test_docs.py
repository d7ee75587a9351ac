"""The documentation's code runs, its tables are complete, and its commands exist."""

from __future__ import annotations

import dataclasses
import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from fiood_core import registry
from fiood_core.results import SCHEMA
from fiood_core.suite import TOP_KEYS, Settings
from fiood_core.testing import detectors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>.+?) -->\n)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SHOWN = {"text", "toml", "html", ""}
"""Languages of blocks that are shown and not run; with a title they are written to a file all the same."""

DRIVER = """
import json, subprocess, sys
sys.path.insert(0, "")
names = {"__name__": "page"}
for block in json.load(open(sys.argv[1])):
    print("--", block["text"].splitlines()[0], flush=True)
    if block["title"]:
        open(block["title"], "w").write(block["text"])
    elif block["language"] == "python":
        exec(compile(block["text"], "page", "exec"), names)
    else:
        subprocess.run(["bash", "-euo", "pipefail", "-c", block["text"]], check=True)
"""
"""Runs the blocks of a page one after another: Python in one namespace, shell commands in the same folder."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; with a title it is a file, with a reason it is not run."""

    language: str
    title: str | None
    text: str
    reason: str | None


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found = BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [Block(m["language"], m["title"], m["text"], m["reason"]) for m in found]


def runnable(page: Path) -> list[Block]:
    return [b for b in blocks(page) if not b.reason and (b.title or b.language in ("python", "bash", "yaml"))]


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """One cache for all pages, so that the network of the digits is trained once."""
    return tmp_path_factory.mktemp("home")


def call(command: list[str], home: Path, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with fiood's programs on the path and nothing of fiood in the environment."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("FIOOD")}
    env |= {
        "FIOOD_HOME": str(home),
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]),
    }
    program = shutil.which(command[0], path=env["PATH"])
    return subprocess.run([program, *command[1:]], cwd=place, env=env, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, home, tmp_path):
    (tmp_path / "blocks.json").write_text(json.dumps([dataclasses.asdict(b) for b in runnable(page)]))
    work = tmp_path / "work"
    work.mkdir()
    done = call([sys.executable, "-c", DRIVER, str(tmp_path / "blocks.json")], home, work)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def table(text: str) -> dict[str, list[float]]:
    """Detectors of the network's table, each with its numbers."""
    lines = text[text.index("digits-cnn on digits:") :].partition("\nmean:")[0].splitlines()[4:]
    rows = [re.match(r"(\S+(?: \S+)*?)((?: +\d\.\d{4}){8})$", line) for line in lines]
    return {row[1]: [float(value) for value in row[2].split()] for row in rows if row}


@pytest.mark.slow
def test_the_table_of_the_readme_is_what_a_run_gives(home, tmp_path):
    found = call(["fiood-run", "--output", str(tmp_path / "run"), "digits"], home, tmp_path)
    assert found.returncode == 0, found.stderr
    shown, expected = table(PAGES[0].read_text(encoding="utf-8")), table(found.stdout)
    assert list(shown) == list(expected)
    for name, values in expected.items():
        assert shown[name][0::2] == pytest.approx(values[0::2], abs=0.02), name  # another CPU trains another network
    beginning = table((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    assert beginning == {name: shown[name] for name in beginning}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_is_run_or_meant_to_be_shown(page):
    for block in blocks(page):
        assert block.language in SHOWN | {"python", "bash", "yaml"}, block.text
        if block.language == "yaml":
            assert block.title, f"a suite that is shown is a file that is run:\n{block.text}"


def test_fences_are_closed():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(re.findall(r"^```", text, flags=re.MULTILINE)) == 2 * len(blocks(page)), page


def test_pages_speak_of_no_machine():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.])/(home|root|work|tmp|Users)/", text), page


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_detector_tables_hold_every_detector_and_parameter(generate):
    table, sections = generate.detectors_table(), generate.detectors()
    for name in registry.names("detectors"):
        cls = registry.load("detector", name)
        assert f"`{name}`" in table
        section = re.search(rf"^### {re.escape(name)} .*?(?=^### |\Z)", sections, flags=re.MULTILINE | re.DOTALL)[0]
        assert html.escape(cls.reference.title, quote=False).split("*")[0] in section
        assert cls.reference.link is None or cls.reference.link in section
        for field in dataclasses.fields(cls):
            assert field.name == "precision" or f"| `{field.name}` |" in section, f"{name}: {field.name}"


def test_the_component_tables_hold_every_component(generate):
    for kind, plural in (
        ("backbone", "backbones"),
        ("dataset", "datasets"),
        ("vocabulary", "vocabularies"),
        ("benchmark", "benchmarks"),
    ):
        table = generate.GENERATED[plural]()
        assert [name for name in registry.names(kind) if f"| `{name}` |" not in table] == []


def test_the_command_pages_hold_every_command(generate):
    text = generate.commands()
    for title in ("fiood-run", "fiood plugins", "fiood check", "fiood new", "fiood store verify", "fiood report"):
        assert f"## `{title}`" in text


def words(page: str) -> set[str]:
    """What a page writes in back quotes."""
    return set(re.findall(r"`([\w-]+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))


def test_every_column_of_the_results_is_described():
    assert set(SCHEMA.names) - words("users/results.md") == set()


def test_every_key_of_a_suite_is_described():
    keys = {*TOP_KEYS, *(field.name for field in dataclasses.fields(Settings))}
    assert keys - words("users/suites.md") == set()


def test_every_environment_variable_is_described():
    sources = [p.read_text(encoding="utf-8") for p in (ROOT / "fiood_core").rglob("*.py")]
    read = set(re.findall(r"FIOOD_[A-Z]+", "".join(sources)))
    assert read - words("users/running.md") == set()


def test_every_conformance_check_is_described():
    text = (ROOT / "docs" / "authors" / "conformance.md").read_text(encoding="utf-8")
    assert [name for name in detectors.CHECKS if f"| {name} |" not in text] == []


def test_every_page_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [p.name for p in PAGES[1:] if str(p.relative_to(ROOT / "docs")) not in config] == []
