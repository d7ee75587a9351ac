"""The commands ``fiood`` and ``fiood-run``.

Each module of this package is one command: the module's name is the command's, the first line of its docstring is what
``fiood --help`` shows, and its ``command`` is a :class:`click.Command`.  A module is imported when its command is
called, so listing commands costs nothing; anything heavy is imported inside the command's function.  Modules
with a leading underscore are no commands of ``fiood``; ``_run`` is ``fiood-run`` (a module ``run`` would hide the entry
point of that name).
"""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from fiood_core import __version__, settings
from fiood_core.errors import FioodError, PluginError


class Commands(click.Group):
    """The core's commands, each imported when it is called, and those that ``fiood_commands`` hooks add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the core's commands, and of those already added by hooks."""
        return sorted({*_own_commands(), *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name; the hooks are asked only if the core has none."""
        if cmd_name in _own_commands():
            command: click.Command = import_module(f"{__name__}.{cmd_name}").command
            return command
        if cmd_name not in self.commands:
            self._ask_hooks()
        return super().get_command(ctx, cmd_name)

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a hook's command.

        Raises
        ------
        PluginError
            The name is taken.
        """
        name = name or cmd.name or ""
        if name in _own_commands() or self.commands.get(name, cmd) is not cmd:
            raise PluginError(f"there is a command {name!r} already; the hook must choose another name")
        super().add_command(cmd, name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begins with; an unknown one suggests the near ones."""
        command = self.get_command(ctx, args[0])
        if command is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        rows = [*_own_commands().items(), *((n, c.get_short_help_str()) for n, c in self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Name the distributions whose hooks may add commands; they are not imported for a help text."""
        from fiood_core import registry

        hooks = sorted({f"{c.distribution} {c.version}" for c in registry.hooks() if c.distribution != "fiood-core"})
        if hooks:
            formatter.write_paragraph()
            formatter.write_text(f"More commands may come from the hooks of {', '.join(hooks)}.")

    def _ask_hooks(self) -> None:
        from fiood_core import hookspecs

        hookspecs.collect(hookspecs.manager().hook.fiood_commands, cli=self)


def _own_commands() -> dict[str, str]:
    """Name and one line of help of each module of this package that is a command; none is imported."""
    found = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        with path.open(encoding="utf-8") as file:
            found[path.stem] = file.readline().strip().strip('"').rstrip(".")
    return found


def _set_debug(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        os.environ["FIOOD_DEBUG"] = "1"


_debug = click.Option(
    ["--debug"], is_flag=True, expose_value=False, callback=_set_debug, help="Show the traceback of an error."
)


@click.group(cls=Commands, params=[_debug], context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fiood")
def fiood() -> None:
    """Measure how well classifiers and vision-language models notice what they do not know.

    ``fiood-run`` evaluates; these commands look after everything around it.
    """


def main() -> None:
    """Entry point of ``fiood``."""
    _guarded(fiood, "fiood")


def run() -> None:
    """Entry point of ``fiood-run``."""
    command: click.Command = import_module(f"{__name__}._run").command
    command.params.append(_debug)
    _guarded(command, "fiood-run")


def _guarded(command: Any, program: str) -> None:
    """Run a command; a refusal that fiood makes on purpose is one message and exit status 2, not a traceback."""
    try:
        command.main(prog_name=program)
    except FioodError as error:
        if settings.debug():
            raise
        click.echo(f"fiood: {error}", err=True)
        sys.exit(2)
