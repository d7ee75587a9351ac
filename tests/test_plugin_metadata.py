"""Every plugin under plugins/ is packaged the same way, and the core's extras name them all."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fiood_core import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parent.parent
KINDS = {group.removeprefix("fiood."): kind for kind, group in registry.GROUPS.items()}
FOLDERS = sorted(path.parent for path in ROOT.glob("plugins/*/*/pyproject.toml"))
KEYS = [
    "name",
    "version",
    "description",
    "readme",
    "license",
    "requires-python",
    "dependencies",
    "entry-points",
]


def read(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(params=FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def folder(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_folder_under_plugins_is_a_distribution():
    lacking = [
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("plugins/*/*"))
        if path.is_dir() and not (path / "pyproject.toml").exists() and any(path.glob("*.py"))
    ]
    assert not lacking
    assert {path.parent.name for path in FOLDERS} <= set(KINDS)


def test_names_follow_from_the_folder(folder):
    project, kind = read(folder)["project"], KINDS[folder.parent.name]
    module = f"fiood_{kind}_{folder.name.replace('-', '_')}"
    assert project["name"] == f"fiood-{kind}-{folder.name}"
    assert read(folder)["tool"]["flit"]["module"] == {"name": module}
    assert list(project["entry-points"]) == [f"fiood.{folder.parent.name}"]
    entries = project["entry-points"][f"fiood.{folder.parent.name}"]
    assert folder.name in {name.replace("++", "-pp") for name in entries}
    for value in entries.values():
        assert re.fullmatch(rf"{module}:[A-Za-z_]\w*", value)


def test_metadata_is_uniform(folder):
    project = read(folder)["project"]
    assert [key for key in project if key not in KEYS] == []
    assert [key for key in KEYS if key in project] == KEYS
    assert read(folder)["build-system"] == {"requires": ["flit_core>=3.9"], "build-backend": "flit_core.buildapi"}
    assert project["version"] == "0.1.0"
    assert project["license"] == {"text": "Apache-2.0"}
    assert project["requires-python"] == ">=3.10"
    assert project["readme"] == "README.md"
    first, *others = project["dependencies"]
    assert first == "fiood-core>=0.1"
    assert len(others) == len(set(others))
    kind, kinds = KINDS[folder.parent.name], folder.parent.name
    assert re.fullmatch(rf"[A-Z0-9].*[^.], (a fiood {kind}|fiood {kinds})", project["description"])


def test_it_is_one_module_with_its_test_and_a_short_readme(folder):
    module = read(folder)["tool"]["flit"]["module"]["name"]
    modules = {path.name for path in folder.glob("*.py")}
    tests = {name for name in modules if name.startswith("test_")}
    assert modules - tests == {f"{module}.py"}
    assert tests
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {read(folder)['project']['name']}\n")
    assert 5 <= len(readme.splitlines()) <= 30


def test_its_test_calls_the_conformance_kit(folder):
    tests = "".join(path.read_text(encoding="utf-8") for path in folder.glob("test_*.py"))
    assert f"check_{KINDS[folder.parent.name]}(" in tests


def test_each_entry_point_names_an_object_of_the_module(folder):
    module = read(folder)["tool"]["flit"]["module"]["name"]
    tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    (entries,) = read(folder)["project"]["entry-points"].values()
    assert {value.partition(":")[2] for value in entries.values()} <= defined


def test_every_imported_library_is_declared(folder):
    module = read(folder)["tool"]["flit"]["module"]["name"]
    tree = ast.parse((folder / f"{module}.py").read_text(encoding="utf-8"))
    declared = {re.split(r"[<>=!~;\[ ]", line)[0].lower() for line in read(folder)["project"]["dependencies"]}
    undeclared = {
        name
        for name in _imported(tree) - set(sys.stdlib_module_names) - CORE_IMPORTS - {module}
        if not ({DISTRIBUTION_OF.get(name, name).lower().replace("_", "-")} & declared)
        and not (name == "faiss" and any(line.startswith("faiss-") for line in declared))
    }
    assert not undeclared


CORE_IMPORTS = {"fiood_core", "PIL", "click", "jinja2", "numpy", "platformdirs", "pluggy", "pyarrow"} | {
    "safetensors",
    "torch",
    "tqdm",
    "typing_extensions",
    "yaml",
}
"""What a plugin may import because the core depends on it."""

DISTRIBUTION_OF = {"sklearn": "scikit-learn", "skimage": "scikit-image", "open_clip": "open-clip-torch"}


def _imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


def test_the_extras_name_every_plugin():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    extras = {key: value.split() for key, value in config["options.extras_require"].items()}
    everything = sorted(read(folder)["project"]["name"] for folder in FOLDERS)
    for kind in KINDS:
        expected = [read(folder)["project"]["name"] for folder in FOLDERS if folder.parent.name == kind]
        assert extras[kind] == sorted(expected), f"extra [{kind}] of setup.cfg"
    assert extras["all"] == everything, "extra [all] of setup.cfg"
    assert set(extras["vlm"]) <= set(everything)
    assert set(extras["vocabularies"]) <= set(extras["vlm"])
    assert extras["vlm"] == sorted(extras["vlm"])
