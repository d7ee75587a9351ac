"""Show, mine, generate and measure lists of labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fiood_core.errors import InputError, ParameterError

if TYPE_CHECKING:
    from fiood_core.generation import GeneratedVocabulary
    from fiood_core.text import LabelEmbeddings
    from fiood_core.vocabulary import Labels, Vocabulary

NAMES_HELP = (
    "ID names: imagenet-names, a dataset that names its classes, or a text file with one name a line "
    "(default: imagenet-names)."
)
OUTPUT = click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the labels here.")
NAMES = click.option("--names", default="imagenet-names", metavar="SOURCE", help=NAMES_HELP)
DEVICE = click.option("--device", default="auto", metavar="NAME", help="Where the backbone embeds labels.")


class _Names(NamedTuple):
    """ID names, and WordNet ids where they are known."""

    names: Sequence[str]
    wnids: Sequence[str] | None


@click.group()
def command() -> None:
    """Show, mine, generate and measure the lists of labels that negative-label detectors score against."""


def _reading(function: Any) -> Any:
    """The options of a command that makes a vocabulary's list."""
    options = (
        click.argument("vocabulary"),
        NAMES,
        click.option("--replicate", type=click.IntRange(min=0), default=0, help="Which generation (default: 0)."),
        click.option("--ood", metavar="DATASET", help="The OOD set, for a vocabulary that depends on it."),
        click.option("--backbone", metavar="NAME", help="The model, for a vocabulary that mines with its embeddings."),
        DEVICE,
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command()
@_reading
@click.option("--limit", type=click.IntRange(min=1), help="Show only so many.")
@OUTPUT
def show(limit: int | None, output: Path | None, **given: Any) -> None:
    """Print a vocabulary's labels, or write them.

    For example `wordnet`, `wordnet(m=5000)` with a backbone, or `eoe(style=near)`.
    """
    labels = _labels(**given)
    if output is not None:
        _write(output, labels)
        return
    for name in labels.names[:limit]:
        click.echo(name)


@command.command()
@_reading
def stats(**given: Any) -> None:
    """Print how a vocabulary's list was made.

    Size, digest, sources, filters, and the overlap with the ID names, as JSON.
    """
    click.echo(json.dumps(_labels(**given).record, indent=1, ensure_ascii=False))


@command.command()
@click.argument("candidates", default="wordnet")
@click.option("--backbone", required=True, metavar="NAME", help="The model whose text embeddings decide.")
@click.option("--m", "m", type=click.IntRange(min=1), default=5000, show_default=True, help="Labels to keep.")
@click.option("--quantile", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="Over the ID names.")
@NAMES
@DEVICE
@OUTPUT
def mine(candidates: str, backbone: str, m: int, quantile: float, names: str, device: str, output: Path | None) -> None:
    """Keep the labels that are farthest from the ID names.

    NegMining over the labels of a vocabulary, by default `wordnet`; farthest first.
    """
    from fiood_core.mining import negmining
    from fiood_core.text import distinct
    from fiood_core.vocabulary import VocabularyContext, recorded
    from fiood_core.zero_shot import labels_for

    known = _names(names)
    embeddings = _embeddings(backbone, device)
    found = labels_for(_vocabulary(candidates), *known, embeddings=embeddings)
    inside = embeddings(distinct(known.names)[0])
    kept = negmining(embeddings(found.names), inside, m, quantile, found.names)
    record = {"candidates": found.record, "m": m, "quantile": quantile, "backbone": backbone}
    labels = recorded((found.names[i] for i in kept), VocabularyContext(tuple(known.names)), **record)
    if output is None:
        click.echo("\n".join(labels.names))
    else:
        _write(output, labels)


@command.command()
@click.argument("vocabulary")
@click.option("--model", required=True, help="Name of the chat model.")
@click.option("--base-url", help="Server that speaks the OpenAI protocol (default: OpenAI's).")
@NAMES
@click.option("--replicates", type=click.IntRange(min=1), help="Independent generations (default: the paper's).")
@click.option("--temperature", type=float, help="Left to the server by default.")
@click.option("--requests-per-minute", type=click.FloatRange(min=0, min_open=True), help="Rate limit.")
@click.option("--prices", type=(float, float), metavar="IN OUT", help="Dollars for a million tokens, for an estimate.")
@click.option("--allow-calls", is_flag=True, help="Make the calls; without it only the estimate is shown.")
def generate(
    vocabulary: str,
    model: str,
    base_url: str | None,
    names: str,
    replicates: int | None,
    temperature: float | None,
    requests_per_minute: float | None,
    prices: tuple[float, float] | None,
    allow_calls: bool,
) -> None:
    """Ask a language model for a vocabulary's lists.

    For `eoe` and `llm-siblings`.  An interrupted generation goes on where it stopped.  The key is read from
    OPENAI_API_KEY.  Every raw reply is kept in the vocabulary's generation file, which can be shared and is replayed
    without a key.
    """
    from fiood_core import generation
    from fiood_core.progress import progress_bar

    made = _generated(vocabulary)
    known = _names(names)
    count = replicates or made.default_replicates
    conversations = made.conversations(known.names)
    estimate = generation.estimate(made.file, conversations, count, prices)
    click.echo(f"{made.path}: {estimate}", err=True)
    if not allow_calls:
        click.echo("no call was made; give --allow-calls to make them", err=True)
        return
    client = generation.Client(
        model, base_url=base_url, temperature=temperature, requests_per_minute=requests_per_minute
    )
    with progress_bar(total=estimate.calls, unit="call", disable=not estimate.calls) as bar:
        generation.generate(
            made.file,
            client,
            made.kind,
            conversations,
            count,
            allow_calls=True,
            request={"id_names": generation.names_digest(known.names)},
            progress=lambda _done, _total: bar.update(),
        )
    click.echo(f"{made.path}: {len(made.file.replies)} replies")


def _labels(vocabulary: str, names: str, replicate: int, ood: str | None, backbone: str | None, device: str) -> Labels:
    from fiood_core.request import Request
    from fiood_core.zero_shot import labels_for

    made = _vocabulary(vocabulary)
    if made.needs_ood and ood is None:
        raise InputError(f"{vocabulary} depends on the OOD set; name one with --ood")
    embeddings = None if backbone is None else _embeddings(backbone, device)
    view = None if ood is None else Request.parse("dataset", ood).create().view()
    return labels_for(made, *_names(names), embeddings=embeddings, replicate=replicate, ood=view)


def _names(source: str) -> _Names:
    from fiood_core import imagenet
    from fiood_core.registry import names as registered
    from fiood_core.request import Request
    from fiood_core.spec import parse
    from fiood_core.zero_shot import IMAGENET_NAMES, class_names

    if parse(source).name == IMAGENET_NAMES:
        vocabulary: Any = _vocabulary(source)
        return _Names(vocabulary.names(), imagenet.wnids())
    request = Request.parse("dataset", source)
    if request.name in registered("dataset"):
        dataset = request.create()
        return _Names(class_names(dataset), dataset.class_wnids)
    if not Path(source).is_file():
        raise ParameterError(f"--names {source!r} is neither imagenet-names, nor a dataset, nor a text file")
    lines = [line.strip() for line in Path(source).read_text(encoding="utf-8").splitlines()]
    if not any(lines):
        raise InputError(f"{source} names no class; write one name a line")
    return _Names([line for line in lines if line], None)


def _vocabulary(spec: str) -> Vocabulary:
    from fiood_core.request import Request

    made: Vocabulary = Request.parse("vocabulary", spec).create()
    return made


def _generated(spec: str) -> GeneratedVocabulary:
    from fiood_core.generation import GeneratedVocabulary

    made = _vocabulary(spec)
    if not isinstance(made, GeneratedVocabulary):
        raise ParameterError(f"{spec} is not written by a language model; eoe and llm-siblings are")
    return made


def _embeddings(backbone: str, device: str) -> LabelEmbeddings:
    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.extract import pick_device
    from fiood_core.request import Request
    from fiood_core.text import LabelEmbeddings

    made = Request.parse("backbone", backbone).create()
    if not isinstance(made, VisionLanguageBackbone):
        raise ParameterError(f"{backbone} embeds no text; name a vision-language model")
    return LabelEmbeddings(made, pick_device(device), progress=True)


def _write(output: Path, labels: Labels) -> None:
    """One label a line; beside it, in JSON, how the list was made."""
    from fiood_core.results import write_atomic, write_json

    write_atomic(output, "".join(f"{name}\n" for name in labels.names).encode())
    write_json(output.with_name(f"{output.name}.json"), labels.record)
    click.echo(f"{output}: {len(labels)} labels, digest {labels.digest}", err=True)
