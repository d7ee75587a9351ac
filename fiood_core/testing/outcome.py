"""What a conformance check found, and how the checks of a component are run one after another."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from fiood_core.errors import ConformanceError, FioodError
from fiood_core.registry import create

C = TypeVar("C")
S = TypeVar("S")


@dataclass(frozen=True)
class Outcome:
    """The result of one check.

    Attributes
    ----------
    check : str
        What was checked.
    status : {"passed", "failed", "skipped"}
    message : str
        What was found and what to do, where the check failed; why it did not run, where it was skipped.
    """

    check: str
    status: Literal["passed", "failed", "skipped"]
    message: str = ""

    def __str__(self) -> str:
        return f"{self.status:8}{self.check}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True)
class ConformanceReport:
    """The outcomes of every check of one component."""

    subject: str
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The checks that failed."""
        return tuple(o for o in self.outcomes if o.status == "failed")

    def __str__(self) -> str:
        return "\n".join([self.subject, *(f"  {outcome}" for outcome in self.outcomes)])


class ConformanceFailure(ConformanceError):
    """One or more checks failed; :attr:`report` holds all outcomes."""

    def __init__(self, report: ConformanceReport) -> None:
        failed = "\n".join(f"  {o.check}: {o.message}" for o in report.failures)
        super().__init__(f"{report.subject} fails {len(report.failures)} of {len(report.outcomes)} checks\n{failed}")
        self.report = report


class Skipped(Exception):
    """Raised by a check that does not apply, or cannot run here; the text says why."""


def require(condition: bool, message: str) -> None:
    """Fail the running check with a message unless a condition holds."""
    if not condition:
        raise ConformanceError(message)


class Subject(Generic[C]):
    """A component under test: a way to make it, and what the checks of its kind share."""

    def __init__(self, make: Callable[[], C]) -> None:
        self.make = make


def check(
    kind: str,
    target: Any,
    parameters: Mapping[str, Any] | None,
    subject: Callable[[Callable[[], Any]], S],
    checks: Mapping[str, Callable[[S], None]],
) -> ConformanceReport:
    """Resolve what was handed to the kit, and run the checks of its kind."""
    name, make = resolve(kind, target)
    return run_checks(name, subject(lambda: make(**(parameters or {}))), checks)


def run_checks(name: str, subject: S, checks: Mapping[str, Callable[[S], None]]) -> ConformanceReport:
    """Run checks in order; the first is what the others rest on, and they are skipped if it does not pass.

    Raises
    ------
    ConformanceFailure
        A check failed.
    """
    outcomes: list[Outcome] = []
    for check, function in checks.items():
        if outcomes and outcomes[0].status != "passed":
            outcomes.append(Outcome(check, "skipped", f"{outcomes[0].check!r} did not pass"))
        else:
            outcomes.append(_run(check, function, subject))
    report = ConformanceReport(name, tuple(outcomes))
    if report.failures:
        raise ConformanceFailure(report)
    return report


def _run(check: str, function: Callable[[S], None], subject: S) -> Outcome:
    try:
        function(subject)
    except Skipped as reason:
        return Outcome(check, "skipped", str(reason))
    except ConformanceError as error:
        return Outcome(check, "failed", str(error))
    except FioodError as error:
        return Outcome(check, "failed", f"raised {type(error).__name__}: {error}")
    except (Exception, SystemExit) as error:
        return Outcome(check, "failed", f"raised {type(error).__name__}: {error} ({_place(error)})")
    return Outcome(check, "passed")


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


def resolve(kind: str, target: Any) -> tuple[str, Callable[..., Any]]:
    """What was handed to the kit, as a name and a function that makes an instance from parameters.

    Parameters
    ----------
    kind : str
    target : str, class, factory or instance
        A string is looked up in the registry; for an instance the function returns it, whatever it was made with.
    """
    base: type = getattr(import_module(f"fiood_core.{kind}"), kind.capitalize())
    if isinstance(target, base):
        return type(target).__name__, lambda: target
    if isinstance(target, str):
        return target, partial(create, kind, target)
    name = getattr(target, "__name__", repr(target))
    if not callable(target) or (isinstance(target, type) and not issubclass(target, base)):
        raise ConformanceError(f"{name} is no {kind}: derive its class from fiood_core.{kind.capitalize()}")
    return name, target
