"""Evaluate detectors on backbones and benchmarks: fiood-run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fiood_core import __version__, registry, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fiood_core.plan import Plan
    from fiood_core.request import Request
    from fiood_core.suite import BenchmarkRequest, Suite

FIELDS = {"benchmark": "benchmarks", "backbone": "backbones", "detector": "detectors", "vocabulary": "vocabularies"}
"""Field of a suite that holds the components of each kind."""

EPILOG = """\b
Exit status:
  0  every cell has a result (with --explain: nothing is missing)
  1  some cells failed or were refused (with --explain: something is missing)
  2  the suite or the command line cannot be run as it stands
  3  the run stopped: the disk is full, or the store is damaged
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("suite", required=False)
@click.option("--suite", "suite_option", metavar="FILE", help="The same, as an option.")
@click.option("--backbone", multiple=True, metavar="NAMES", help="Backbones, separated by commas; globs and 'all' too.")
@click.option("--detector", multiple=True, metavar="NAMES", help="Detectors: msp,knn(k=50),mahalanobis*; 'all'.")
@click.option("--vocabulary", multiple=True, metavar="NAMES", help="Vocabularies, for detectors with negative labels.")
@click.option("--benchmark", multiple=True, metavar="NAMES", help="Benchmarks; or give the sets yourself:")
@click.option("--id", "id_set", metavar="DATASET", help="ID test set: folder:PATH, folder:LABELS.csv, or a name.")
@click.option("--train", metavar="DATASET", help="ID training set, for detectors that learn from one.")
@click.option("--ood", multiple=True, metavar="NAME=DATASET", help="An OOD set; give it as often as you like.")
@click.option("--output", type=click.Path(path_type=Path), metavar="DIR", help="Default: runs/<suite>.")
@click.option("--store", type=click.Path(path_type=Path), metavar="DIR", help="Feature store; default: in FIOOD_HOME.")
@click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1, mps.")
@click.option("--batch-size", type=click.IntRange(1), metavar="N", help="Pictures of one forward pass.")
@click.option("--workers", type=click.IntRange(0), metavar="N", help="Processes that decode pictures.")
@click.option("--autocast", type=click.Choice(["float16", "bfloat16"]), help="Half-precision forward passes.")
@click.option("--on-bad-image", type=click.Choice(["fail", "skip-and-count"]), help="What a broken picture does.")
@click.option("--precision", type=click.Choice(["float32", "float64"]), help="Arithmetic of the scores.")
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Of the global random generators.")
@click.option("--executor", metavar="NAME", help="Who runs the tasks; default: local.")
@click.option("--expect-top1", type=click.FloatRange(0, 1), metavar="FRACTION", help="Accuracy to hold backbones to.")
@click.option("--offline", is_flag=True, help="No network call at all.")
@click.option("--explain", is_flag=True, help="Print the plan and everything that is missing; run nothing.")
@click.version_option(__version__, prog_name="fiood-run")
def command(suite: str | None, suite_option: str | None, **flags: Any) -> None:
    """Evaluate detectors on backbones and benchmarks, and write a table and a report.

    SUITE is a YAML file or the name of an embedded suite; by default that of a --benchmark asked for by itself, if it
    has one, else 'digits', which needs nothing from outside.  Flags replace what the suite says.  What is done already
    is not done again.
    """
    if suite and suite_option and suite != suite_option:
        raise click.UsageError(f"two suites are given: {suite!r} and {suite_option!r}")
    if flags["offline"]:
        from fiood_core.offline import go_offline

        go_offline()
    if settings.strict():
        registry.require_sound()
    from fiood_core.plan import resolve

    asked = asked_for(suite or suite_option, flags)
    output = flags["output"] or Path("runs") / asked.name
    if flags["explain"]:
        sys.exit(_explain(asked, output, flags["store"]))
    plan = resolve(asked)
    plan.require_sound()
    if plan.settings.device not in ("auto", "cpu"):
        from fiood_core.extract import pick_device

        pick_device(plan.settings.device)  # refused here, not once a cell
    sys.exit(_run(plan, output, flags["store"]))


def asked_for(name: str | None, flags: dict[str, Any]) -> Suite:
    """The suite that a name and flags stand for.

    Raises
    ------
    SuiteError, ParameterError
    """
    from dataclasses import replace

    from fiood_core import suite as suites

    name = name or _own_suite(flags)
    base = suites.load(name or "digits")
    asked = _Asked()
    changes: dict[str, Any] = {}
    inline = _inline(flags, asked)
    if inline is not None:
        changes["benchmarks"] = (inline,)
    elif flags["benchmark"]:
        requests = asked.requests("benchmark", flags["benchmark"])[0]
        changes["benchmarks"] = tuple(suites.BenchmarkRequest(str(r), r) for r in requests)
    for kind, key in (("backbone", "backbones"), ("vocabulary", "vocabularies")):
        if flags[kind]:
            changes[key] = tuple(asked.requests(kind, flags[kind])[0])
    own_task = name is None and ("benchmarks" in changes or "backbones" in changes)
    if flags["detector"] or own_task:
        requests, named = asked.requests("detector", flags["detector"] or ("all",))
        changes |= {"detectors": tuple(requests), "named": frozenset(map(str, named))}
    if own_task:
        changes |= {
            "name": _task_name(changes, base),
            "description": "",
            "vocabularies": changes.get("vocabularies", ()),
        }
        base = replace(base, settings=suites.Settings(), expect_top1={}, source="", lines={})
    if flags["expect_top1"] is not None:
        changes["expect_top1"] = {"*": flags["expect_top1"]}
    keys = ("device", "batch_size", "workers", "autocast", "on_bad_image", "precision", "seed", "executor")
    replaced = {kind for kind, key in FIELDS.items() if key in changes}
    unknown = {kind: lines for kind, lines in base.unknown.items() if kind not in replaced}
    suite = replace(base, **changes, unknown={**unknown, "": tuple(asked.unknown)})
    return suites.with_settings(suite, **{key: flags[key] for key in keys})


class _Asked:
    """Components that flags ask for; names that nothing is registered under are gathered, not raised."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def one(self, kind: str, text: str) -> Request | None:
        """The component that a string stands for, or None."""
        from fiood_core.request import Request
        from fiood_core.suite import anchored, name_problem

        request = Request.parse(kind, text)
        problem = name_problem(request)
        if problem:
            self.unknown.append(problem)
            return None
        return anchored(request, None)

    def requests(self, kind: str, texts: Sequence[str]) -> tuple[list[Request], list[Request]]:
        """Components separated by commas, patterns expanded, and those that were named outright."""
        from fiood_core.spec import split
        from fiood_core.suite import expand

        found = [self.one(kind, item) for text in texts for item in split(text)]
        return expand(kind, [request for request in found if request is not None])


def _own_suite(flags: dict[str, Any]) -> str | None:
    """The embedded suite of a benchmark that flags ask for by itself: it says which backbones and detectors suit it."""
    from fiood_core.suite import embedded

    asked = flags["benchmark"]
    alone = len(asked) == 1 and not (flags["backbone"] or flags["detector"] or flags["vocabulary"] or flags["id_set"])
    return asked[0] if alone and embedded(asked[0]) else None


def _task_name(changes: dict[str, Any], base: Suite) -> str:
    """What a run is called that only flags describe, and where its results go."""
    from fiood_core.results import file_name

    return file_name("+".join(b.name for b in changes.get("benchmarks", base.benchmarks)))


def _inline(flags: dict[str, Any], asked: _Asked) -> BenchmarkRequest | None:
    """The benchmark that ``--id``, ``--train`` and ``--ood`` describe, or None."""
    from fiood_core.suite import BenchmarkRequest

    if flags["id_set"] is None:
        for flag in ("train", "ood"):
            if flags[flag]:
                raise click.UsageError(f"--{flag} needs --id too")
        return None
    if flags["benchmark"]:
        raise click.UsageError("give either --benchmark, or --id and --ood")
    if not flags["ood"]:
        raise click.UsageError("--id needs at least one --ood NAME=DATASET")
    sets: dict[str, Any] = {}
    for item in flags["ood"]:
        name, equals, dataset = item.partition("=")
        if not (name and equals and dataset):
            raise click.UsageError(f"--ood {item!r}: write NAME=DATASET, for example textures=folder:dtd/images")
        if name in sets:
            raise click.UsageError(f"--ood {name!r} is given twice")
        found = asked.one("dataset", dataset)
        if found is not None:
            sets[name] = ("ood", found)
    train = None if flags["train"] is None else asked.one("dataset", flags["train"])
    test = asked.one("dataset", flags["id_set"])
    return None if test is None else BenchmarkRequest("custom", None, test, train, sets)


def _explain(asked: Suite, output: Path, store: Path | None) -> int:
    """Explaining fetches nothing: weights that are not here are told as missing."""
    from fiood_core.explain import explain
    from fiood_core.offline import caches_only
    from fiood_core.plan import resolve

    with caches_only():
        text, missing = explain(resolve(asked), output, store)
    click.echo(text)
    return 1 if missing else 0


def _run(plan: Plan, output: Path, store: Path | None) -> int:
    from fiood_core.errors import StoreError
    from fiood_core.runner import run
    from fiood_core.summary import summary

    try:
        found = run(plan, output, store=store, say=lambda text: click.echo(text, err=True))
    except StoreError as error:
        click.echo(f"fiood-run: {error}", err=True)
        return 3
    click.echo(summary(found))
    return 1 if found.failed else 0
