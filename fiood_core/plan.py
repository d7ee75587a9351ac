"""What will run: a suite resolved to cells backbone × detector × vocabulary × replicate × OOD set.

Planning creates components and reads lists of pictures; it reads no picture and loads no weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fiood_core import registry
from fiood_core.errors import (
    FioodError,
    InputError,
    ParameterError,
    StatisticError,
    SuiteError,
    UnknownComponentError,
)
from fiood_core.request import Request, core_digest, digest, source_digest
from fiood_core.suite import BenchmarkRequest, Settings, Suite

if TYPE_CHECKING:
    from fiood_core.backbone import Backbone
    from fiood_core.benchmark import Benchmark
    from fiood_core.column import Column
    from fiood_core.dataset import Dataset, View
    from fiood_core.detector import Detector
    from fiood_core.images import ImagePolicy
    from fiood_core.vocabulary import Vocabulary

ID = "id"
TRAIN = "train"


@dataclass(frozen=True)
class Problem:
    """Why a cell has no result.

    Attributes
    ----------
    status : str
        ``"failed"`` or ``"refused"``.
    reason : str
    """

    status: str
    reason: str

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """What an exception means for a cell: a refusal of fiood's own, or something that broke."""
        if isinstance(error, FioodError):
            return cls("refused" if isinstance(error, (StatisticError, InputError)) else "failed", str(error))
        return cls("failed", f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Cell:
    """One unit of work.

    Attributes
    ----------
    benchmark, backbone, column, ood : str
        ``column`` is the detector with its parameters, vocabulary and replicate.
    """

    benchmark: str
    backbone: str
    column: str
    ood: str


@dataclass(frozen=True)
class PlannedSet:
    """A set of pictures that a benchmark reads.

    Attributes
    ----------
    name : str
        ``"id"``, ``"train"``, or the OOD set's name.
    group : str
    dataset : Dataset or None
    view : View or None
        None where something is missing.
    missing : tuple of str
        Everything that keeps it from being read.
    digest : str
        The view's digest, which results are keyed by; empty where something is missing.
    content : str
        SHA-256 of the view and of the pictures' stamps: changes when a picture may have.
    """

    name: str
    group: str
    dataset: Dataset | None
    view: View | None = None
    missing: tuple[str, ...] = ()
    digest: str = ""
    content: str = ""


@dataclass
class PlannedBenchmark:
    """A benchmark with its sets looked at.

    Attributes
    ----------
    request : BenchmarkRequest
    benchmark : Benchmark or None
    test : PlannedSet or None
    train : PlannedSet or None
        None also where the benchmark has no training set.
    ood : mapping from name to PlannedSet
    problem : Problem or None
    """

    request: BenchmarkRequest
    benchmark: Benchmark | None = None
    test: PlannedSet | None = None
    train: PlannedSet | None = None
    ood: Mapping[str, PlannedSet] = field(default_factory=dict)
    problem: Problem | None = None

    @property
    def name(self) -> str:
        """What results call it."""
        return self.request.name

    @property
    def sets(self) -> Sequence[PlannedSet]:
        """ID test set, training set, OOD sets."""
        return [s for s in (self.test, self.train, *self.ood.values()) if s is not None]

    @cached_property
    def seen(self) -> int:
        """How many ID test pictures the training set holds too; what learns from it has seen them."""
        if self.test is None or self.train is None or self.test.view is None or self.train.view is None:
            return 0
        if self.test.view.source != self.train.view.source:
            return 0
        return len(set(self.test.view.ids) & set(self.train.view.ids))

    def find(self, name: str) -> PlannedSet:
        """The set of a name; ``"id"`` and ``"train"`` are the ID ones."""
        found = {ID: self.test, TRAIN: self.train}.get(name) or self.ood[name]
        return found

    @property
    def dataset_name(self) -> str:
        """What a backbone's card calls the ID test set: its registered name, else the benchmark's."""
        own = "" if self.test is None else getattr(self.test.dataset, "name", "")
        return str(own or self.name)


@dataclass(frozen=True)
class PlannedBackbone:
    """A backbone, not loaded.

    Attributes
    ----------
    request : Request
    backbone : Backbone or None
    key : str
        What the feature store knows it by; empty where it has a problem.
    problem : Problem or None
    """

    request: Request
    backbone: Backbone | None
    key: str
    problem: Problem | None = None

    @property
    def name(self) -> str:
        """What results call it."""
        return str(self.request)


@dataclass(frozen=True)
class Variant:
    """A detector with one vocabulary and one replicate: what gives one column of scores.

    Attributes
    ----------
    request : Request
    vocabulary : Request or None
    replicate : int or None
    detector : Detector or None
    distribution, version, parameters : str
        Where it comes from, and every parameter as canonical JSON.
    code : str
        SHA-256 of the file that defines it.
    problem : Problem or None
    content : str
        What the vocabulary's labels come from: its code, and the files that it names.
    of_ood : bool
        Whether the vocabulary depends on the OOD set; then so do the scores of the ID test set.
    """

    request: Request
    vocabulary: Request | None = None
    replicate: int | None = None
    detector: Detector | None = None
    distribution: str = ""
    version: str = ""
    parameters: str = "{}"
    code: str = ""
    problem: Problem | None = None
    content: str = ""
    of_ood: bool = False

    @property
    def column(self) -> str:
        """The detector with its parameters, vocabulary and replicate, as scores and tables name it."""
        parts = [str(self.request)]
        if self.vocabulary is not None:
            parts.append(str(self.vocabulary))
        if self.replicate is not None:
            parts.append(f"#{self.replicate}")
        return " · ".join(parts)

    def id_column(self, ood: str) -> str:
        """The column of the ID test set's scores that is compared with an OOD set's."""
        return f"{self.column} @ {ood}" if self.of_ood else self.column

    def names(self, of_set: str, sets: Iterable[str]) -> dict[str, str | None]:
        """Columns of a set's scores, each with the OOD set that its vocabulary depends on."""
        if not self.of_ood:
            return {self.column: None}
        return {self.id_column(ood): ood for ood in sets} if of_set == ID else {self.column: of_set}

    def learns(self, backbone: PlannedBackbone) -> bool:
        """Whether the detector learns from training data, with a backbone's kind of head."""
        return self.detector is not None and learns(self.detector, backbone.backbone)

    @property
    def columns(self) -> Sequence[Column]:
        """What the detector needs computed from pixels."""
        return () if self.detector is None else tuple(self.detector.columns)

    def data(self) -> dict[str, Any]:
        """The variant as a mapping that a task can hold."""
        return {
            "column": self.column,
            "detector": self.request.data(),
            "vocabulary": None if self.vocabulary is None else self.vocabulary.data(),
            "replicate": self.replicate,
        }


@dataclass
class Plan:
    """Everything that a run will do.

    Attributes
    ----------
    suite : Suite
    benchmarks : list of PlannedBenchmark
    backbones : list of PlannedBackbone
    variants : list of Variant
    left_out : mapping from column to reason
        Detectors that a pattern would have named but that fit nothing here.
    wrong : list of str
        What the suite asks for in vain: unknown names, parameters that do not exist, names used twice.
    """

    suite: Suite
    benchmarks: list[PlannedBenchmark]
    backbones: list[PlannedBackbone]
    variants: list[Variant]
    left_out: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def require_sound(self) -> None:
        """Raise unless everything that the suite asks for exists.

        Raises
        ------
        SuiteError
            Every problem at once, with its line.
        """
        wrong = list(self.wrong)
        if not wrong and not (self.benchmarks and self.backbones and self.variants):
            reasons = "".join(f"\n  {column}: {reason}" for column, reason in self.left_out.items())
            wrong.append(f"suite {self.suite.name!r} has nothing to run{reasons}")
        if wrong:
            raise SuiteError("\n".join(wrong))

    @property
    def settings(self) -> Settings:
        """How the run computes."""
        return self.suite.settings

    @property
    def groups(self) -> Iterator[tuple[PlannedBenchmark, PlannedBackbone]]:
        """Benchmark and backbone, backbone by backbone: what shares one fit."""
        for backbone in self.backbones:
            for benchmark in self.benchmarks:
                yield benchmark, backbone

    @property
    def cells(self) -> Iterator[Cell]:
        """Every cell, in the order of the table."""
        for benchmark, backbone in self.groups:
            for variant in self.variants_of(backbone):
                for ood in benchmark.ood or ("",):
                    yield Cell(benchmark.name, backbone.name, variant.column, ood)

    def variants_of(self, backbone: PlannedBackbone) -> list[Variant]:
        """The variants that are asked of a backbone.

        What can only be asked of another kind of backbone is no cell here, if the suite has one of that kind.
        """
        return [
            variant
            for variant in self.variants
            if _wrong_kind(backbone, variant) is None or all(_wrong_kind(b, variant) for b in self.backbones)
        ]

    def expected_top1(self, backbone: PlannedBackbone) -> float | None:
        """The suite's own expectation of a backbone's accuracy."""
        expected = self.suite.expect_top1
        return expected.get(backbone.name, expected.get(backbone.request.name, expected.get("*")))

    def problem(self, benchmark: PlannedBenchmark, backbone: PlannedBackbone, variant: Variant) -> Problem | None:
        """What is known before anything runs to keep a variant from giving scores."""
        known = benchmark.problem or backbone.problem or variant.problem
        return known or _misfit(benchmark, backbone, variant)


def resolve(suite: Suite) -> Plan:
    """The plan of a suite; see :meth:`Plan.require_sound` for what is wrong with it."""
    wrong = [problem for problems in suite.unknown.values() for problem in problems]
    benchmarks = [plan_benchmark(request, wrong, suite.at(request.name)) for request in suite.benchmarks]
    backbones = [b for request in suite.backbones if (b := _backbone(request, suite, wrong)) is not None]
    variants = [v for request in suite.detectors for v in _variants(request, suite, wrong)]
    wrong += [f"two {what} are both called {name!r}" for what, name in _twice(backbones, variants)]
    unused = set(suite.expect_top1) - {"*"} - {n for r in suite.backbones for n in (str(r), r.name)}
    wrong += [f"expect_top1 names {name!r}, which is no backbone of the suite" for name in sorted(unused)]
    plan = Plan(suite, benchmarks, backbones, variants, wrong=wrong)
    _leave_out(plan)
    return plan


def image_policy(settings: Settings) -> ImagePolicy:
    """The policy that a suite's settings ask for."""
    from fiood_core.images import ImagePolicy

    given: dict[str, Any] = {"on_error": settings.on_bad_image}
    if settings.max_pixels is not None:
        given["max_pixels"] = settings.max_pixels
    return ImagePolicy(**given)


def learns(detector: Detector, backbone: Backbone | None) -> bool:
    """Whether a detector learns from training data, with a backbone's kind of head.

    What some learn for a classifier (class centroids), the head of a vision-language model says already.
    """
    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.head import Head

    if not isinstance(backbone, VisionLanguageBackbone):
        return detector.learns(None)
    return detector.learns(Head([[1.0]], temperature=backbone.temperature))


def make_detector(request: Request, settings: Settings) -> Detector:
    """A detector with the suite's precision where it does not say its own."""
    parameters = dict(request.parameters)
    if settings.precision is not None:
        parameters.setdefault("precision", settings.precision)
    detector: Detector = registry.create("detector", request.name, **parameters)
    return detector


def plan_benchmark(request: BenchmarkRequest, wrong: list[str] | None = None, where: str = "") -> PlannedBenchmark:
    """A benchmark with its sets looked at; what goes wrong in a plugin is kept as its problem.

    Parameters
    ----------
    request : BenchmarkRequest
    wrong : list of str, optional
        Takes what the suite asks for in vain.
    where : str
        Beginning of such a message.
    """
    planned = PlannedBenchmark(request)
    wrong = [] if wrong is None else wrong
    try:
        if request.component is None:
            _look_at_parts(planned, request, wrong)
        else:
            _look_at_benchmark(planned, request.component.create())
        reserved = sorted({ID, TRAIN} & set(planned.ood))
        if reserved or not planned.ood:
            what = f"calls an OOD set {reserved[0]!r}, which is reserved" if reserved else "has no OOD set"
            planned.problem = planned.problem or Problem("failed", f"benchmark {request.name!r} {what}")
    except (ParameterError, UnknownComponentError) as error:
        wrong.append(f"{where}{error}")
        planned.problem = Problem.of(error)
    except (Exception, SystemExit) as error:
        planned.problem = Problem.of(error)
    return planned


def plan_backbone(request: Request, settings: Settings) -> PlannedBackbone:
    """A backbone, not loaded; what goes wrong in a plugin is kept as its problem.

    Raises
    ------
    ParameterError, UnknownComponentError
    """
    try:
        backbone: Backbone = request.create()
        return PlannedBackbone(request, backbone, backbone.key(autocast=settings.autocast))
    except (ParameterError, UnknownComponentError):
        raise
    except (Exception, SystemExit) as error:
        return PlannedBackbone(request, None, "", Problem.of(error))


def tokens(
    plan: Plan, benchmark: PlannedBenchmark, backbone: PlannedBackbone, variants: Iterable[Variant], name: str
) -> dict[str, str]:
    """The token of every column of a set's scores; see :func:`token`."""
    return {
        column: token(plan, benchmark, backbone, variant, name, ood)
        for variant in variants
        for column, ood in variant.names(name, benchmark.ood).items()
    }


def token(
    plan: Plan,
    benchmark: PlannedBenchmark,
    backbone: PlannedBackbone,
    variant: Variant,
    name: str,
    ood: str | None = None,
) -> str:
    """What a kept column of scores must have been made from to be used again: everything that can change a score.

    Parameters
    ----------
    plan, benchmark, backbone, variant
    name : str
        The set that is scored.
    ood : str, optional
        The OOD set that the vocabulary depends on.
    """
    train = benchmark.train if variant.learns(backbone) else None
    return digest(
        {
            "code": [core_digest(), variant.code],
            "backbone": backbone.key,
            "images": [image_policy(plan.settings).digest, plan.settings.on_bad_image],
            "seed": plan.settings.seed,
            "detector": [variant.request.name, variant.distribution, variant.version, variant.parameters],
            "text": _text(benchmark, backbone),
            "vocabulary": None if variant.vocabulary is None else [variant.vocabulary.data(), variant.content],
            "replicate": variant.replicate,
            "vocabulary_of": "" if ood is None else benchmark.find(ood).content,
            "id": benchmark.test.content if benchmark.test else "",
            "train": train.content if train else "",
            "set": benchmark.find(name).content,
        }
    )


def _text(benchmark: PlannedBenchmark, backbone: PlannedBackbone) -> list[Any] | None:
    """The classes of a vision-language model: names, text tower, temperature; None for a classifier."""
    from fiood_core.backbone import VisionLanguageBackbone
    from fiood_core.zero_shot import class_names

    model = backbone.backbone
    if not isinstance(model, VisionLanguageBackbone) or benchmark.test is None or benchmark.test.dataset is None:
        return None
    return [list(class_names(benchmark.test.dataset)), model.text_digest, model.temperature]


# -- parts of resolve ----------------------------------------------------------------------------------------------


def _twice(backbones: Sequence[PlannedBackbone], variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    for what, names in (("backbones", [b.name for b in backbones]), ("detectors", [v.column for v in variants])):
        yield from ((what, name) for name in sorted({n for n in names if names.count(n) > 1}))


def _look_at_benchmark(planned: PlannedBenchmark, benchmark: Benchmark) -> None:
    planned.benchmark = benchmark
    planned.test = _look(ID, "", benchmark.id_test)
    planned.train = None if benchmark.id_train is None else _look(TRAIN, "", benchmark.id_train)
    planned.ood = {name: _look(name, s.group, s.dataset, s.aggregate) for name, s in benchmark.ood.items()}


def _look_at_parts(planned: PlannedBenchmark, request: BenchmarkRequest, wrong: list[str]) -> None:
    """Look at sets that were given one by one; one that cannot be made harms no other."""
    from fiood_core.benchmark import BY_DEFAULT, OODSet, SimpleBenchmark

    def look(name: str, group: str, asked: Request) -> PlannedSet:
        try:
            return _look(name, group, asked.create(), request.aggregate.get(name, ()))
        except (ParameterError, UnknownComponentError) as error:
            wrong.append(f"{name}: {error}")
            return PlannedSet(name, group, None, missing=(str(error),))
        except (Exception, SystemExit) as error:
            return PlannedSet(name, group, None, missing=(Problem.of(error).reason,))

    assert request.test is not None
    planned.test = look(ID, "", request.test)
    planned.train = None if request.train is None else look(TRAIN, "", request.train)
    planned.ood = {name: look(name, group, asked) for name, (group, asked) in request.ood.items()}
    if planned.test.dataset is not None:
        train = None if planned.train is None else planned.train.dataset
        sets = {
            name: OODSet(s.dataset, s.group, request.aggregate.get(name, BY_DEFAULT))
            for name, s in planned.ood.items()
            if s.dataset is not None
        }
        planned.benchmark = SimpleBenchmark(test=planned.test.dataset, train=train, sets=sets)


def _look(name: str, group: str, dataset: Dataset, aggregate: Sequence[str] = ()) -> PlannedSet:
    """A set with its list of pictures, or with everything that it lacks."""
    from fiood_core.benchmark import aggregate_problem

    try:
        missing = tuple(dataset.missing())
        if missing:
            return PlannedSet(name, group, dataset, missing=missing)
        view = dataset.view()
        if not len(view):
            return PlannedSet(name, group, dataset, missing=(f"{_title(dataset)} has no pictures",))
        problem = aggregate_problem(view, aggregate)
        if problem is not None:
            return PlannedSet(name, group, dataset, missing=(f"{_title(dataset)}: {problem}",))
        of_view = view.digest
        content = digest([view.source, of_view, list(dataset.stamps(view.ids))])
        return PlannedSet(name, group, dataset, view, digest=of_view, content=content)
    except (Exception, SystemExit) as error:
        return PlannedSet(name, group, dataset, missing=(Problem.of(error).reason,))


def _title(dataset: Dataset) -> str:
    return getattr(getattr(dataset, "info", None), "title", "") or type(dataset).__name__


def _backbone(request: Request, suite: Suite, wrong: list[str]) -> PlannedBackbone | None:
    try:
        return plan_backbone(request, suite.settings)
    except (ParameterError, UnknownComponentError) as error:
        wrong.append(f"{suite.at(request)}{error}")
        return None


def _variants(request: Request, suite: Suite, wrong: list[str]) -> list[Variant]:
    """A detector with each vocabulary and replicate, if it reads negative labels; alone if it does not."""
    try:
        detector = make_detector(request, suite.settings)
        origin = registry.origin("detector", request.name)
    except (ParameterError, UnknownComponentError) as error:
        wrong.append(f"{suite.at(request)}{error}")
        return []
    except (Exception, SystemExit) as error:
        return [Variant(request, problem=Problem.of(error))]
    alone = Variant(
        request,
        detector=detector,
        distribution=origin.distribution,
        version=origin.version,
        parameters=json.dumps(detector.parameters, sort_keys=True),
        code=source_digest(detector),
    )
    if "negatives" not in detector.needs:
        return [alone]
    if not suite.vocabularies:
        return [replace(alone, problem=Problem("refused", "it scores against negative labels; name a vocabulary"))]
    return [v for vocabulary in suite.vocabularies for v in _with_vocabulary(alone, vocabulary, suite, wrong)]


def _with_vocabulary(alone: Variant, request: Request, suite: Suite, wrong: list[str]) -> list[Variant]:
    """A detector with each replicate of a vocabulary."""
    try:
        vocabulary: Vocabulary = request.create()
        count = int(vocabulary.replicates)
        content = digest([source_digest(vocabulary), vocabulary.content])
        made = replace(alone, vocabulary=request, content=content, of_ood=vocabulary.needs_ood)
    except (ParameterError, UnknownComponentError) as error:
        wrong.append(f"{suite.at(request)}{error}")
        return []
    except (Exception, SystemExit) as error:
        return [replace(alone, vocabulary=request, problem=Problem.of(error))]
    return [replace(made, replicate=replicate) for replicate in ([None] if count == 1 else range(count))]


def _misfit(benchmark: PlannedBenchmark, backbone: PlannedBackbone, variant: Variant) -> Problem | None:
    if variant.learns(backbone) and benchmark.benchmark is not None and benchmark.train is None:
        return Problem("refused", f"it learns from training data, and {benchmark.name} has none; give a training set")
    kind = _wrong_kind(backbone, variant)
    if kind is not None:
        return kind
    try:
        _text(benchmark, backbone)
    except (Exception, SystemExit) as error:
        return Problem.of(error)
    return None


def _wrong_kind(backbone: PlannedBackbone, variant: Variant) -> Problem | None:
    """Why a detector can be asked of vision-language models alone, and the backbone is none."""
    from fiood_core.backbone import VisionLanguageBackbone

    if backbone.backbone is None or isinstance(backbone.backbone, VisionLanguageBackbone):
        return None
    if variant.detector is not None and "negatives" in variant.detector.needs:
        return Problem("refused", f"it scores against negative labels, and {backbone.name} embeds no text")
    if any(column.vision_language for column in variant.columns):
        return Problem("refused", f"it needs the patches of a vision-language model, and {backbone.name} is none")
    return None


def _leave_out(plan: Plan) -> None:
    """Take out the variants that only a pattern asked for and that fit no benchmark and backbone."""
    kept = []
    for variant in plan.variants:
        problems = [_misfit(*group, variant) or variant.problem for group in plan.groups]
        refused = [p for p in problems if p is not None and p.status == "refused"]
        if str(variant.request) not in plan.suite.named and len(refused) == len(problems) and refused:
            plan.left_out[variant.column] = refused[0].reason
        else:
            kept.append(variant)
    plan.variants = kept
    for backbone in plan.backbones:
        asked = plan.variants_of(backbone)
        others = [variant for variant in kept if variant not in asked]
        plan.left_out |= {
            f"{v.column} with {backbone.name}": p.reason for v in others if (p := _wrong_kind(backbone, v))
        }
