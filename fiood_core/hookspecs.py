"""Every extension point, one docstring line each.

A distribution implements some of these functions with ``@fiood_core.hookspecs.hookimpl`` and registers the module (or
object) that holds them in the entry-point group ``fiood.hooks``.  The core's own executor and report use the same road.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pluggy

from fiood_core import registry, settings
from fiood_core.errors import PluginError

if TYPE_CHECKING:
    import click

    from fiood_core.results import Results

PROJECT = "fiood"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in a run.

    Attributes
    ----------
    name : str
        ``"run-started"``, ``"task-finished"`` or ``"run-finished"``.
    data : mapping
        What is known of it, as plain data.
    """

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A section of the report: a title, and HTML that needs nothing from outside the page."""

    title: str
    html: str


@hookspec
def fiood_executors() -> Sequence[tuple[str, Callable[..., Any]]]:  # type: ignore[empty-body]
    """Offer executors, each a name for ``--executor`` and a factory."""


@hookspec
def fiood_commands(cli: click.Group) -> None:
    """Add commands to ``fiood`` with ``cli.add_command``."""


@hookspec
def fiood_run_event(event: RunEvent) -> None:
    """Hear of each event of a run: its start, each task that is finished, its end."""


@hookspec
def fiood_report_sections(results: Results) -> Sequence[Section]:  # type: ignore[empty-body]
    """Offer sections for the report of a run."""


@lru_cache(maxsize=1)
def manager() -> pluggy.PluginManager:
    """The plugin manager with every hook that is installed and loads.

    One that fails to load is logged with its distribution, version and reason, and the others go on; under
    ``FIOOD_STRICT`` it is an error.

    Raises
    ------
    PluginError
        In strict mode only.
    """
    plugins = _manager()
    for component in registry.hooks():
        try:
            _register(plugins, component)
        except PluginError as error:
            if settings.strict():
                raise
            log.warning("%s", error)
    return plugins


def collect(hook: pluggy.HookCaller, **arguments: Any) -> list[Any]:
    """What each implementation of a hook returns, each called isolated.

    Parameters
    ----------
    hook : HookCaller
        For example ``manager().hook.fiood_executors``.
    **arguments
        The hook's arguments.

    Returns
    -------
    list
        The results that are not None, first registered first.  An implementation that raises is logged by name and
        left out; under ``FIOOD_STRICT`` it is a :class:`PluginError`.
    """
    results = []
    for implementation in hook.get_hookimpls():
        try:
            result = implementation.function(*(arguments[name] for name in implementation.argnames))
        except Exception as error:
            message = f"hook {hook.name} of {implementation.plugin_name} failed: {type(error).__name__}: {error}"
            if settings.strict():
                raise PluginError(message) from error
            log.warning("%s", message)
        else:
            if result is not None:
                results.append(result)
    return results


def _manager() -> pluggy.PluginManager:
    plugins = pluggy.PluginManager(PROJECT)
    plugins.add_hookspecs(sys.modules[__name__])
    return plugins


def _register(plugins: pluggy.PluginManager, component: registry.Component) -> None:
    implementation = registry.resolve(component)
    name = f"{component.distribution} ({component.name})"
    trial = _manager()  # a registration that fails cannot be taken back
    try:
        trial.register(implementation, name)
        trial.check_pending()
    except Exception as error:
        raise PluginError(f"{component} does not fit the hooks: {error}") from error
    plugins.register(implementation, name)
