"""The report's own sections, offered through the same hook as anyone else's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps

from fiood_core import registry
from fiood_core.errors import FioodError, PluginError
from fiood_core.hookspecs import Section, hookimpl
from fiood_core.report.graded import graded
from fiood_core.report.payload import payload
from fiood_core.report.views import BEST_RULE, MEAN_RULE, Row, Views
from fiood_core.results import method_of

if TYPE_CHECKING:
    from fiood_core.results import Results

CONVENTIONS = (
    "FPR@95 is the share of OOD scores at or above the 5th percentile of the ID scores (linear interpolation); AUROC "
    "is the probability that an ID score exceeds an OOD score, ties counted half; AUPR is average precision, with ID "
    "(AUPR-in) or OOD (AUPR-out) as the positive class, tied scores entering together."
)

FILTERS = (
    ("benchmark", "Benchmark"),
    ("backbone", "Backbone"),
    ("method", "Detector"),
    ("group", "Group"),
    ("ood", "OOD set"),
    ("subset", "Subset"),
    ("aggregation", "Aggregation"),
)
NUMBERS = (
    ("auroc", "AUROC", "descending"),
    ("fpr95", "FPR@95", "ascending"),
    ("aupr_in", "AUPR-in", "descending"),
    ("aupr_out", "AUPR-out", "descending"),
    ("n_id", "ID", "descending"),
    ("n_ood", "OOD", "descending"),
)


def environment() -> Environment:
    """The templates, with everything that is not markup escaped."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.filters["percent"] = lambda fraction: "–" if fraction is None else f"{100 * fraction:.2f}"
    return templates


@hookimpl
def fiood_report_sections(results: Results) -> list[Section]:
    """Best detectors, graded levels where there are such, comparison, plots, all results, failures, methods, record."""
    views = Views(results.rows)
    templates = environment()

    def section(title: str, template: str, **values: Any) -> Section:
        return Section(title, templates.get_template(template).render(values))

    data, unread = payload(views, results.directory)
    text = htmlsafe_json_dumps(data, dumps=lambda value, **_: json.dumps(value, separators=(",", ":")))
    every = [*results.rows, *results.failed]
    levels = graded(results.rows)
    return [
        section("Best detectors", "best.html", best_rule=BEST_RULE, mean_rule=MEAN_RULE, tables=list(_best(views))),
        *([section("Graded levels", "graded.html", benchmarks=levels)] if levels else []),
        section("Comparison", "comparison.html"),
        section("Scores", "scores.html", plots=len(data["plots"]["low"]), unread=unread, data=text),
        section("All results", "results.html", count=len(views.rows), filters=FILTERS, columns=_columns(views)),
        section("Skipped and failed", "failures.html", **_failures(results)),
        section(
            "Methods",
            "methods.html",
            conventions=CONVENTIONS,
            protocols=sorted({row["protocol"] for row in every if row["protocol"]}),
            methods=list(_methods(every)),
        ),
        section("Record", "record.html", tables=list(_record(results))),
    ]


def _best(views: Views) -> Iterator[dict[str, Any]]:
    for benchmark, backbones in views.tables.items():
        groups = views.groups(benchmark)
        lines = [
            (backbone, views.top1(benchmark, backbone), [views.best(benchmark, backbone, group) for group in groups])
            for backbone in backbones
        ]
        yield {"benchmark": benchmark, "groups": groups, "lines": lines}


def _columns(views: Views) -> list[tuple[str, str, str, str]]:
    """Name, label, kind and first direction of the columns of all results; those that say nothing are left out."""
    varied = {name for name in ("benchmark", "subset", "replicate") if len({row[name] for row in views.rows}) > 1}
    texts = [(n, label, "text", "ascending") for n, label in FILTERS if n not in ("benchmark", "subset") or n in varied]
    replicate = [("replicate", "Replicate", "number", "ascending")] if "replicate" in varied else []
    return [*texts, *replicate, *((name, label, "number", first) for name, label, first in NUMBERS)]


def _failures(results: Results) -> dict[str, Any]:
    """Cells without a result, those of equal reason in one line, and the pictures that were left out."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for row in results.failed:
        line = (
            row["status"],
            row["backbone"],
            method_of(row),
            row["benchmark"],
            row["reason"] or "no reason is recorded",
        )
        sets.setdefault(line, []).append(row["ood"] or "every set")
    names = ("status", "backbone", "method", "benchmark", "reason")
    return {
        "count": len(results.failed),
        "failed": [
            {**dict(zip(names, line, strict=True)), "ood": ", ".join(dict.fromkeys(oods))}
            for line, oods in sets.items()
        ],
        "skipped": list(dict.fromkeys(_skipped(results.run))),
    }


def _skipped(run: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Benchmark, set, id and reason of each picture that the record names; equal for every backbone."""
    for group in run.get("groups", ()):
        for planned in group["sets"]:
            for image_id, reason in planned.get("skipped", ()):
                yield group["benchmark"], planned["name"], image_id, reason


def _methods(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Each detector once, with what its class says of itself and every set of parameters it ran with."""
    settings: dict[tuple[str, str, str], dict[str, None]] = {}
    for row in rows:
        detector = (row["detector"], row["distribution"] or "", row["version"] or "")
        settings.setdefault(detector, {})[row["parameters"] or "{}"] = None
    for (name, distribution, version), parameters in settings.items():
        about = {"formula": "", "cost": "", "title": "", "year": None, "link": None, "code": None, "unknown": ""}
        notes: Mapping[str, str] = {}
        try:
            cls = _registered(name, distribution, version)
        except FioodError as error:
            about["unknown"] = str(error)
        else:
            paper = getattr(cls, "reference", None)
            notes = getattr(cls, "alternatives", {})
            about.update(formula=cls.formula, cost=cls.cost)
            if paper is not None:
                about.update(title=paper.title, year=paper.year, link=_web(paper.link), code=_web(paper.code))
        yield {
            "name": name,
            "distribution": distribution,
            "version": version,
            **about,
            "settings": [
                [(key, _plain(value), notes.get(key, "")) for key, value in json.loads(values).items()]
                for values in parameters
            ],
        }


def _registered(name: str, distribution: str, version: str) -> Any:
    """The class of a registered detector.

    Only a name that an installed distribution registers is loaded: results may come from elsewhere, and a
    ``module:Object`` or a path in them must not decide what is imported.
    """
    if name not in registry.names("detector"):
        raise PluginError("It is not registered here, so its formula is not shown.")
    component = registry.find("detector", name)
    if (component.distribution, component.version) != (distribution, version):
        here = f"{component.distribution} {component.version}"
        raise PluginError(f"Another version is installed here ({here}), so its formula is not shown.")
    return registry.load("detector", name)


def _web(address: str | None) -> str | None:
    """An address that a link may have; anything but http and https is left out."""
    return address if address and urlsplit(address).scheme in {"http", "https"} else None


def _record(results: Results) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """What made the results, without times and host."""
    run = results.run
    software = {name: run[name] for name in ("fiood", "commit", "python") if run.get(name)}
    for title, value in (
        ("Software", {**software, **run.get("versions", {})}),
        ("Hardware", run.get("hardware")),
        ("Settings and seed", run.get("settings")),
        ("Pictures", run.get("images")),
        ("Left out", run.get("left_out")),
    ):
        if value:
            yield title, list(_flat(value))


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested plain data as lines of a name and a text."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{prefix} {name}".strip())
    else:
        yield prefix, _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
