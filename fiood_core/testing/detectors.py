"""Does a detector behave?  Checked on small separable problems, see :mod:`fiood_core.testing.toy`."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
import safetensors.torch
import torch

from fiood_core.backbone import state_digest
from fiood_core.detector import Detector, Paper
from fiood_core.errors import ConformanceError, FioodError, InputError, StatisticError
from fiood_core.features import FeatureSet
from fiood_core.metrics import evaluate
from fiood_core.registry import API_WINDOW
from fiood_core.testing import networks, toy
from fiood_core.testing.outcome import ConformanceReport, Skipped, require, resolve, run_checks
from fiood_core.testing.toy import Toy

EXACT, CLOSE = 1e-9, 1e-3
"""Allowed difference over the spread of the scores: of float64 with itself, and of float32 with float64."""

NEEDS = {"features", "logits", "head", "negatives"}


def check_detector(target: Any, parameters: Mapping[str, Any] | None = None) -> ConformanceReport:
    """Run every conformance check on a detector.

    Parameters
    ----------
    target : str, class, factory or instance
        A registered name, a :class:`~fiood_core.Detector` subclass, a function that makes one, or an instance.
    parameters : mapping, optional
        Parameters for small data (1200 training rows, D = 32, C = 8); they go before the class's own ``toy`` ones.

    Returns
    -------
    ConformanceReport
        The outcome of each check.

    Raises
    ------
    ConformanceFailure
        One or more checks failed; the message has a line for each.
    """
    name, make = resolve("detector", target)
    instance = make(**(parameters or {}))
    if not isinstance(target, Detector):
        given = {**type(instance).toy, **(parameters or {})}
        instance = type(instance)(**{**instance.parameters, **given})
    return run_checks(name, DetectorSubject(instance), CHECKS)


class DetectorSubject:
    """A detector class with parameters that suit small data, and the problems it is tried on."""

    def __init__(self, instance: Detector) -> None:
        self.instance = instance
        self.cls = type(instance)

    def make(self, **changed: Any) -> Detector:
        """A fresh, unfitted instance."""
        return self.cls(**{**self.instance.parameters, "precision": "float64", **changed})

    def problems(self, seed: int = 0, detector: Detector | None = None) -> list[Toy]:
        """The problems that suit what a detector reads; the first is the one that its sign is judged on."""
        columns = tuple((detector or self.instance).columns)
        if columns:
            return [toy.pictures_toy(columns, seed)]
        if "negatives" in self.cls.needs:
            return [toy.text_toy(seed)]
        return [toy.features_toy(signed=False, seed=seed), toy.features_toy(signed=True, seed=seed)]

    @cached_property
    def fitted(self) -> list[tuple[Toy, Detector]]:
        """Each problem with a detector fitted to it, in float64."""
        return [(problem, self.make().fit(problem.train)) for problem in self.problems()]


def scores_alike(subject: DetectorSubject) -> None:
    """Fit and score every problem."""
    for problem, detector in subject.fitted:
        detector.score(problem.inside)
        detector.score(problem.far)


def shape_and_dtype(subject: DetectorSubject) -> None:
    """Scores are a float64 vector with one entry a row."""
    for problem, detector in subject.fitted:
        scores = detector.score(problem.inside)
        found = f"{type(scores).__name__} of shape {np.shape(scores)} and dtype {getattr(scores, 'dtype', None)}"
        good = isinstance(scores, np.ndarray) and scores.shape == (problem.inside.n,) and scores.dtype == np.float64
        require(
            good,
            f"score gave a {found} for {problem.inside.n} rows; it must be a float64 array (n,). "
            "Write score_block and leave score to the base class",
        )


def sign(subject: DetectorSubject) -> None:
    """In-distribution pictures score larger than far ones."""
    problem, detector = subject.fitted[0]
    auroc = evaluate(detector.score(problem.inside), detector.score(problem.far)).auroc
    require(
        auroc > 0.5,
        f"AUROC {auroc:.3f} on well separated {problem.name}: far pictures score as large as in-distribution ones or "
        "larger. A larger score must mean more in-distribution; negate the score",
    )


def finite(subject: DetectorSubject) -> None:
    """Zero rows, huge logits and rows of the training set have finite scores, and equal rows equal ones."""
    for problem, detector in subject.fitted:
        scores = {}
        for what, rows in _odd_rows(problem).items():
            try:
                scores[what] = detector.score(rows)
            except FioodError as error:
                raise ConformanceError(
                    f"{what} ({problem.name}): {error}. Guard the division or the logarithm"
                ) from error
            require(bool(np.isfinite(scores[what]).all()), f"{what} ({problem.name}) score NaN or infinite")


def _odd_rows(problem: Toy) -> dict[str, FeatureSet]:
    few = toy.copied(toy.taken(problem.inside, np.arange(8)))
    zero, huge = toy.copied(few), toy.copied(few)
    for data, factor in ((zero, 0), (huge, 1000)):
        for rows in (data.features, data.logits, *data.columns.values()):
            rows *= factor
    if problem.inside.head is not None and zero.features is not None:
        zero.logits = problem.inside.head(torch.from_numpy(zero.features)).numpy()
        huge.logits = problem.inside.head(torch.from_numpy(huge.features)).numpy()
    if problem.inside.negatives is not None:
        huge.features = few.features  # unit vectors by definition
    return {
        "zero rows": zero,
        "huge rows": huge,
        "rows of the training set": toy.taken(problem.train, np.arange(8)),
        "equal rows": toy.taken(problem.inside, np.zeros(8, dtype=int)),
    }


def one_row(subject: DetectorSubject) -> None:
    """A batch of one has a score, the one that the row has in company."""
    for problem, detector in subject.fitted:
        pair = detector.score(toy.taken(problem.inside, np.array([0, 1])))
        try:
            alone = detector.score(toy.taken(problem.inside, np.array([0])))
        except Exception as error:
            raise ConformanceError(
                f"a batch of one raised {type(error).__name__}: {error}. Name the axis: squeeze() drops it too"
            ) from error
        require(
            _difference(alone, pair[:1], detector.score(problem.inside)) <= EXACT,
            f"a row scores {alone[0]:.6g} alone and {pair[0]:.6g} beside another; use nothing taken over the batch",
        )


def batch_size(subject: DetectorSubject) -> None:
    """Scores do not depend on the blocks in which rows arrive."""
    for problem, detector in subject.fitted:
        both = _joined(problem)
        whole = detector.score(both)
        for size in (2, 7, 64):
            starts = range(0, both.n - 1, size)
            parts = [np.arange(i, min(i + size, both.n)) for i in starts]
            blocks = np.concatenate([detector.score(toy.taken(both, rows)) for rows in parts])
            worst = _difference(blocks, whole[: len(blocks)], whole)
            require(
                worst <= EXACT,
                f"scores in blocks of {size} differ from scores of all rows at once by {worst:.2g} of their spread "
                f"({problem.name}); a score may depend on its own row and on what was learned, not on the batch",
            )


def nothing_left_behind(subject: DetectorSubject) -> None:
    """Scoring leaves nothing of a block on the detector; caches of what was learned may stay."""
    for problem, detector in subject.fitted:
        detector.score(problem.inside)
        before = dict(vars(detector))
        detector.score(problem.far)
        changed = sorted(name for name, value in vars(detector).items() if before.get(name, vars) is not value)
        require(
            not changed,
            f"scoring set {', '.join(changed)} on the detector; blocks are scored side by side and would get one "
            "another's, so use local variables in score_block",
        )


def inputs_unchanged(subject: DetectorSubject) -> None:
    """Fitting and scoring write to none of the arrays that they are given."""
    for precision, dtype in (("float64", np.float64), ("float32", np.float32)):
        for problem in subject.problems():
            train, inside = toy.copied(problem.train, dtype), toy.copied(problem.inside, dtype)
            before = [_arrays(train), _arrays(inside)]
            detector = subject.make(precision=precision).fit(train)
            detector.score(inside)
            for when, data, kept in (("fit", train, before[0]), ("score", inside, before[1])):
                changed = [what for what, values in _arrays(data).items() if not np.array_equal(values, kept[what])]
                require(
                    not changed,
                    f"{when} changed the {', '.join(changed)} it was given; tensors share memory with the caller's "
                    "arrays, so use x = x * 2, not x *= 2 or x.mul_(2)",
                )


def _arrays(data: FeatureSet) -> dict[str, np.ndarray]:
    arrays = {"features": data.features, "labels": data.labels, "logits": data.logits, **data.columns}
    if data.head is not None:
        arrays.update({"head weight": data.head.weight, "head bias": data.head.bias})
    if data.negatives is not None:
        arrays["negatives"] = data.negatives.weight
    return {what: torch.as_tensor(values).numpy().copy() for what, values in arrays.items() if values is not None}


def refit(subject: DetectorSubject) -> None:
    """A second fit forgets the first, and equal fits are equal."""
    for first, second in zip(subject.problems(0), subject.problems(1), strict=True):
        fresh = subject.make().fit(second.train).score(second.inside)
        again = subject.make().fit(second.train).score(second.inside)
        used = subject.make().fit(first.train)
        used.score(first.inside)
        refitted = used.fit(second.train).score(second.inside)
        require(
            _difference(again, fresh, fresh) <= EXACT,
            f"two fits to the same {second.name} score differently; draw random numbers from a seeded generator of "
            "your own, made anew in every fit",
        )
        require(
            _difference(refitted, fresh, fresh) <= EXACT,
            f"a detector fitted to one set and then to another scores unlike one fitted to the second alone "
            f"({second.name}); keep what is learned in attributes that learn sets anew, not on the class or in globals",
        )


def parameters_take_effect(subject: DetectorSubject) -> None:
    """Every parameter changes a score, or is declared inert."""
    base = [np.concatenate([d.score(p.inside), d.score(p.far)]) for p, d in subject.fitted]
    hints = typing.get_type_hints(subject.cls)
    silent = []
    for name, value in subject.instance.parameters.items():
        if name == "precision" or name in subject.cls.inert:
            continue
        published = [preset[name] for preset in subject.cls.presets.values() if name in preset]
        tried = []
        for other in _other_values(hints[name], value, published):
            changes = _changes_a_score(subject, name, other, base)
            if changes:
                break
            tried += [] if changes is None else [other]
        else:
            silent += [f"{name!r} (tried {', '.join(map(repr, tried))})"] if tried else []
    require(
        not silent,
        f"no score changes with {' or '.join(silent)}; use the parameter, remove it, or say in the class attribute "
        "inert why it changes none",
    )


def _changes_a_score(subject: DetectorSubject, name: str, value: Any, base: list[np.ndarray]) -> bool | None:
    """Whether another value changes a score on some problem; None where it is refused on all of them."""
    try:
        changed = subject.make(**{name: value})
        problems = subject.problems(detector=changed)
    except FioodError:
        return None
    found = [_scores_differ(changed, p, before) for p, before in zip(problems, base, strict=True)]
    return None if all(f is None for f in found) else any(found)


def _scores_differ(detector: Detector, problem: Toy, before: np.ndarray) -> bool | None:
    try:
        detector.fit(problem.train)
        after = np.concatenate([detector.score(problem.inside), detector.score(problem.far)])
    except FioodError:  # a value that small data cannot support shows nothing
        return None
    return _difference(after, before, before) > EXACT


def _other_values(hint: Any, value: Any, published: list[Any]) -> list[Any]:
    """Values of the same type that may give other scores; none where the type does not tell what is sensible."""
    options = typing.get_args(hint) or (hint,)
    candidates: list[Any] = list(published)
    if typing.get_origin(hint) is Literal:
        candidates += options
    elif isinstance(value, bool):
        candidates += [not value]
    elif isinstance(value, int) or (value is None and int in options):
        candidates += [] if value is None else [value + 1, value - 1, value // 2, value * 2]
        candidates += [1, 2, 3, 5, 10]
    elif isinstance(value, float) or (value is None and float in options):
        candidates += [] if value is None else [value / 2, value * 2, (1 + value) / 2, value + 0.1, value - 0.1]
        candidates += [0.1, 0.5, 0.9, 2.0, 10.0]
    return [v for v in dict.fromkeys(candidates) if v != value]


def state_round_trip(subject: DetectorSubject) -> None:
    """A detector made of a saved state scores what the saved one scored."""
    for problem, detector in subject.fitted:
        try:
            data = safetensors.torch.save(detector.state())
        except (ValueError, RuntimeError) as error:
            raise ConformanceError(
                f"state() cannot be saved: {error}. Let learn set plain dense tensors that share no memory"
            ) from error
        restored = subject.cls.from_state(safetensors.torch.load(data))
        before = detector.score(problem.far)
        try:
            after = restored.score(problem.far)
        except Exception as error:
            raise ConformanceError(
                f"a detector made of a saved state raised {type(error).__name__}: {error}. What score_block reads "
                "must be a public tensor attribute that learn sets, or a cache that is rebuilt from those"
            ) from error
        require(
            _difference(after, before, before) <= EXACT,
            f"scores change when the state is saved and loaded ({problem.name}); what score_block reads must be a "
            "parameter or a public tensor attribute that learn sets",
        )


def precisions_agree(subject: DetectorSubject) -> None:
    """float32 scores are float64 scores up to rounding."""
    for problem, detector in subject.fitted:
        both = _joined(problem)
        single = subject.make(precision="float32").fit(problem.train).score(both)
        double = detector.score(both)
        off = float(np.mean(np.abs(single - double) > CLOSE * _spread(double)))
        require(
            off <= 0.02,
            f"{off:.0%} of the float32 scores are further than {CLOSE:g} of the spread from the float64 ones "
            f"({problem.name}); avoid differences of large numbers, and take decompositions in float64",
        )


def needs_are_true(subject: DetectorSubject) -> None:
    """What ``needs`` lists is enough for scoring."""
    for problem, detector in subject.fitted:
        needs, whole = set(subject.cls.needs), problem.inside
        declared = FeatureSet(
            features=whole.features if "features" in needs else None,
            logits=whole.logits if "logits" in needs else None,
            head=whole.head if "head" in needs else None,
            columns={c.key: whole.columns[c.key] for c in detector.columns},
            negatives=whole.negatives if "negatives" in needs else None,
        )
        try:
            scores = detector.score(declared)
        except InputError as error:
            raise ConformanceError(
                f"needs = {subject.cls.needs} is not enough to score: {error}. List what score_block reads"
            ) from error
        expected = detector.score(whole)
        require(
            _difference(scores, expected, expected) <= EXACT,
            f"scores differ when only what needs = {subject.cls.needs} lists is given; list what score_block reads",
        )


def empty_class(subject: DetectorSubject) -> None:
    """A class without training rows spoils nothing."""
    for problem in subject.problems():
        if problem.train.labels is None:
            raise Skipped("the training set has no labels")
        rest = toy.taken(problem.train, np.flatnonzero(problem.train.labels.numpy() != 2))
        try:
            subject.make().fit(rest).score(problem.inside)
        except StatisticError:
            continue
        except FioodError as error:
            raise ConformanceError(
                f"with no training row of class 2: {error}. Leave an empty class out, or refuse with a StatisticError"
            ) from error


def eval_mode(subject: DetectorSubject) -> None:
    """Columns leave the model as they found it."""
    columns = tuple(subject.instance.columns)
    if not columns:
        raise Skipped("the detector computes nothing from pictures")
    backbone, batch = networks.backbone_for(columns), networks.images(8)
    weights, pictures = state_digest(backbone.module), batch.clone()
    first = networks.compute_columns(backbone, batch, columns)
    modules = dict(backbone.module.named_modules())
    require(
        not any(m.training for m in modules.values()),
        "a column left the model in training mode; set it back in a finally clause",
    )
    require(
        not any(m._forward_hooks or m._forward_pre_hooks for m in modules.values()),
        "a column left a hook on the model; remove it when the context of watch ends",
    )
    require(state_digest(backbone.module) == weights, "a column changed the model's weights or buffers")
    require(torch.equal(batch, pictures), "a column wrote to the images it was given; work on a copy")
    require(
        all(p.grad is None for p in backbone.module.parameters()),
        "a column left gradients on the model's weights; use torch.autograd.grad for the tensors you want",
    )
    again = networks.compute_columns(backbone, batch, columns)
    for key, values in first.items():
        require(
            len(values) == len(batch) and bool(torch.isfinite(values).all()),
            f"column {key!r} gave shape {tuple(values.shape)} or values that are not finite for {len(batch)} images",
        )
        require(
            torch.equal(values, again[key]),
            f"column {key!r} differs when computed again; draw random numbers from torch, whose generator is seeded "
            "for each batch",
        )


def metadata(subject: DetectorSubject) -> None:
    """The class says what it is: paper, formula, needs, parameters, API version."""
    cls, name = subject.cls, subject.cls.__name__
    paper = getattr(cls, "reference", None)
    require(isinstance(paper, Paper), f"{name}.reference must be a fiood_core.Paper(title, year, ...)")
    assert isinstance(paper, Paper)
    require(
        bool(paper.title) and 1900 <= paper.year <= 2100 and paper.link is not None,
        f"{name}.reference must have a title, a year and an arXiv number or url, got {paper}",
    )
    require(bool(cls.formula.strip()), f"{name}.formula is empty; give the score in a line")
    unknown = set(cls.needs) - NEEDS
    require(
        not unknown and (bool(cls.needs) or bool(subject.instance.columns)),
        f"{name}.needs is {cls.needs}; list which of {sorted(NEEDS)} scoring reads",
    )
    low, high = API_WINDOW
    require(low <= cls.api_version <= high, f"{name}.api_version {cls.api_version} is outside {low} to {high}")
    require(bool(inspect.getdoc(cls)), f"{name} has no docstring; say in a line what the score is")
    known = {f.name for f in dataclasses.fields(cls)}
    mentioned = {
        "presets": {p for preset in cls.presets.values() for p in preset},
        "alternatives": set(cls.alternatives),
        "toy": set(cls.toy),
        "inert": set(cls.inert),
    }
    for attribute, names in mentioned.items():
        require(names <= known, f"{name}.{attribute} names {sorted(names - known)}, which are no parameters of it")
    for preset in cls.presets:
        cls.configured(preset)
    hidden = [p for p in known - {"precision"} if p not in (inspect.getdoc(cls) or "")]
    require(
        not hidden, f"{name}'s docstring does not say what {', '.join(sorted(hidden))} is; add a Parameters section"
    )


CHECKS = {
    "fits and scores": scores_alike,
    "shape and dtype": shape_and_dtype,
    "sign": sign,
    "finite": finite,
    "batch of one": one_row,
    "batch size": batch_size,
    "side by side": nothing_left_behind,
    "inputs unchanged": inputs_unchanged,
    "refit": refit,
    "parameters take effect": parameters_take_effect,
    "state round trip": state_round_trip,
    "precision": precisions_agree,
    "needs": needs_are_true,
    "empty class": empty_class,
    "eval mode": eval_mode,
    "metadata": metadata,
}
"""Every check of a detector, in order, by the name that reports show."""


def _joined(problem: Toy) -> FeatureSet:
    def join(a: Any, b: Any) -> Any:
        return None if a is None else np.concatenate([np.asarray(a), np.asarray(b)])

    inside, far = problem.inside, problem.far
    return FeatureSet(
        features=join(inside.features, far.features),
        logits=join(inside.logits, far.logits),
        head=inside.head,
        columns={key: join(value, far.columns[key]) for key, value in inside.columns.items()},
        negatives=inside.negatives,
    )


def _spread(scores: np.ndarray) -> float:
    return float(np.std(scores)) or 1.0


def _difference(found: np.ndarray, expected: np.ndarray, scale: np.ndarray) -> float:
    """Largest absolute difference over the spread of ``scale``."""
    return float(np.abs(np.asarray(found) - expected).max()) / _spread(scale)
