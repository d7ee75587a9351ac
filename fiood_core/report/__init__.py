"""The report of a run: one HTML file that needs nothing but a browser.

Every section comes through the hook :func:`fiood_core.hookspecs.fiood_report_sections`, the report's own first.  All
text that results and plugins bring is escaped; only the HTML of a section is inserted as it is, because that is what
the hook is for: whoever installs a hook trusts it with the page.  The page may load nothing from anywhere (a content
security policy holds it to that), and it has no times and no host, so equal results give equal bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy
from markupsafe import Markup

from fiood_core import __version__, hookspecs
from fiood_core.report import sections as own
from fiood_core.report.standing import digests, facts, reasons

if TYPE_CHECKING:
    from fiood_core.results import Results

__all__ = ["write_report"]

OWN = "fiood-core (report)"


@dataclass(frozen=True)
class Part:
    """A section as the page shows it: its HTML, or the reason why there is none."""

    id: str
    title: str
    source: str
    html: Markup
    error: str


def write_report(results: Results, path: Path, hooks: pluggy.PluginManager | None = None) -> None:
    """Write the report of a run.

    Parameters
    ----------
    results : Results
    path : Path
        The HTML file; it is replaced in one step.
    hooks : PluginManager, optional
        Where sections come from; every installed hook by default.
    """
    from fiood_core.results import write_atomic

    write_atomic(Path(path), render(results, hooks).encode())


def render(results: Results, hooks: pluggy.PluginManager | None = None) -> str:
    """The report as HTML; the same text for the same results."""
    plugins = hookspecs.manager() if hooks is None else hooks
    if not plugins.is_registered(own):
        plugins.register(own, name=OWN)
    here = Path(__file__).parent
    return (
        own.environment()
        .get_template("page.html")
        .render(
            title=str(results.run.get("suite") or results.directory.name),
            suite=results.run.get("suite"),
            benchmarks=list(dict.fromkeys(row["benchmark"] for row in [*results.rows, *results.failed])),
            facts=facts(results),
            digests=digests(results),
            reasons=reasons(results),
            sections=_parts(results, plugins),
            version=__version__,
            css=Markup((here / "report.css").read_text(encoding="utf-8")),
            js=Markup((here / "report.js").read_text(encoding="utf-8")),
        )
    )


def _parts(results: Results, plugins: pluggy.PluginManager) -> list[Part]:
    """Sections of every hook, each hook on its own: what one raises stands in its place."""
    hook = plugins.hook.fiood_report_sections
    implementations = hook.get_hookimpls()
    implementations.sort(key=lambda one: one.plugin is not own)
    parts: list[Part] = []
    for one in implementations:
        others = [other.plugin for other in implementations if other.plugin is not one.plugin]
        try:
            offered = plugins.subset_hook_caller("fiood_report_sections", others)(results=results)
            found = [(_text(section.title), _text(section.html), "") for some in offered for section in some]
        except (Exception, SystemExit) as error:
            found = [(one.plugin_name, "", f"{type(error).__name__}: {error}")]
        for title, html, reason in found:
            parts.append(Part(_id(title, {part.id for part in parts}), title, one.plugin_name, Markup(html), reason))
    return parts


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a section's title and html must be text, not {type(value).__name__}")
    return str(value)


def _id(title: str, taken: set[str]) -> str:
    """A fragment for a title that no other section has."""
    base = "s-" + (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section")
    number = 1
    while (fragment := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return fragment
