"""The conformance kit: what is well made passes, and each fault is caught by the check that is named for it."""

from __future__ import annotations

import os
import re
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import Tensor

from fiood_core import (
    Backbone,
    Block,
    Card,
    Column,
    Concept,
    Dataset,
    Detector,
    Head,
    Info,
    Labels,
    OODSet,
    Paper,
    SimpleBenchmark,
    Statistic,
    View,
    Vocabulary,
    evaluate,
    settings,
)
from fiood_core.backbone import Outputs
from fiood_core.benchmark import Row
from fiood_core.cli.check import command
from fiood_core.errors import ConformanceError, DataError, InputError, ParameterError
from fiood_core.testing import (
    check_backbone,
    check_benchmark,
    check_dataset,
    check_detector,
    check_vocabulary,
    detectors,
    networks,
)
from fiood_core.testing.outcome import ConformanceFailure


def failures(check, target, **options):
    """Check name and message of each failed check."""
    try:
        check(target, **options)
    except ConformanceFailure as failure:
        return {o.check: o.message for o in failure.report.failures}
    return {}


# -- detectors -------------------------------------------------------------------------------------------------------


class ClassMeans(Statistic):
    """Mean feature of each class that has rows."""

    key = "test.class-means"

    def check(self, context):
        if context.labels is None:
            raise InputError("labels are missing")

    def begin(self, context):
        self.sums = torch.zeros(context.num_classes, context.dim, dtype=torch.float64)
        self.counts = torch.zeros(context.num_classes, dtype=torch.float64)

    def update(self, block):
        self.sums.index_add_(0, block.labels, block.features.double())
        self.counts += torch.bincount(block.labels, minlength=len(self.counts))

    def merge(self, other):
        self.sums += other.sums
        self.counts += other.counts

    def result(self):
        seen = self.counts > 0
        return {"means": self.sums[seen] / self.counts[seen, None]}


class Good(Detector):
    """Negative distance to the nearest class mean, to a power.

    Parameters
    ----------
    power : float
    """

    reference = Paper("Nothing in particular", 2024, url="https://example.org")
    formula = "-min_c ‖x - μ_c‖^p"
    needs = ("features",)
    class_means = ClassMeans()

    power: float = 1.0

    def validate(self):
        if not 0 < self.power < 5:
            raise ParameterError(f"power must be in (0, 5), got {self.power}")

    def learn(self, stats, head):
        self.means = stats[self.class_means]["means"]

    def score_block(self, block: Block) -> Tensor:
        distances = (block.features.double()[:, None] - self.means).norm(dim=2)
        return -(distances.amin(dim=1) ** self.power)


class Raises(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        return block.no_such_thing


class Single(Good):
    __doc__ = Good.__doc__

    def score(self, batch):
        return super().score(batch).astype(np.float32)


class Negated(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        return -super().score_block(block)


class DividesByNorm(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        return super().score_block(block) * (block.norms / block.norms)


class Squeezes(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        return super().score_block(block)[:, None].squeeze()


class Centres(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        scores = super().score_block(block)
        return scores - scores.std() if len(scores) > 2 else scores


class Overwrites(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        block.features.clamp_(min=-0.5)
        return super().score_block(block)


class KeepsFirstFit(Good):
    __doc__ = Good.__doc__
    first = WeakKeyDictionary()

    def learn(self, stats, head):
        self.means = self.first.setdefault(self, stats[self.class_means]["means"])


class Unseeded(Good):
    __doc__ = Good.__doc__

    def learn(self, stats, head):
        super().learn(stats, head)
        self.means = self.means + 1e-6 * torch.randn(self.means.shape)


class IgnoresParameter(Good):
    """Has a parameter too many.

    Parameters
    ----------
    power, unused : float
    """

    unused: float = 0.5


class HidesState(Good):
    __doc__ = Good.__doc__

    def learn(self, stats, head):
        self._means = stats[self.class_means]["means"]

    def score_block(self, block):
        return -((block.features.double()[:, None] - self._means).norm(dim=2).amin(dim=1) ** self.power)


class SharesMemory(Good):
    __doc__ = Good.__doc__

    def learn(self, stats, head):
        super().learn(stats, head)
        self.first_mean = self.means[0]


class Cancels(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        distances = ((block.features + 1e5) - 1e5)[:, None].double() - self.means
        return -(distances.norm(dim=2).amin(dim=1) ** self.power)


class UnderstatesNeeds(Good):
    __doc__ = Good.__doc__
    needs = ("logits",)


class SpoiltByEmptyClass(Good):
    __doc__ = Good.__doc__

    class AllMeans(ClassMeans):
        key = "test.all-class-means"

        def result(self):
            return {"means": self.sums / self.counts[:, None]}

    class_means = AllMeans()


class Undocumented(Good):
    """A distance, whose exponent is not described."""


class Remembers(Good):
    __doc__ = Good.__doc__

    def score_block(self, block):
        self.away = torch.cdist(block.features.double(), self.means)
        return -self.away.amin(dim=1).pow(self.power)


class NoFormula(Good):
    __doc__ = Good.__doc__
    formula = ""


class NoLink(Good):
    __doc__ = Good.__doc__
    reference = Paper("Nothing in particular", 2024)


class StalePreset(Good):
    __doc__ = Good.__doc__
    presets = {"old": {"exponent": 2.0}}


BROKEN_DETECTORS = [
    (Raises, "fits and scores", "AttributeError"),
    (Single, "shape and dtype", "float32"),
    (Negated, "sign", "negate the score"),
    (DividesByNorm, "finite", "zero rows"),
    (Squeezes, "batch of one", r"squeeze\(\)"),
    (Centres, "batch size", "not on the batch"),
    (Remembers, "side by side", "scoring set away on the detector"),
    (Overwrites, "inputs unchanged", "score changed the features"),
    (KeepsFirstFit, "refit", "fitted to the second alone"),
    (Unseeded, "refit", "seeded generator"),
    (IgnoresParameter, "parameters take effect", "'unused'"),
    (HidesState, "state round trip", "public tensor attribute"),
    (SharesMemory, "state round trip", "share no memory"),
    (Cancels, "precision", "float32 scores"),
    (UnderstatesNeeds, "needs", "not enough to score"),
    (SpoiltByEmptyClass, "empty class", "class 2"),
    (Undocumented, "metadata", "power"),
    (NoFormula, "metadata", "formula is empty"),
    (NoLink, "metadata", "arXiv number or url"),
    (StalePreset, "metadata", "presets names"),
]


def test_a_good_detector_passes_as_class_instance_and_factory():
    for target in (Good, Good(power=2.0), lambda power=1.0: Good(power=power)):
        report = check_detector(target)
        assert [o.check for o in report.outcomes if o.status == "skipped"] == ["eval mode"]


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN_DETECTORS, ids=lambda v: getattr(v, "__name__", None))
def test_each_fault_of_a_detector_is_caught_by_its_check_alone(broken, check, message):
    found = failures(check_detector, broken)
    assert list(found) == [check], found
    with pytest.raises(ConformanceError, match=message):
        check_detector(broken)


def test_parameters_reach_the_detector():
    with pytest.raises(ParameterError, match="power"):
        check_detector(Good, parameters={"power": 7.0})


def test_toy_parameters_are_used_unless_others_are_given():
    class Picky(Good):
        __doc__ = Good.__doc__
        toy = {"power": 0.5}
        power: float = 4.9

        def learn(self, stats, head):
            assert stats.context.n > 5000 or self.power < 4.9, "the default is for large sets"
            super().learn(stats, head)

    check_detector(Picky)
    assert "fits and scores" in failures(check_detector, Picky, parameters={"power": 4.9})


def test_an_inert_parameter_may_change_nothing():
    class Blocked(IgnoresParameter):
        __doc__ = IgnoresParameter.__doc__
        inert = {"unused": "rows at a time"}

    check_detector(Blocked)


def test_what_is_no_detector_is_refused():
    with pytest.raises(ConformanceError, match="derive its class"):
        check_detector(dict)


class InputGradient(Column):
    """Largest absolute gradient of the top logit; well made."""

    key = "test.input-gradient"

    def compute(self, batch, backbone, head):
        images = batch.images.clone().requires_grad_()
        top = backbone.forward(images).logits.amax(dim=1).sum()
        (gradient,) = torch.autograd.grad(top, images)
        return gradient.flatten(1).abs().amax(dim=1) + batch.logits.amax(dim=1)


def with_column(column_class):
    """A detector class that reads a column."""
    return type(
        f"With{column_class.__name__}",
        (Detector,),
        {
            "__doc__": "The column itself.",
            "reference": Good.reference,
            "formula": "column",
            "needs": (),
            "columns": property(lambda self: (column_class(),)),
            "score_block": lambda self, block: block.column(column_class.key),
        },
    )


class LeavesTraining(InputGradient):
    def compute(self, batch, backbone, head):
        values = super().compute(batch, backbone, head)
        backbone.module[4].train()
        return values


class LeavesHook(InputGradient):
    def compute(self, batch, backbone, head):
        backbone.module[0].register_forward_hook(lambda *_: None)
        return super().compute(batch, backbone, head)


class LeavesGradients(InputGradient):
    def compute(self, batch, backbone, head):
        backbone.forward(batch.images).logits.sum().backward()
        return super().compute(batch, backbone, head)


class WritesImages(InputGradient):
    def compute(self, batch, backbone, head):
        batch.images.clamp_(-1, 1)
        return super().compute(batch, backbone, head)


class WritesWeights(InputGradient):
    def compute(self, batch, backbone, head):
        values = super().compute(batch, backbone, head)
        backbone.module[5].bias.data += 1
        return values


class Masks(Good):
    """A distance; the other form is for pictures that the kit does not have.

    Parameters
    ----------
    power : float
    form : tuple
    """

    form: tuple = ()
    presets = {"large": {"form": ("layer4",)}}

    def learn(self, stats, head):
        if self.form:
            raise InputError("this network has no such layer")
        super().learn(stats, head)


def test_a_parameter_whose_other_values_are_all_refused_is_no_fault():
    check_detector(Masks)


class DrawsUnseeded(InputGradient):
    def compute(self, batch, backbone, head):
        return super().compute(batch, backbone, head) + torch.from_numpy(
            1e-3 * np.random.default_rng().random(len(batch.images))
        )


class Dropout(InputGradient):
    """A column that draws from torch, which the extractor seeds."""

    def compute(self, batch, backbone, head):
        dropped = torch.nn.functional.dropout(batch.features, 0.1)
        return super().compute(batch, backbone, head) + dropped[:, 0]


@pytest.mark.parametrize("column", [InputGradient, Dropout])
def test_a_detector_with_a_good_column_passes(column):
    assert not failures(check_detector, with_column(column))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (LeavesTraining, "training mode"),
        (LeavesHook, "left a hook"),
        (LeavesGradients, "left gradients"),
        (WritesImages, "wrote to the images"),
        (WritesWeights, "changed the model's weights"),
        (DrawsUnseeded, "differs when computed again"),
    ],
)
def test_each_trace_that_a_column_leaves_is_caught(column, message):
    found = failures(check_detector, with_column(column))
    assert list(found) == ["eval mode"]
    assert message in found["eval mode"]


def test_every_detector_check_has_a_broken_detector_here():
    caught = {check for _, check, _ in BROKEN_DETECTORS} | {"eval mode"}
    assert caught == set(detectors.CHECKS)


# -- backbones -------------------------------------------------------------------------------------------------------


class Small(Backbone):
    """The kit's own network as a plugin would write it."""

    card = Card("Small network", expected_top1={"gratings": 0.9})
    num_classes = networks.CLASSES

    def __init__(self):
        self.inner = networks.small_backbone()

    def load(self, device="cpu"):
        self.inner.load(device)

    @property
    def transform(self):
        return self.inner.transform

    def forward(self, images):
        return self.inner.forward(images)

    @property
    def head(self):
        return self.inner.head

    @property
    def module(self):
        return self.inner.module

    @property
    def weights_digest(self):
        return self.inner.weights_digest

    @property
    def transform_digest(self):
        return "0" * 64


class FlippedHead(Small):
    @property
    def head(self):
        inner = super().head
        return Head(-inner.weight, inner.bias)


class RandomTransform(Small):
    @property
    def transform(self):
        return noisy_pixels


def noisy_pixels(picture):
    return networks.picture_to_tensor(picture) + 0.01 * torch.rand(3, 16, 16)


class LocalTransform(Small):
    @property
    def transform(self):
        return lambda picture: networks.picture_to_tensor(picture)


class DoubleTransform(Small):
    @property
    def transform(self):
        return double_pixels

    def forward(self, images):
        return self.inner.forward(images.float())


def double_pixels(picture):
    return networks.picture_to_tensor(picture).double()


class WrongWidth(Small):
    def forward(self, images):
        features, logits = self.inner.forward(images)
        return Outputs(torch.cat([features, features], dim=1), logits)


class InTraining(Small):
    def load(self, device="cpu"):
        super().load(device)
        self.module[1].train()


class Drifts(Small):
    calls = 0

    def forward(self, images):
        features, _ = self.inner.forward(images)
        Drifts.calls += 1
        features = features * (1 + 1e-5 * Drifts.calls)
        return Outputs(features, self.head(features))


class BatchDependent(Small):
    def forward(self, images):
        features, _ = self.inner.forward(images)
        features = features + 0.1 * features.amax()
        return Outputs(features, self.head(features))


class LoadsOnTop(Small):
    def load(self, device="cpu"):
        super().load(device)
        self.module[0].weight.data *= 1.5


class AddressAsDigest(Small):
    @property
    def transform_digest(self):
        return f"{id(self):064x}"


class EmptyCard(Small):
    card = Card("")


class PercentAccuracy(Small):
    card = Card("Small network", expected_top1={"gratings": 90.0})


class FailsToLoad(Small):
    def load(self, device="cpu"):
        raise DataError("no weights here; download them with ...")


class SmallText(networks.SmallVisionLanguage):
    """A vision-language model whose texts may be anything."""

    def encode_text(self, texts):
        return super().encode_text([f"grating {len(text)}" for text in texts])


class LongText(SmallText):
    def encode_text(self, texts):
        return 2 * super().encode_text(texts)


class BatchedText(SmallText):
    def encode_text(self, texts):
        return super().encode_text([texts[0] for _ in texts])


class FeaturesOfClasses(SmallText):
    def forward(self, images):
        features = super().forward(images).features
        features = features if self.head.num_rows > 3 else features.flip(1)
        return Outputs(features, self.head(features))


BROKEN_BACKBONES = [
    (LongText, "text", "unit vectors"),
    (BatchedText, "text", "others in its batch"),
    (FeaturesOfClasses, "text", "change with the classes"),
    (FailsToLoad, "loads and runs", "no weights here"),
    (RandomTransform, "transform", "without random crops"),
    (LocalTransform, "transform", "cannot be pickled"),
    (DoubleTransform, "transform", "float32"),
    (WrongWidth, "shapes", "exactly what enters the head"),
    (FlippedHead, "head gives logits", "differs from the logits"),
    (InTraining, "eval mode", "in training mode"),
    (Drifts, "repeatable", "differ"),
    (BatchDependent, "batch size", "batch statistics"),
    (LoadsOnTop, "load twice", "called again"),
    (AddressAsDigest, "keys", "transform_digest differs"),
    (EmptyCard, "card", "title is empty"),
    (PercentAccuracy, "card", "fractions"),
]


def test_a_good_backbone_passes_as_class_instance_and_factory():
    for target in (Small, Small(), networks.small_backbone, SmallText):
        assert not failures(check_backbone, target)


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN_BACKBONES, ids=lambda v: getattr(v, "__name__", None))
def test_each_fault_of_a_backbone_is_caught_by_its_check(broken, check, message):
    found = failures(check_backbone, broken)
    assert check in found, found
    assert re.search(message, found[check]), found[check]


# -- datasets --------------------------------------------------------------------------------------------------------


class Squares(Dataset):
    """Six plain squares, in memory."""

    info = Info("Plain squares", expected_count=6)

    def view(self):
        ids = [f"{'light' if i % 2 else 'dark'}/{i}.png" for i in range(6)]
        return View("squares", ids, targets=[(i % 2,) for i in range(6)], subsets={"dark": [0, 2, 4]})

    def open(self, image_id):
        return Image.new("RGB", (4, 4), (int(image_id[-5]) * 40,) * 3)

    def stamps(self, ids):
        return ["1"] * len(ids)


class Absolute(Squares):
    def view(self):
        return View("squares", [f"/data/{i}" for i in super().view().ids])


class Reordered(Squares):
    made = 0

    def view(self):
        Reordered.made += 1
        ids = list(super().view().ids)
        return View("squares", ids if Reordered.made % 2 else ids[::-1])


class Miscounted(Squares):
    info = Info("Plain squares", expected_count=7)


class WrongTargets(Squares):
    def view(self):
        ids = super().view().ids
        return View("squares", ids, targets=[(1, 1) for _ in ids])


class WrongSubset(Squares):
    def view(self):
        return View("squares", super().view().ids, subsets={"dark": [0, 6]})


class NamelessConcepts(Squares):
    def view(self):
        ids = super().view().ids
        return View("squares", ids, concepts=[Concept(" ") for _ in ids])


class NoStamps(Squares):
    stamps = Dataset.stamps


class MovingStamps(Squares):
    calls = 0

    def stamps(self, ids):
        MovingStamps.calls += 1
        return [str(MovingStamps.calls)] * len(ids)


class Crashes(Squares):
    def missing(self):
        return [] if os.environ["FIOOD_HOME"] == "here" else sorted(os.listdir(settings.home() / "squares"))


class ViewsNothing(Squares):
    def missing(self):
        return [] if os.environ["FIOOD_HOME"] == "here" else ["the squares are missing; draw them"]


class HoldsLambda(Squares):
    def __init__(self):
        self.draw = lambda: None


class Untitled(Squares):
    info = Info("")


BROKEN_DATASETS = [
    (Untitled, "describes itself", "title is empty"),
    (Crashes, "absence", "must list what is absent"),
    (ViewsNothing, "absence", "must raise a DataError"),
    (Reordered, "view", "another order"),
    (Miscounted, "view", "expected_count is 7"),
    (Absolute, "ids", "absolute path"),
    (WrongTargets, "labels", "name a class twice"),
    (NamelessConcepts, "labels", "Concept with a name"),
    (WrongSubset, "labels", "rows outside"),
    (NoStamps, "stamps", "must give stamps"),
    (MovingStamps, "stamps", "unchanged pictures change"),
    (HoldsLambda, "travels", "cannot be pickled"),
]


def test_a_good_dataset_passes():
    assert not failures(check_dataset, Squares)


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN_DATASETS, ids=lambda v: getattr(v, "__name__", None))
def test_each_fault_of_a_dataset_is_caught_by_its_check(broken, check, message, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", "here")
    found = failures(check_dataset, broken)
    assert check in found, found
    assert re.search(message, found[check]), found[check]


def test_an_unreadable_picture_is_named(tmp_path):
    class OnDisk(Squares):
        def open(self, image_id):
            return tmp_path / "broken.png"

    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert "broken.png" in failures(check_dataset, OnDisk())["decodes"]


def test_an_absent_dataset_is_skipped_not_passed():
    class Absent(Squares):
        def missing(self):
            return ["squares.tar is missing; download it"]

        def view(self):
            raise DataError(self.missing()[0])

    report = check_dataset(Absent)
    skipped = [o for o in report.outcomes if o.status == "skipped"]
    assert [o.check for o in report.outcomes if o.status == "passed"] == ["describes itself", "absence"]
    assert all("squares.tar" in o.message for o in skipped)


# -- vocabularies ----------------------------------------------------------------------------------------------------


class Fruit(Vocabulary):
    """Three names."""

    def labels(self, context):
        return Labels(("apple", "pear", "plum"), {"source": "a list", "overlap": 0})


class Doubled(Fruit):
    def labels(self, context):
        return Labels(("apple", "pear", "apple"), {"overlap": 0})


class Spaced(Fruit):
    def labels(self, context):
        return Labels(("apple ",), {"overlap": 0})


class Unordered(Fruit):
    made = 0

    def labels(self, context):
        Unordered.made += 1
        return Labels(("apple", "pear") if Unordered.made % 2 else ("pear", "apple"), {"overlap": 0})


class Recordless(Fruit):
    def labels(self, context):
        return Labels(("apple",))


class Overlaps(Fruit):
    def labels(self, context):
        return Labels(("apple", "Teapot"), {"source": "a list"})


class WritesEmbeddings(Fruit):
    needs_embeddings = True

    def labels(self, context):
        context.id_embeddings.mul_(2)
        return super().labels(context)


class UsesEmbeddings(Fruit):
    def labels(self, context):
        assert len(context.embed(["apple"])) == 1
        return super().labels(context)


class NoLabels(Fruit):
    def labels(self, context):
        return ["apple"]


BROKEN_VOCABULARIES = [
    (NoLabels, "gives labels", "fiood_core.Labels"),
    (Doubled, "names", "occurs twice"),
    (Spaced, "names", "surrounding"),
    (Unordered, "repeatable", "another order"),
    (Recordless, "record", "record is empty"),
    (Overlaps, "record", "ID names too"),
    (WritesEmbeddings, "context unchanged", "work on a copy"),
    (UsesEmbeddings, "declarations", "needs_embeddings"),
]


def test_a_good_vocabulary_passes():
    assert not failures(check_vocabulary, Fruit)


@pytest.mark.parametrize(
    ("broken", "check", "message"), BROKEN_VOCABULARIES, ids=lambda v: getattr(v, "__name__", None)
)
def test_each_fault_of_a_vocabulary_is_caught_by_its_check(broken, check, message):
    found = failures(check_vocabulary, broken)
    assert check in found, found
    assert re.search(message, found[check]), found[check]


# -- benchmarks ------------------------------------------------------------------------------------------------------


class Other(Squares):
    """Out-of-distribution squares."""

    def view(self):
        ids = [f"{i}.png" for i in range(6)]
        return View("others", ids, concepts=[Concept("square")] * 6, subsets={"some": [1, 2]})


class Plain(SimpleBenchmark):
    """Squares against other squares."""

    def __init__(self):
        super().__init__(test=Squares(), sets={"other": OODSet(Other(), "near")})


class Empty(SimpleBenchmark):
    def __init__(self):
        super().__init__(test=Squares(), sets={})


class Groupless(SimpleBenchmark):
    def __init__(self):
        super().__init__(test=Squares(), sets={"other": OODSet(Other(), "")})


class Contaminated(SimpleBenchmark):
    def __init__(self):
        super().__init__(test=Squares(), sets={"other": OODSet(Squares())})


class Protocolless(Plain):
    protocol = ""


class Swapped(Plain):
    def rows(self, id_scores, pools):
        for name, pool in pools.items():
            yield Row(name, "all", evaluate(pool.scores, id_scores.scores))


class Twice(Plain):
    def rows(self, id_scores, pools):
        yield from super().rows(id_scores, pools)
        yield from super().rows(id_scores, pools)


class Sorts(Plain):
    def rows(self, id_scores, pools):
        id_scores.scores.sort()
        yield from super().rows(id_scores, pools)


BROKEN_BENCHMARKS = [
    (Empty, "sets", "ood is empty"),
    (Groupless, "sets", "no group"),
    (Protocolless, "declarations", "protocol is empty"),
    (Contaminated, "views", "are ID test pictures too"),
    (Twice, "rows", "twice"),
    (Swapped, "direction", "ID scores first"),
    (Sorts, "repeatable", "sort a copy"),
]


def test_a_good_benchmark_passes():
    assert not failures(check_benchmark, Plain)


@pytest.mark.parametrize(("broken", "check", "message"), BROKEN_BENCHMARKS, ids=lambda v: getattr(v, "__name__", None))
def test_each_fault_of_a_benchmark_is_caught_by_its_check(broken, check, message):
    found = failures(check_benchmark, broken)
    assert check in found, found
    assert re.search(message, found[check]), found[check]


# -- the command -----------------------------------------------------------------------------------------------------

BAD = """
from fiood_core import Detector, Paper

class Bad(Detector):
    "Minus the largest logit."
    reference = Paper("Nothing", 2024, url="https://example.org")
    formula = "-max_c l_c"

    def score_block(self, block):
        return -block.max_logit
"""


def test_fiood_check_prints_each_check_and_fails_where_one_fails(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    result = CliRunner().invoke(command, [f"{tmp_path}/bad.py"])
    assert result.exit_code == 1
    assert "failed   sign: AUROC" in result.output
    assert "passed   batch size" in result.output


def test_fiood_check_passes_a_registered_detector():
    result = CliRunner().invoke(command, ["msp"])
    assert result.exit_code == 0
    assert " 0 failed" in result.output


def test_fiood_check_suggests_a_name():
    result = CliRunner().invoke(command, ["mpsp"])
    assert result.exit_code != 0
    assert "did you mean 'msp'" in result.output
