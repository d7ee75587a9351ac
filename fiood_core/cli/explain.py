"""Show what a detector computes, needs, costs, and where it was published."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from fiood_core import registry, spec

if TYPE_CHECKING:
    from fiood_core.detector import Detector


@click.command()
@click.argument("detector")
def command(detector: str) -> None:
    """Show a detector's formula, needs, parameters with their defaults and alternatives, presets, cost and source.

    DETECTOR is a registered name, module:Object, or a path beginning with ./, with parameters as in "knn(k=50)".
    """
    wanted = spec.parse(detector)
    instance: Detector = registry.create("detector", wanted.name, **wanted.parameters)
    origin = registry.origin("detector", wanted.name)
    click.echo(f"{instance.name}  ({origin.distribution} {origin.version})")
    for title, lines in _sections(instance):
        for line in lines:
            click.echo(f"  {title:<12}{line}")
            title = ""


def _sections(detector: Detector) -> Iterator[tuple[str, list[str]]]:
    cls = type(detector)
    yield "score", [(inspect.getdoc(cls) or "").partition("\n")[0]]
    yield "formula", [cls.formula or "not stated"]
    yield "needs", [", ".join(cls.needs)]
    yield "statistics", list(_statistics(detector)) or ["none: nothing is learned"]
    yield "columns", [column.key for column in detector.columns] or ["none"]
    yield "parameters", list(_parameters(detector))
    yield "presets", [f"{name}: {_values(values)}" for name, values in cls.presets.items()] or ["none"]
    yield "cost", [cls.cost or "not stated"]
    yield "source", list(_source(cls))


def _statistics(detector: Detector) -> Iterator[str]:
    from fiood_core.detector import Detector as Base

    yield from (statistic.key for statistic in detector.statistics)
    if type(detector).refine is not Base.refine:
        yield "and a second round that the first decides"


def _parameters(detector: Detector) -> Iterator[str]:
    hints = typing.get_type_hints(type(detector))
    for name, value in detector.parameters.items():
        hint = getattr(hints[name], "__name__", None) if isinstance(hints[name], type) else None
        yield f"{name} = {value!r}  ({hint or str(hints[name]).replace('typing.', '')})"
        if name in detector.alternatives:
            yield f"    alternatives: {detector.alternatives[name]}"


def _values(values: Mapping[str, object]) -> str:
    return ", ".join(f"{k}={v!r}" for k, v in values.items()) or "the defaults"


def _source(cls: type[Detector]) -> Iterator[str]:
    reference = getattr(cls, "reference", None)
    if reference is None:
        yield "not stated"
        return
    yield f"{reference.title} ({reference.year})"
    yield from filter(None, [reference.link, reference.code and f"code: {reference.code}"])
