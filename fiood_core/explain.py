"""A plan in words: its cells, what each reads, what is kept already, what it will take, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fiood_core import results
from fiood_core.errors import FioodError, StatisticError
from fiood_core.plan import ID, TRAIN, Plan, PlannedBackbone, PlannedBenchmark, PlannedSet, Variant, tokens
from fiood_core.tasks import ScoreFile, extraction

if TYPE_CHECKING:
    from fiood_core.column import Column
    from fiood_core.extract import Missing
    from fiood_core.statistics import TrainContext
    from fiood_core.store import FeatureStore

MACS_PER_WEIGHT = 170
"""Multiplications of one forward pass a weight, at 224 × 224: 160 in ResNet-50, 200 in ViT-B/16."""

CPU_RATE, GPU_RATE = 3e10, 2e13
"""Multiplications a second that a forward pass comes to, on one core and on an accelerator; orders of magnitude."""

SCORE_RATE = 2e5
"""Pictures that one detector scores in a second; an order of magnitude."""

BLOCK_BYTES = 64 << 20
UNKNOWN_WIDTHS = (64, 1 << 20)
"""A narrow and a wide guess where the store does not know the features yet: what both refuse, counts alone refuse."""

ASSUMED_WIDTH = 1024
"""Width of features where the store does not know it yet."""


@dataclass
class _Estimate:
    """What a run will take."""

    images: int = 0
    seconds: float = 0.0
    disk: int = 0
    memory: int = BLOCK_BYTES
    certain: bool = True


@dataclass
class _Explained:
    lines: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    estimate: _Estimate = field(default_factory=_Estimate)
    cells: int = 0
    kept: int = 0


def explain(plan: Plan, directory: Path, store: Path | None = None) -> tuple[str, list[str]]:
    """The plan in words, and everything that keeps some of it from running.

    Nothing is run, loaded or written.

    Returns
    -------
    text : str
    missing : list of str
        Unknown names, missing pictures and weights, detectors that cannot be fitted; empty if all is there.
    """
    from fiood_core.store import FeatureStore

    told = _Explained(missing=list(plan.wrong))
    for benchmark, backbone in plan.groups:
        _group(told, plan, benchmark, backbone, directory, FeatureStore(store))
    for benchmark in plan.benchmarks:
        told.missing += _missing_sets(benchmark)
    told.missing += [f"backbone {b.name}: {b.problem.reason}" for b in plan.backbones if b.problem is not None]
    told.missing += [f"detector {v.column}: {v.problem.reason}" for v in plan.variants if v.problem is not None]
    head = f"suite {plan.suite.name}: {told.cells} cells, {told.kept} of them kept in {directory}"
    tail = [*_estimate(told.estimate), *(f"left out: {c}: {why}" for c, why in plan.left_out.items())]
    missing = list(dict.fromkeys(told.missing))
    tail += (
        ["", f"{len(missing)} things are missing:", *(f"  {m}" for m in missing)] if missing else ["nothing is missing"]
    )
    return "\n".join([head, *told.lines, "", *tail]), missing


def _group(
    told: _Explained,
    plan: Plan,
    benchmark: PlannedBenchmark,
    backbone: PlannedBackbone,
    directory: Path,
    store: FeatureStore,
) -> None:
    told.lines += ["", f"{backbone.name} on {benchmark.name}", *_classes(benchmark, backbone)]
    wanted = {TRAIN: [v for v in plan.variants_of(backbone) if v.learns(backbone)]}
    for planned in benchmark.sets:
        readers = wanted.get(planned.name, plan.variants_of(backbone))
        if readers or planned.name != TRAIN:
            _set(told, plan, planned, backbone, readers, store)
    kept = _kept(plan, benchmark, backbone, directory)
    for variant in plan.variants_of(backbone):
        _variant(told, plan, benchmark, backbone, variant, kept)
        told.missing += _unfittable(benchmark, backbone, variant, store)


def _classes(benchmark: PlannedBenchmark, backbone: PlannedBackbone) -> Iterator[str]:
    """The ID names of a vision-language model; they become its classes if their embeddings are kept."""
    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.text import distinct
    from fiood_core.zero_shot import ZeroShot

    model, test = backbone.backbone, benchmark.test
    if not isinstance(model, VisionLanguageBackbone) or test is None or test.dataset is None:
        return
    zero_shot = ZeroShot(model, test.dataset)
    try:
        names, _ = distinct(zero_shot.names)
        lacking = zero_shot.embeddings.missing(names)
        if not lacking:
            model.set_classes(zero_shot.head)
    except FioodError:
        return  # the reason stands at every cell
    yield f"  classes: {len(names)} names, {len(names) - lacking} embedded"


def _set(
    told: _Explained,
    plan: Plan,
    planned: PlannedSet,
    backbone: PlannedBackbone,
    readers: Iterable[Variant],
    store: FeatureStore,
) -> None:
    group = f" ({planned.group})" if planned.group else ""
    if planned.view is None:
        told.lines.append(f"  set {planned.name}{group}: missing")
        return
    line = f"  set {planned.name}{group}: {len(planned.view)} pictures"
    if backbone.backbone is not None:
        columns = {c.key: c for v in readers for c in v.columns}
        todo = _todo(plan, planned, backbone, list(columns.values()), store)
        if todo is None:
            line += ", what is cached is not known"
        else:
            line += f", {todo.total - todo.images} cached"
            _add(told.estimate, plan, planned, backbone, todo)
    told.lines.append(line)


def _todo(
    plan: Plan, planned: PlannedSet, backbone: PlannedBackbone, columns: list[Column], store: FeatureStore
) -> Missing | None:
    from fiood_core.extract import missing

    assert backbone.backbone is not None
    assert planned.dataset is not None
    try:
        return missing(backbone.backbone, planned.dataset, store, extraction(plan.settings), columns)
    except FioodError:
        return None


def _variant(
    told: _Explained,
    plan: Plan,
    benchmark: PlannedBenchmark,
    backbone: PlannedBackbone,
    variant: Variant,
    kept: Mapping[str, set[str]],
) -> None:
    problem = plan.problem(benchmark, backbone, variant)
    reads = [*(variant.detector.needs if variant.detector else ()), *(c.key for c in variant.columns)]
    reads += [TRAIN] if variant.learns(backbone) else []
    sets = list(benchmark.ood)
    inside = kept.get(ID, set())
    whole = [n for n in sets if variant.id_column(n) in inside and variant.column in kept.get(n, set())]
    told.cells += max(1, len(sets))
    told.kept += len(whole)
    state = problem.reason if problem is not None else f"{len(whole)} of {len(sets)} kept"
    told.lines.append(f"  cells {variant.column} × {', '.join(sets)}: reads {', '.join(reads) or 'nothing'}; {state}")
    if problem is not None and problem is not variant.problem and problem not in (benchmark.problem, backbone.problem):
        told.missing.append(f"detector {variant.column} with {backbone.name} on {benchmark.name}: {problem.reason}")
    left = [s for s in benchmark.sets if s.view is not None and s.name not in whole and s.name != TRAIN]
    told.estimate.seconds += sum(len(s.view) for s in left if s.view is not None) / SCORE_RATE


def _kept(plan: Plan, benchmark: PlannedBenchmark, backbone: PlannedBackbone, directory: Path) -> dict[str, set[str]]:
    """Columns of scores that the directory has, by set."""
    found = {}
    for planned in benchmark.sets:
        if planned.view is None or planned.name == TRAIN or backbone.problem is not None:
            continue
        name = results.scores_path(benchmark.name, backbone.name, None if planned.name == ID else planned.name)
        sound = [v for v in plan.variants_of(backbone) if plan.problem(benchmark, backbone, v) is None]
        wanted = tokens(plan, benchmark, backbone, sound, planned.name)
        found[planned.name] = set(ScoreFile(directory, name).kept(wanted).columns)
    return found


def _missing_sets(benchmark: PlannedBenchmark) -> Iterator[str]:
    if benchmark.problem is not None:
        yield f"benchmark {benchmark.name}: {benchmark.problem.reason}"
    for planned in benchmark.sets:
        for sentence in planned.missing:
            yield f"{benchmark.name}, set {planned.name}: {sentence}"


def _unfittable(
    benchmark: PlannedBenchmark, backbone: PlannedBackbone, variant: Variant, store: FeatureStore
) -> Iterator[str]:
    """Statistics of the first round that have too little under them, as far as counts and labels tell."""
    train = benchmark.train
    if not variant.learns(backbone) or variant.detector is None or train is None or train.view is None:
        return
    if backbone.backbone is None:
        return
    import torch

    from fiood_core.statistics import TrainContext

    targets = train.view.targets
    labels = None
    if targets is not None and all(len(t) == 1 for t in targets):
        labels = torch.tensor([t[0] for t in targets])
    head = store.head(backbone.key)
    classes = backbone.backbone.num_classes if head is None else head.num_rows
    widths = UNKNOWN_WIDTHS if head is None else (head.dim,)
    contexts = [TrainContext(len(train.view), width, classes, labels, head, has_logits=True) for width in widths]
    for check in (variant.detector.check, *(s.check for s in variant.detector.statistics_for(head))):
        refusals = [_refusal(check, context) for context in contexts]
        if all(refusals):
            yield f"detector {variant.column} on {benchmark.name}: {refusals[0]}"


def _refusal(check: Callable[[TrainContext], None], context: TrainContext) -> StatisticError | None:
    try:
        check(context)
    except StatisticError as error:
        return error
    except Exception:
        return None  # what needs the head or the rows is checked when they are there
    return None


def _add(estimate: _Estimate, plan: Plan, planned: PlannedSet, backbone: PlannedBackbone, todo: Missing) -> None:
    assert backbone.backbone is not None
    card = backbone.backbone.card
    estimate.images += todo.images
    if todo.images:
        weights, side = card.parameters or 3e7, card.resolution or 224
        rate = CPU_RATE * (os.cpu_count() or 1) if _on_cpu(plan) else GPU_RATE
        estimate.certain = estimate.certain and card.parameters is not None
        estimate.seconds += todo.images * weights * MACS_PER_WEIGHT * (side / 224) ** 2 / rate + todo.images / 2000
        estimate.memory = max(estimate.memory, int(4 * weights) + plan.settings.batch_size * side * side * 3 * 4 * 20)
    columns = max(1, len(todo.columns))
    estimate.disk += todo.bytes if todo.bytes is not None else 4 * ASSUMED_WIDTH * todo.images * columns
    estimate.certain = estimate.certain and todo.bytes is not None


def _on_cpu(plan: Plan) -> bool:
    from fiood_core.extract import pick_device

    return pick_device(plan.settings.device).type == "cpu"


def _estimate(estimate: _Estimate) -> Iterator[str]:
    yield f"{estimate.images} pictures go through a backbone; about {_time(estimate.seconds)} (an order of magnitude)"
    rough = "" if estimate.certain else " (the width of some features is not known yet)"
    yield f"about {_size(estimate.disk)} more on disk{rough}, {_size(estimate.memory)} of memory above the program's"


def _time(seconds: float) -> str:
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (float("inf"), 3600, "h")):
        if seconds < limit:
            return f"{max(1, round(seconds / unit))} {name}"
    raise AssertionError


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
