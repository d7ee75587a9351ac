"""Who runs the tasks of a run.

An executor is anything with a method ``run(tasks)``.  Tasks come in an order in which the inputs of each stand before
it; an executor may run side by side those that do not read each other's outcomes.  Whatever it does, a task is done
when :func:`fiood_core.tasks.execute` returned somewhere that sees the same files.  Others are offered through the hook
``fiood_executors`` and chosen by ``--executor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from fiood_core import hookspecs
from fiood_core.errors import SuiteError
from fiood_core.hookspecs import hookimpl
from fiood_core.tasks import Task, execute


class Executor(Protocol):
    """What a factory offered by ``fiood_executors`` makes."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """Run the tasks, and yield each when it is done."""


class LocalExecutor:
    """One task after another, in this process."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """Run the tasks in their order."""
        for task in tasks:
            execute(task)
            yield task


@hookimpl
def fiood_executors() -> Sequence[tuple[str, Callable[[], Executor]]]:
    """Offer the local executor."""
    return [("local", LocalExecutor)]


def create(name: str) -> Executor:
    """The executor of a name.

    Raises
    ------
    SuiteError
        No hook offers it.
    """
    offered = {n: make for found in hookspecs.collect(hookspecs.manager().hook.fiood_executors) for n, make in found}
    if name not in offered:
        raise SuiteError(f"no executor is called {name!r}; offered are {', '.join(sorted(offered)) or 'none'}")
    made: Executor = offered[name]()
    return made
