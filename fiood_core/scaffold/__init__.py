"""Write the skeleton of a plugin: a distribution that installs, passes the conformance kit and does a simple thing."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fiood_core import registry
from fiood_core.errors import PluginError

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\+{0,2}")
"""What a component may be called: lower-case words and digits joined by hyphens, one or two plus signs at the end."""


def write_plugin(kind: str, name: str, directory: Path | None = None) -> list[Path]:
    """Write a plugin distribution.

    Parameters
    ----------
    kind : {"detector", "backbone", "dataset", "vocabulary", "benchmark"}
    name : str
        What the registry will know the component by.
    directory : Path, optional
        By default a folder of the distribution's name in the working directory.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    PluginError
        The name is not a valid one or is taken, or the directory is not empty.
    """
    if not NAME.fullmatch(name):
        raise PluginError(f"{name!r} is no component name; use lower-case words joined by hyphens, e.g. my-detector")
    if name in registry.names(kind):
        owner = registry.find(kind, name).distribution
        raise PluginError(f"there is a {kind} {name!r} already, in {owner}; choose another name")
    words = _words(kind, name)
    directory = directory if directory is not None else Path(words["distribution"])
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise PluginError(f"{directory} exists and is not empty; nothing was written. Choose another --directory")
    directory.mkdir(parents=True, exist_ok=True)
    written = {
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        f"{words['module']}.py": f"{kind}.py.txt",
        f"test_{words['module']}.py": f"test_{kind}.py.txt",
    }
    for file, template in written.items():
        text = (files(__name__) / template).read_text(encoding="utf-8")
        (directory / file).write_text(Template(text).substitute(words), encoding="utf-8")
    return [directory / file for file in written]


def _words(kind: str, name: str) -> dict[str, Any]:
    """What the templates fill in."""
    plain = re.sub(r"\++$", lambda plus: "-" + "p" * len(plus[0]), name)
    needs = ["fiood-core>=0.1", *(["fiood-dataset-digits>=0.1"] if kind == "benchmark" else [])]
    return {
        "kind": kind,
        "group": registry.GROUPS[kind],
        "name": name,
        "entry": name if re.fullmatch(r"[a-z0-9-]+", name) else f'"{name}"',
        "distribution": f"fiood-{kind}-{plain}",
        "module": f"fiood_{kind}_{plain.replace('-', '_')}",
        "cls": "".join(word.capitalize() for word in plain.split("-")),
        "title": plain.replace("-", " ").capitalize(),
        "dependencies": ", ".join(f'"{need}"' for need in needs),
    }
