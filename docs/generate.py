"""What the site generates from the code: tables of components from their metadata, and the help of each command.

A line ``<!-- generated: NAME -->`` in a page is replaced by what the function of that name below gives.
"""

from __future__ import annotations

import ast
import dataclasses
import html
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from fiood_core import registry
from fiood_core.cli import fiood
from fiood_core.cli._run import command as fiood_run
from fiood_core.detector import Detector
from fiood_core.errors import ParameterError

CORE = Path(__file__).parent.parent / "fiood_core"
ROLE = re.compile(r":(?:mod|class|meth|func|attr|data):<code>~?")
MARK = re.compile(r"<!-- generated: (\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace every mark in a page; called by mkdocs."""
    return MARK.sub(lambda mark: GENERATED[mark[1]](), markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Leave out the roles that docstrings put before names; called by mkdocs."""
    return ROLE.sub("<code>", content)


def detectors_table() -> str:
    """One line a detector: name, score, source, what it reads."""
    rows = ["| name | score | published | reads |", "|---|---|---|---|"]
    for name, cls in _classes("detector"):
        reads = ", ".join([*cls.needs, *(["columns"] if cls().columns else [])])
        rows.append(f"| [`{name}`](#{_anchor(name)}) | {_cell(cls.formula)} | {_paper(cls)} | {reads} |")
    return "\n".join(rows)


def detectors() -> str:
    """A section a detector: what it computes, parameters, presets, alternatives, source."""
    return "\n\n".join(_detector_section(name, cls) for name, cls in _classes("detector"))


def backbones() -> str:
    """One line a backbone, from its card."""
    rows = ["| name | model | parameters | pre-training | expected top-1 |", "|---|---|---|---|---|"]
    for name, make in _classes("backbone"):
        try:
            card = make().card
        except ParameterError:  # it has models to choose from
            rows.append(f"| `{name}` | {_cell(_summary(make))} | | | |")
            continue
        count = f"{card.parameters / 1e6:.2f} M" if card.parameters else ""
        top1 = ", ".join(f"{100 * value:.1f} % on {k}" for k, value in card.expected_top1.items() if ":" not in k)
        rows.append(f"| `{name}` | {_cell(card.title)} | {count} | {_cell(card.pretraining)} | {_cell(top1)} |")
    return "\n".join(rows)


def presets() -> str:
    """A table for each backbone with presets, from their cards."""
    return "\n\n".join(_presets(name, make) for name, make in _classes("backbone") if getattr(make, "presets", None))


def datasets() -> str:
    """One line a dataset, from its info."""
    rows = ["| name | what it is | pictures | licence | cite |", "|---|---|---|---|---|"]
    for name, cls in _classes("dataset"):
        info = getattr(cls, "info", None)
        if not dataclasses.is_dataclass(info):
            rows.append(f"| `{name}` | {_cell(_summary(cls))} | | | |")
            continue
        title = f"[{_cell(info.title)}]({info.home})" if info.home else _cell(info.title)
        count = f"{info.expected_count:,}" if info.expected_count else ""
        rows.append(f"| `{name}` | {title} | {count} | {_cell(info.licence)} | {_cell(info.citation)} |")
    return "\n".join(rows)


def dataset_sections() -> str:
    """A section a dataset that comes from elsewhere: lists and archive with digests, labels and traps."""
    return "\n\n".join(_dataset_section(name, cls) for name, cls in _classes("dataset") if hasattr(cls, "archive"))


def vocabularies() -> str:
    """One line a vocabulary."""
    return _summaries("vocabulary")


def benchmarks() -> str:
    """One line a benchmark."""
    return _summaries("benchmark")


def commands() -> str:
    """The help of every command."""
    parts = [_help(fiood_run, "fiood-run")]
    context = click.Context(fiood, info_name="fiood")
    for name in fiood.list_commands(context):
        command = fiood.get_command(context, name)
        assert command is not None
        parts += _helps(command, f"fiood {name}")
    return "\n\n".join(parts)


def modules() -> str:
    """One line a module of the core, from its docstring."""
    rows = ["| module | |", "|---|---|"]
    for path in sorted(CORE.glob("[!_]*.py")) + sorted(p / "__init__.py" for p in CORE.iterdir() if p.is_dir()):
        if path.exists():
            name = path.parent.name if path.name == "__init__.py" else path.stem
            first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            rows.append(f"| `{name}` | {_cell(first)} |")
    return "\n".join(rows)


def _presets(name: str, make: Any) -> str:
    pairs = any("matched pair" in make.configured(preset=preset).card.extra for preset in make.presets)
    head = ["preset", "parameters", "pre-training", "pixels", *(["matched pair"] if pairs else []), "top-1", "licence"]
    rows = [f"Presets of `{name}`:\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for preset in make.presets:
        card = make.configured(preset=preset).card
        cells = [f"`{preset}`", f"{(card.parameters or 0) / 1e6:,.1f} M", card.pretraining, str(card.resolution or "")]
        cells += [card.extra.get("matched pair", "")] if pairs else []
        cells += [f"{100 * card.expected_top1['imagenet-1k']:.1f} %" if card.expected_top1 else "", card.licence]
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows)


GENERATED: dict[str, Callable[[], str]] = {
    function.__name__: function
    for function in (
        detectors_table,
        detectors,
        backbones,
        presets,
        datasets,
        dataset_sections,
        vocabularies,
        benchmarks,
        commands,
        modules,
    )
}
"""What a mark may ask for."""


def _classes(kind: str) -> Iterator[tuple[str, Any]]:
    for name in registry.names(kind):
        yield name, registry.load(kind, name)


def _detector_section(name: str, cls: type[Detector]) -> str:
    lines = [f"### {name} {{#{_anchor(name)}}}", "", _prose(cls), "", f"**Score** {_code(cls.formula)}", ""]
    parameters = [f for f in dataclasses.fields(cls) if f.name != "precision"]
    if parameters:
        lines += ["| parameter | default | other published values |", "|---|---|---|"]
        lines += [
            f"| `{f.name}` | `{_cell(repr(f.default))}` | {_cell(cls.alternatives.get(f.name, ''))} |"
            for f in parameters
        ]
        lines.append("")
    if cls.presets:
        values = "; ".join(
            f"`{preset}`: " + (", ".join(f"{k}={v!r}" for k, v in given.items()) or "the defaults")
            for preset, given in cls.presets.items()
        )
        lines += [f"**Presets** {values}", ""]
    if cls.cost:
        lines += [f"**Cost** {_code(cls.cost)}", ""]
    code = f" · [official code]({cls.reference.code})" if cls.reference.code else ""
    lines.append(f"**Source** {_cell(cls.reference.title)}, {_paper(cls)}{code}")
    return "\n".join(lines)


def _dataset_section(name: str, cls: Any) -> str:
    lines = [f"### {name} {{#{name}}}", "", f"{_cell(_summary(cls))} {_cell(cls.info.notes)}", ""]
    for what, remotes in (("List", cls.list_files), ("Archive", [cls.archive])):
        for remote in remotes:
            place = f"<{remote.urls[0]}>" if remote.urls else _cell(remote.instructions)
            digest = f", {remote.digest.partition(':')[0]} `{remote.digest.partition(':')[2]}`" if remote.digest else ""
            lines.append(f"- {what} `{remote.name}`: {place}{digest}{' (third parties)' * remote.digest_by_others}")
    lines.append(f"- Cite: {_cell(cls.info.citation)}. Licence: {_cell(cls.info.licence)}. <{cls.info.home}>")
    return "\n".join(lines)


def _prose(cls: type) -> str:
    """A docstring up to its first section, and its parameters as a list."""
    text = inspect.getdoc(cls) or ""
    text = re.sub(r":(?:mod|class|meth|func|attr|data):`~?([^`]+)`", r"`\1`", text)
    head, _, rest = text.partition("\n\nParameters\n----------\n")
    rest = re.split(r"\n\n\w[\w ]*\n-{3,}\n", rest)[0]
    items = re.findall(r"^(\S[^\n]*) : ([^\n]*)((?:\n {4}[^\n]*|\n(?=\n {4}))*)", rest, flags=re.MULTILINE)
    listed = [f"- `{names}` ({kind}): {' '.join(body.split())}".rstrip(": ") for names, kind, body in items]
    head = head.split("\n\n")[0] if "----" in head else head
    return head + ("\n\n" + "\n".join(listed) if listed else "")


def _summaries(kind: str) -> str:
    rows = ["| name | what it is |", "|---|---|"]
    rows += [f"| `{name}` | {_cell(_summary(cls))} |" for name, cls in _classes(kind)]
    return "\n".join(rows)


def _summary(target: Any) -> str:
    return (inspect.getdoc(target) or "").partition("\n\n")[0].replace("\n", " ")


def _paper(cls: type[Detector]) -> str:
    paper = cls.reference
    label = f"arXiv {paper.arxiv} ({paper.year})" if paper.arxiv else str(paper.year)
    return f"[{label}]({paper.link})" if paper.link else label


def _helps(command: click.Command, title: str) -> list[str]:
    found = [_help(command, title)]
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            found += _helps(inner, f"{title} {name}")
    return found


def _help(command: click.Command, title: str) -> str:
    text = command.get_help(click.Context(command, info_name=title, max_content_width=100))
    return f"## `{title}`\n\n```text\n{text}\n```"


def _anchor(name: str) -> str:
    return name.replace("+", "p")


def _code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ").replace("*", "\\*").replace("_", "\\_")
