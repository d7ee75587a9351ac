"""A suite: what a run is asked to do, as YAML or as flags, validated before anything heavy is imported."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from fiood_core import registry
from fiood_core.errors import FioodError, ParameterError, SuiteError, UnknownComponentError
from fiood_core.request import Request, plain

MAX_BYTES = 1 << 20
MAX_NODES = 50_000
"""Size of the largest suite, in bytes of text and in values with aliases expanded."""

EMBEDDED = Path(__file__).parent / "suites"
"""Suites that come with the core; ``digits`` is the default."""

TOP_KEYS = (
    "name",
    "description",
    "benchmark",
    "backbones",
    "detectors",
    "vocabularies",
    "expect_top1",
    "settings",
)
BENCHMARK_KEYS = ("name", "id", "train", "ood")
YAML_TAGS = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map", "time"))
MANY = 10
"""Problems shown of one suite."""


@dataclass(frozen=True)
class Settings:
    """How a run computes; every one has a flag of the same name.

    Attributes
    ----------
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``.
    batch_size, workers : int
        Images of one forward pass; processes that decode.
    autocast : str or None
        ``"float16"`` or ``"bfloat16"``; part of the backbone's key.
    on_bad_image : str
        ``"fail"`` or ``"skip-and-count"``.
    max_pixels : int or None
        Largest picture that is decoded; None leaves the decoder's own limit.
    precision : str or None
        Arithmetic of scores for every detector that does not say its own: ``"float32"`` or ``"float64"``.
    seed : int
        Of the global generators, set anew before each pass.
    executor : str
        Who runs the tasks; ``"local"`` is this process.
    """

    device: str = "auto"
    batch_size: int = 64
    workers: int = 0
    autocast: str | None = None
    on_bad_image: str = "fail"
    max_pixels: int | None = None
    precision: str | None = None
    seed: int = 0
    executor: str = "local"

    def data(self) -> dict[str, Any]:
        """The settings as a mapping."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


CHOICES: Mapping[str, Sequence[Any]] = {
    "autocast": ("float16", "bfloat16"),
    "on_bad_image": ("fail", "skip-and-count"),
    "precision": ("float32", "float64"),
}


@dataclass(frozen=True)
class BenchmarkRequest:
    """A registered benchmark, or one that is given by its sets.

    Attributes
    ----------
    name : str
        What results call it.
    component : Request or None
        The registered benchmark; None where the sets are given.
    test, train : Request or None
        ID test set and ID training set.
    ood : mapping from set name to (group, Request)
    aggregate : mapping from set name to tuple of str
        Which rows a set gives, where the suite says; see :data:`fiood_core.benchmark.AGGREGATES`.
    """

    name: str
    component: Request | None = None
    test: Request | None = None
    train: Request | None = None
    ood: Mapping[str, tuple[str, Request]] = field(default_factory=dict)
    aggregate: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The benchmark as a mapping that a suite or a task can hold."""
        if self.component is not None:
            return self.component.data()
        assert self.test is not None
        data: dict[str, Any] = {"name": self.name, "id": self.test.data()}
        if self.train is not None:
            data["train"] = self.train.data()
        data["ood"] = {name: {"group": group, "dataset": request.data()} for name, (group, request) in self.ood.items()}
        for name, kinds in self.aggregate.items():
            data["ood"][name]["aggregate"] = list(kinds)
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> BenchmarkRequest:
        """The benchmark that :meth:`data` was taken from."""
        if "id" not in data:
            component = Request.from_data("benchmark", data)
            return cls(str(component), component)
        train = data.get("train")
        return cls(
            data["name"],
            None,
            Request.from_data("dataset", data["id"]),
            None if train is None else Request.from_data("dataset", train),
            {name: (s["group"], Request.from_data("dataset", s["dataset"])) for name, s in data["ood"].items()},
            {name: tuple(s["aggregate"]) for name, s in data["ood"].items() if "aggregate" in s},
        )


@dataclass(frozen=True)
class Suite:
    """What a run is asked to do; patterns are expanded.

    Attributes
    ----------
    name, description : str
    benchmarks : tuple of BenchmarkRequest
    backbones, detectors, vocabularies : tuple of Request
    named : frozenset of str
        Detectors that were asked for by name, not by a pattern: these are refused aloud where they do not fit.
    expect_top1 : mapping from backbone to fraction
        What the accuracy gate holds a backbone to, in place of its card; key ``"*"`` means all.
    settings : Settings
    lines : mapping from str(request) to line number
        Where the suite asks for it, for messages.
    source : str
        File that it was read from.
    unknown : mapping from kind to tuple of str
        Names that nothing is registered under, each with its line and near ones; those components are left out.  A
        dataset counts as a part of its benchmark.
    """

    name: str
    benchmarks: tuple[BenchmarkRequest, ...]
    backbones: tuple[Request, ...]
    detectors: tuple[Request, ...]
    vocabularies: tuple[Request, ...] = ()
    description: str = ""
    named: frozenset[str] = frozenset()
    expect_top1: Mapping[str, float] = field(default_factory=dict)
    settings: Settings = Settings()
    lines: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    unknown: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def at(self, request: Request | str) -> str:
        """``"file:line: "`` of a component, as the beginning of a message; empty where flags asked for it."""
        line = self.lines.get(str(request))
        return f"{self.source}:{line}: " if line and self.source else ""

    def text(self) -> str:
        """The resolved suite as YAML that gives the same run."""
        data: dict[str, Any] = {"name": self.name}
        if self.description:
            data["description"] = self.description
        data["benchmark"] = [b.data() for b in self.benchmarks]
        for key in ("backbones", "detectors", "vocabularies"):
            if getattr(self, key):
                data[key] = [request.data() for request in getattr(self, key)]
        if self.expect_top1:
            data["expect_top1"] = dict(self.expect_top1)
        data["settings"] = self.settings.data()
        text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
        return text


def embedded(name: str) -> Path | None:
    """The file of a suite that comes with the core."""
    path = EMBEDDED / f"{name}.yaml"
    return path if re.fullmatch(r"[\w.-]+", name) and path.is_file() else None


def load(name: str | Path) -> Suite:
    """The suite in a file, or an embedded one by its name.

    Raises
    ------
    SuiteError
        It cannot be read, or says something that is no suite; every problem with its line number.
    """
    path = Path(name)
    if not path.is_file():
        own = embedded(str(name))
        if own is None:
            have = ", ".join(sorted(p.stem for p in EMBEDDED.glob("*.yaml")))
            raise SuiteError(f"there is no suite file {str(name)!r}, and the embedded suites are {have}")
        path = own
    if path.stat().st_size > MAX_BYTES:
        raise SuiteError(f"{path} is larger than {MAX_BYTES} bytes; that is no suite")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SuiteError(f"{path} is not UTF-8 text: {error}") from error
    return read(text, source=str(path), base=path.parent)


def read(text: str, *, source: str = "suite", base: Path | None = None) -> Suite:
    """The suite in a text; relative paths are taken from ``base``.

    Raises
    ------
    SuiteError
        Every problem, one a line, each with its line number.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise SuiteError(f"{source}{line}: not valid YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise SuiteError(f"{source}: nested too deeply to be a suite") from error
    reader = _Reader(source, base)
    suite = reader.suite(root)
    if reader.problems:
        shown = [f"{source}:{line}: {message}" for line, message in sorted(reader.problems, key=itemgetter(0))]
        more = [f"… and {len(shown) - MANY} more"] if len(shown) > MANY else []
        raise SuiteError("\n".join(shown[:MANY] + more))
    assert suite is not None
    return suite


def expand(kind: str, requests: Sequence[Request]) -> tuple[list[Request], list[Request]]:
    """Specs with ``all`` and globs replaced by the registered names that fit, and those that were named outright.

    Raises
    ------
    SuiteError
        A pattern fits nothing, or has parameters.
    """
    wide: list[Request] = []
    named: list[Request] = []
    for request in requests:
        fitting = [request]
        if is_pattern(request):
            fitting = [Request(kind, name) for name in _fitting(kind, request)]
        else:
            named.append(request)
        wide += [each for each in fitting if each not in wide]
    return wide, named


def _fitting(kind: str, pattern: Request) -> list[str]:
    if pattern.parameters:
        raise SuiteError(f"pattern {pattern.name!r} takes no parameters; name the {kind} that should have them")
    found = [name for name in registry.names(kind) if pattern.name == "all" or fnmatchcase(name, pattern.name)]
    if not found:
        have = ", ".join(registry.names(kind)) or "none"
        raise SuiteError(f"no {kind} fits {pattern.name!r}; registered are {have}")
    return found


def is_pattern(request: Request) -> bool:
    """Whether a request is ``all`` or a glob over registered names."""
    return request.registered and (request.name == "all" or any(char in request.name for char in "*?["))


def with_settings(suite: Suite, **changes: Any) -> Suite:
    """The suite with some settings replaced; those that are None stay."""
    return replace(suite, settings=replace(suite.settings, **{k: v for k, v in changes.items() if v is not None}))


def anchored(request: Request, base: Path | None) -> Request:
    """The request with a relative file, or a dataset's relative place, taken from ``base`` and made absolute."""
    name, parameters = request.name, dict(request.parameters)
    base = base or Path.cwd()
    if name.startswith(("./", "../")):
        location, colon, attribute = name.partition(":")
        name = f"{(base / location).resolve()}{colon}{attribute}"
    if request.kind == "dataset":
        for key in ("path", "root", "labels", "lists", "ood_list", "ambiguous_list"):
            if isinstance(parameters.get(key), str):
                place = Path(parameters[key]).expanduser()
                parameters[key] = str(place if place.is_absolute() else (base / place).resolve())
    return Request(request.kind, name, parameters)


class _Reader:
    """Walks the nodes of a YAML text, collecting every problem with its line."""

    def __init__(self, source: str, base: Path | None) -> None:
        self.source = source
        self.base = base
        self.problems: list[tuple[int, str]] = []
        self.unknown: dict[str, tuple[str, ...]] = {}
        self.lines: dict[str, int] = {}
        self._nodes = 0

    def suite(self, root: yaml.Node | None) -> Suite | None:
        """The suite of a document; None, with problems noted, where there is none."""
        if root is None or not isinstance(root, yaml.MappingNode):
            self.note(root, f"a suite is a mapping with the keys {', '.join(TOP_KEYS)}")
            return None
        if not self.bounded(root):
            return None
        top = self.mapping(root, TOP_KEYS)
        for key in ("name", "benchmark", "backbones", "detectors"):
            if key not in top:
                self.note(root, f"the key {key!r} is missing")
        name = self.text(top.get("name"), "name") or "suite"
        if not re.fullmatch(r"[\w][\w .+-]*", name):
            self.note(top.get("name"), f"name {name!r} must be made of letters, digits, dot, dash and space")
        detectors, named = self.requests("detector", top.get("detectors"))
        return Suite(
            name=name,
            description=self.text(top.get("description"), "description") or "",
            benchmarks=self.benchmarks(top.get("benchmark"), name),
            backbones=tuple(self.requests("backbone", top.get("backbones"))[0]),
            detectors=tuple(detectors),
            named=frozenset(map(str, named)),
            vocabularies=tuple(self.requests("vocabulary", top.get("vocabularies"))[0]),
            expect_top1=self.expected(top.get("expect_top1")),
            settings=self.settings(top.get("settings")),
            lines=self.lines,
            source=self.source,
            unknown=self.unknown,
        )

    # -- parts of a suite --------------------------------------------------------------------------------------

    def benchmarks(self, node: yaml.Node | None, suite: str) -> tuple[BenchmarkRequest, ...]:
        """One benchmark or a list of them."""
        if node is None:
            return ()
        found: list[BenchmarkRequest] = []
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(item, yaml.MappingNode) and _has_sets(item):
                inline = self.inline(item, suite)
                found.extend([inline] if inline else [])
                continue
            expanded, _ = self.requests("benchmark", item)
            found.extend(BenchmarkRequest(str(request), request) for request in expanded)
        names = [benchmark.name for benchmark in found]
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.note(node, f"two benchmarks are called {name!r}; give one another name")
        return tuple(found)

    def inline(self, node: yaml.MappingNode, suite: str) -> BenchmarkRequest | None:
        """A benchmark given by its sets."""
        parts = self.mapping(node, BENCHMARK_KEYS)
        if "id" not in parts:
            self.note(node, "a benchmark has the 'name' of a registered one, or its sets: 'id', 'ood', maybe 'train'")
            return None
        test = self.one("dataset", parts["id"])
        train = self.one("dataset", parts["train"]) if "train" in parts else None
        ood: dict[str, tuple[str, Request]] = {}
        aggregate: dict[str, tuple[str, ...]] = {}
        sets = parts.get("ood")
        if not isinstance(sets, yaml.MappingNode):
            self.note(sets or node, "'ood' is a mapping from set name to dataset: ood: {noise: noise}")
            return None
        for name, value in self.mapping(sets, None).items():
            group, dataset, kinds = self.grouped(value)
            if dataset is not None:
                ood[name] = (group, dataset)
            if kinds:
                aggregate[name] = kinds
        if not sets.value:
            self.note(sets, "'ood' names no set")
        if test is None:
            return None  # its problem is noted
        return BenchmarkRequest(self.text(parts.get("name"), "name") or suite, None, test, train, ood, aggregate)

    def grouped(self, node: yaml.Node) -> tuple[str, Request | None, tuple[str, ...]]:
        """An OOD set: a dataset, or ``{group: near, dataset: …, aggregate: [pooled, class-mean]}``."""
        if isinstance(node, yaml.MappingNode) and any(key.value == "dataset" for key, _ in node.value):
            parts = self.mapping(node, ("group", "dataset", "aggregate"))
            group = self.text(parts.get("group"), "group") or "ood"
            return group, self.one("dataset", parts["dataset"]), self.aggregate(parts.get("aggregate"))
        return "ood", self.one("dataset", node), ()

    def aggregate(self, node: yaml.Node | None) -> tuple[str, ...]:
        """Which rows a set gives; nothing where that is not said."""
        from fiood_core.benchmark import AGGREGATES

        if node is None:
            return ()
        value = self.value(node)
        kinds = value if isinstance(value, list) else [value]
        if not kinds or any(kind not in AGGREGATES for kind in kinds):
            self.note(node, f"aggregate names some of {', '.join(AGGREGATES)}; got {value!r}")
            return ()
        return tuple(dict.fromkeys(kinds))

    def expected(self, node: yaml.Node | None) -> dict[str, float]:
        """``expect_top1``: one fraction, or one for each backbone."""
        if node is None:
            return {}
        if isinstance(node, yaml.MappingNode):
            return {name: self.fraction(value, name) for name, value in self.mapping(node, None).items()}
        return {"*": self.fraction(node, "expect_top1")}

    def fraction(self, node: yaml.Node, what: str) -> float:
        """A number between 0 and 1."""
        value = self.value(node)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            self.note(node, f"{what} must be a fraction between 0 and 1, got {value!r}")
            return 0.0
        return float(value)

    def settings(self, node: yaml.Node | None) -> Settings:
        """The settings, type by type."""
        if node is None:
            return Settings()
        if not isinstance(node, yaml.MappingNode):
            self.note(node, "'settings' is a mapping")
            return Settings()
        values: dict[str, Any] = {}
        for key, item in self.mapping(node, [f.name for f in fields(Settings)]).items():
            value = self.value(item)
            problem = setting_problem(key, value)
            if problem:
                self.note(item, problem)
            else:
                values[key] = value
        return Settings(**values)

    def requests(self, kind: str, node: yaml.Node | None) -> tuple[list[Request], list[Request]]:
        """Components of a kind, patterns expanded, and those that were named outright."""
        if node is None:
            return [], []
        found: list[Request] = []
        named: list[Request] = []
        for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            request = self.one(kind, item)
            if request is None:
                continue
            try:
                expanded, outright = expand(kind, [request])
            except SuiteError as error:
                self.note(item, str(error))
                continue
            for each in expanded:
                self.lines.setdefault(str(each), item.start_mark.line + 1)
            found.extend(each for each in expanded if each not in found)
            named.extend(outright)
        if isinstance(node, yaml.SequenceNode) and not node.value:
            self.note(node, f"no {kind} is named")
        return found, named

    def one(self, kind: str, node: yaml.Node) -> Request | None:
        """One component: a string, or a mapping with its name and parameters."""
        try:
            request = Request.parse(kind, self.value(node))
        except (ParameterError, SuiteError) as error:
            self.note(node, str(error))
            return None
        problem = name_problem(request)
        if problem:
            part = "benchmark" if kind == "dataset" else kind
            line = f"{self.source}:{node.start_mark.line + 1}: {problem}"
            self.unknown[part] = (*self.unknown.get(part, ()), line)
            return None
        return anchored(request, self.base)

    # -- nodes -------------------------------------------------------------------------------------------------

    def note(self, node: yaml.Node | None, message: str) -> None:
        """Remember a problem at a node's line."""
        self.problems.append((1 if node is None else node.start_mark.line + 1, message))

    def bounded(self, root: yaml.Node) -> bool:
        """Whether the document, with its aliases expanded, is of a size that a suite can have."""
        for count, _ in enumerate(_walk(root)):
            if count > MAX_NODES:
                self.note(root, f"the suite has more than {MAX_NODES} values once its aliases are expanded")
                return False
        return True

    def mapping(self, node: yaml.MappingNode, known: Sequence[str] | None) -> dict[str, yaml.Node]:
        """Value nodes by key; keys that are repeated, or not among the known ones, are noted with a near one."""
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.note(key_node, "keys must be plain text")
                continue
            if key in found:
                self.note(key_node, f"the key {key!r} is given twice")
            if known is not None and key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
                self.note(key_node, f"unknown key {key!r}; {hint}")
                continue
            found[key] = value
        return found

    def text(self, node: yaml.Node | None, what: str) -> str | None:
        """A string; a number is taken as written."""
        if node is None:
            return None
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self.note(node, f"{what} must be text")
            return None
        return str(node.value)

    def value(self, node: yaml.Node) -> Any:
        """Plain data below a node."""
        if not node.tag.startswith(YAML_TAGS):
            self.note(
                node, f"the tag {node.tag.removeprefix('tag:yaml.org,2002:')!r} is not allowed; write plain values"
            )
            return None
        if isinstance(node, yaml.MappingNode):
            return {key: self.value(item) for key, item in self.mapping(node, None).items()}
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        try:
            return plain(yaml.SafeLoader("").construct_object(node))
        except (yaml.YAMLError, ValueError) as error:
            self.note(node, f"{getattr(error, 'problem', None) or error}")
            return None


def _has_sets(node: yaml.MappingNode) -> bool:
    """Whether a benchmark is given by its sets, and not by its name."""
    keys = {key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)}
    return "id" in keys or "name" not in keys


def _walk(node: yaml.Node) -> Iterator[yaml.Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, yaml.MappingNode):
            stack.extend(part for pair in node.value for part in pair)
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(node.value)


def name_problem(request: Request) -> str | None:
    """What is wrong with a component's name, without importing it; None if nothing is."""
    if is_pattern(request) or not request.registered:
        return None
    try:
        registry.find(request.kind, request.name)
    except UnknownComponentError as error:
        return str(error)
    except FioodError:
        return None  # a clash fails its cells, not the suite
    return None


def setting_problem(key: str, value: Any) -> str | None:
    """What is wrong with the value of a setting; None if nothing is."""
    whole: Mapping[str, int] = {"batch_size": 1, "workers": 0, "max_pixels": 1, "seed": 0}
    check: Callable[[Any], bool]
    if key in CHOICES:
        options = CHOICES[key]
        nullable = key != "on_bad_image"
        if value in options or (nullable and value is None):
            return None
        return f"{key} must be one of {', '.join(options)}, got {value!r}"
    if key in whole:
        low = whole[key]
        check = lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low  # noqa: E731
        if check(value) or (key == "max_pixels" and value is None):
            return None
        return f"{key} must be a whole number from {low}, got {value!r}"
    return None if isinstance(value, str) and value else f"{key} must be text, got {value!r}"
