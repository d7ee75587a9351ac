"""Every extension point has one docstring line and stands in the documentation."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from fiood_core import hookspecs

DOCS = Path(__file__).parent.parent / "docs"
HOOKS = {name: value for name, value in vars(hookspecs).items() if name.startswith("fiood_")}


def test_there_are_the_four_extension_points():
    assert set(HOOKS) == {"fiood_executors", "fiood_commands", "fiood_run_event", "fiood_report_sections"}


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_declared_with_one_line(name):
    assert hasattr(HOOKS[name], "fiood_spec")
    assert len((inspect.getdoc(HOOKS[name]) or "").splitlines()) == 1


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_documented(name):
    page = (DOCS / "reference" / "hooks.md").read_text(encoding="utf-8")
    signature = f"{name}({', '.join(inspect.signature(HOOKS[name]).parameters)})"
    assert f"## `{signature}`" in page, f"docs/reference/hooks.md has no section {signature}"
    line = (inspect.getdoc(HOOKS[name]) or "-").replace("`", "")
    assert line in page.replace("`", ""), f"docs/reference/hooks.md does not say what {name} is for"
