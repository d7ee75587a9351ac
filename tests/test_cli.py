"""The commands: quick, lazy, and plain when they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner

from fiood_core import cli, hookspecs, registry
from fiood_core.errors import PluginError

HEAVY = ("torch", "numpy", "PIL", "pyarrow", "jinja2", "sklearn", "timm", "open_clip", "transformers")

PROBE = """
import sys
sys.argv = [{program!r}, *{arguments!r}]
from fiood_core import cli
try:
    cli.{entry}()
except SystemExit as exit:
    assert not exit.code, exit.code
plugins = [name for name in sys.modules if name.startswith("fiood_") and name.partition(".")[0] != "fiood_core"]
print("\\nLOADED", plugins + [name for name in {heavy!r} if name in sys.modules])
"""

QUICK = [
    ("main", ["--help"]),
    ("main", ["--version"]),
    ("main", ["plugins"]),
    ("main", ["plugins", "--json"]),
    ("run", ["--help"]),
]


def python(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env={**os.environ, **env}, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize(("entry", "arguments"), QUICK)
def test_a_listing_takes_half_a_second_and_imports_neither_torch_nor_a_plugin(entry, arguments):
    code = PROBE.format(program="fiood", entry=entry, arguments=arguments, heavy=HEAVY)
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = python(code)
        seconds.append(time.perf_counter() - began)
        assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert min(seconds) <= 0.5


def test_listing_names_takes_half_a_second_and_imports_neither_torch_nor_a_plugin():
    code = f"""
import sys, fiood_core as fiood
for kind in ("detectors", "backbones", "vocabularies", "datasets", "benchmarks"):
    print(fiood.names(kind))
print("LOADED", [name for name in {HEAVY!r} if name in sys.modules])
"""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        done = python(code)
        seconds.append(time.perf_counter() - began)
    assert "'msp'" in done.stdout
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert min(seconds) <= 0.5


def test_each_command_is_listed_with_the_first_line_of_its_module():
    done = CliRunner().invoke(cli.fiood, ["--help"])
    assert done.exit_code == 0
    assert "plugins" in done.output
    assert "  run " not in done.output
    for name in cli.fiood.list_commands(click.Context(cli.fiood)):
        command = cli.fiood.get_command(click.Context(cli.fiood), name)
        assert isinstance(command, click.Command)
        assert CliRunner().invoke(cli.fiood, [name, "--help"]).exit_code == 0


def test_an_unknown_command_suggests_the_near_one():
    done = CliRunner().invoke(cli.fiood, ["plugin"])
    assert done.exit_code == 2
    assert "no command 'plugin'; did you mean 'plugins'?" in done.output


REFUSE = "import sys; from fiood_core.cli import main; sys.argv[0] = 'fiood'; main()"


def test_a_refusal_is_one_message_and_status_2():
    done = python(REFUSE, "explain", "mps")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fiood: no detector is registered as 'mps'; did you mean 'msp'")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "env"), [(["--debug"], {}), ([], {"FIOOD_DEBUG": "1"})])
def test_debug_shows_where_a_refusal_comes_from(arguments, env):
    done = python(REFUSE, *arguments, "explain", "mps", **env)
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "UnknownComponentError" in done.stderr


def test_explain_shows_formula_needs_parameters_and_source():
    done = CliRunner().invoke(cli.fiood, ["explain", "msp(precision='float64')"], catch_exceptions=False)
    assert done.exit_code == 0
    for line in ("max_c softmax(logits)_c", "logits", "precision = 'float64'", "https://arxiv.org/abs/1610.02136"):
        assert line in done.output
    assert "fiood-detector-msp 0.1.0" in done.output


@pytest.mark.slow
def test_every_detector_can_be_explained():
    for name in registry.names("detectors"):
        done = CliRunner().invoke(cli.fiood, ["explain", name], catch_exceptions=False)
        assert "not stated" not in done.output, f"{name} states no formula, cost or source"


def test_plugins_lists_distribution_version_and_path(monkeypatch):
    done = CliRunner().invoke(cli.fiood, ["plugins", "--json"])
    row = next(row for row in json.loads(done.output) if row["name"] == "msp")
    assert (row["kind"], row["distribution"], row["version"]) == ("detector", "fiood-detector-msp", "0.1.0")
    assert row["path"].endswith("fiood_detector_msp.py")
    assert row["status"] == "ok"
    monkeypatch.setenv("FIOOD_DISABLE", "msp")
    line = next(line for line in CliRunner().invoke(cli.fiood, ["plugins"]).output.splitlines() if " msp " in line)
    assert "[disabled: switched off by FIOOD_DISABLE]" in line


HOOKED = """
import click
from fiood_core.hookspecs import hookimpl

@click.command()
def greet():
    "Say hello."
    click.echo("hello")

@hookimpl
def fiood_commands(cli):
    cli.add_command(greet)
"""


def test_a_hook_adds_a_command_and_help_names_its_distribution_without_importing_it(install):
    folder = install("aa-greet", {"greet": "aa_greet"}, HOOKED, group="fiood.hooks")
    assert python(REFUSE, "greet", PYTHONPATH=str(folder)).stdout == "hello\n"
    listing = python(REFUSE + "\n", "--help", PYTHONPATH=str(folder)).stdout
    assert "More commands may come from the hooks of" in listing
    assert "aa-greet 1.0" in listing


def test_a_broken_hook_is_reported_and_the_others_are_heard(install):
    install("aa-greet", {"greet": "aa_greet"}, HOOKED, group="fiood.hooks")
    folder = install("aa-broken", {"broken": "aa_broken"}, "raise ImportError('gone')", group="fiood.hooks")
    done = python(REFUSE, "greet", PYTHONPATH=str(folder))
    assert done.stdout == "hello\n"
    assert "hook 'broken' of aa-broken 1.0 failed to load from 'aa_broken': ImportError: gone" in done.stderr
    done = python(REFUSE, "greet", PYTHONPATH=str(folder), FIOOD_STRICT="1")
    assert done.returncode == 2


def test_a_hook_that_takes_a_name_of_the_core_is_refused(install):
    source = HOOKED.replace("cli.add_command(greet)", "cli.add_command(greet, 'plugins')")
    folder = install("aa-greet", {"greet": "aa_greet"}, source, group="fiood.hooks")
    done = python(REFUSE, "greet", PYTHONPATH=str(folder))
    assert done.returncode == 2
    assert "there is a command 'plugins' already" in done.stderr


@pytest.mark.usefixtures("fresh_registry")
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def fiood_run_event(evnt): ...", "does not fit the hooks"),
        ("def fiood_no_such_hook(): ...", "does not fit the hooks: unknown hook 'fiood_no_such_hook'"),
    ],
)
def test_an_implementation_that_does_not_fit_is_reported(install, monkeypatch, caplog, source, reason):
    source = f"from fiood_core.hookspecs import hookimpl\n\n@hookimpl\n{source}"
    monkeypatch.syspath_prepend(install("aa-odd", {"odd": f"aa_odd_{len(reason)}"}, "", group="fiood.hooks"))
    monkeypatch.setitem(sys.modules, f"aa_odd_{len(reason)}", _module(source))
    registry.refresh()
    manager = hookspecs.manager()
    assert reason in caplog.text
    assert not [name for name, _ in manager.list_name_plugin() if name.startswith("aa-odd")]


def test_a_hook_that_raises_when_called_is_left_out_and_named(caplog, monkeypatch):
    plugins = hookspecs.pluggy.PluginManager("fiood")
    plugins.add_hookspecs(hookspecs)
    impl = "from fiood_core.hookspecs import hookimpl\n\n@hookimpl\ndef fiood_report_sections(results): "
    plugins.register(_module(impl + "return [results]"), name="good")
    plugins.register(_module(impl + "1 / 0"), name="bad")
    assert hookspecs.collect(plugins.hook.fiood_report_sections, results=3) == [[3]]
    assert "hook fiood_report_sections of bad failed: ZeroDivisionError" in caplog.text
    monkeypatch.setenv("FIOOD_STRICT", "1")
    with pytest.raises(PluginError, match="of bad failed"):
        hookspecs.collect(plugins.hook.fiood_report_sections, results=3)


def _module(source: str):
    module = type(sys)("aa_hooks")
    exec(source, vars(module))
    return module
