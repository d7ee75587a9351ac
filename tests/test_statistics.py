"""The engine: one pass a round, nothing twice, nothing unasked, the same bits however the rows are cut."""

import numpy as np
import pytest
import torch

from fiood_core import statistics
from fiood_core.detector import Detector
from fiood_core.errors import InputError, StatisticError
from fiood_core.features import FeatureSet
from fiood_core.head import Head
from fiood_core.moments import ClassMeans, Mean, Moments, PosteriorMeans, mean_feature, within_covariance
from fiood_core.quantile import ActivationDigits, missing_digits, quantile
from fiood_core.samples import SampledRows, UnitBank, class_subset
from fiood_core.scoring import fit_all
from fiood_core.statistics import TrainContext, TrainStatistics, collect


def training_set(n=500, dim=12, classes=5, seed=0, dtype=np.float32, **more):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((n, dim)) * rng.uniform(0.1, 3, dim) + rng.standard_normal(dim)).astype(dtype)
    x[7] = 0
    head = Head(rng.standard_normal((classes, dim)).astype(dtype))
    return FeatureSet(features=x, labels=rng.integers(0, classes, n), head=head, **more)


def gathered(train, *requests, cache=None):
    stats = TrainStatistics(TrainContext.of(train))
    collect(requests, train, stats, cache)
    return stats


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)


@pytest.mark.parametrize("unit_features", [False, True])
def test_moments_and_class_means_are_those_of_numpy(unit_features):
    train = training_set()
    moments, means = Moments(unit_features), ClassMeans(unit_features)
    stats = gathered(train, moments, means)
    x = train.features.astype(float)
    x, y = unit(x) if unit_features else x, train.labels.numpy()
    mu = np.stack([x[y == c].mean(0) for c in range(5)])
    np.testing.assert_allclose(stats[moments].mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(stats[moments].covariance, np.cov(x.T, bias=True), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(stats[moments].about(torch.ones(12)), (x - 1).T @ (x - 1) / 500, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(stats[means].means, mu, rtol=1e-10, atol=1e-14)
    within = (x - mu[y]).T @ (x - mu[y]) / 500
    np.testing.assert_allclose(within_covariance(stats[moments], stats[means])[0], within, rtol=1e-9, atol=1e-13)


def test_a_class_without_images_has_no_mean():
    train = training_set()
    rest = FeatureSet(features=train.features, labels=np.where(train.labels == 2, 3, train.labels))
    view = gathered(rest, ClassMeans())[ClassMeans()]
    assert view.classes.tolist() == [0, 1, 3, 4]
    assert view.means.shape == (4, 12)


def test_chunks_give_the_bits_of_any_sharding_and_nothing_of_their_own(monkeypatch):
    train = training_set(1000)
    requests = [
        Moments(),
        ClassMeans(),
        PosteriorMeans("float64"),
        UnitBank("float32"),
        SampledRows(0.1, 3),
        ActivationDigits(),
    ]
    whole = gathered(train, *requests)
    monkeypatch.setattr(statistics, "CHUNK_ROWS", 256)
    cut = gathered(train, *requests)
    np.testing.assert_allclose(cut[requests[0]].second, whole[requests[0]].second, rtol=1e-12)
    np.testing.assert_allclose(cut[requests[1]].means, whole[requests[1]].means, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(cut[requests[2]]["means"], whole[requests[2]]["means"], rtol=1e-12)
    assert torch.equal(cut[requests[3]], whole[requests[3]])
    assert torch.equal(cut[requests[4]]["features"], whole[requests[4]]["features"])
    assert torch.equal(cut[requests[5]]["counts"], whole[requests[5]]["counts"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("q", [0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_the_streamed_quantile_is_numpys(dtype, q):
    train = training_set(300, dtype=np.float32)
    data = FeatureSet(features=(train.features * 1e-3 if dtype == np.float64 else train.features).astype(dtype))
    if dtype == np.float64:
        data.features += 1e-12  # not representable in float32
    stats, rounds = TrainStatistics(TrainContext.of(data)), 0
    collect([ActivationDigits()], data, stats)
    while wanted := missing_digits(stats, q):
        collect(wanted, data, stats)
        rounds += 1
    assert rounds == (3 if dtype == np.float64 else 1)
    assert quantile(stats, q) == pytest.approx(np.quantile(data.features.astype(float), q), rel=1e-15, abs=0)


def test_equal_requests_are_computed_once_and_kept_ones_not_at_all():
    class Counted(Mean):
        updates = 0

        def update(self, block):
            Counted.updates += 1
            super().update(block)

    class Cache(dict):
        def put(self, key, result):
            self[key] = result

    train, cache = training_set(), Cache()
    one, other = (Counted("x", lambda block: block.features) for _ in range(2))
    stats = gathered(train, one, other, UnitBank("float32"), cache=cache)
    assert Counted.updates == 1
    assert list(cache) == ["mean[x]"]
    again = gathered(train, one, cache=cache)
    assert Counted.updates == 1
    assert torch.equal(again[one], stats[one])


def test_kept_results_are_kept_under_the_labels_and_head_they_depend_on():
    train, other = training_set(seed=0), training_set(seed=1)
    contexts = [TrainContext.of(t) for t in (train, other)]
    for statistic in (ClassMeans(), PosteriorMeans("float64"), SampledRows(0.1, 0)):
        assert len({statistics.cache_key(statistic, c) for c in contexts}) == 2
    assert len({statistics.cache_key(Moments(), c) for c in contexts}) == 1


def test_one_image_a_class_is_no_class_statistic():
    x = np.random.default_rng(0).standard_normal((9, 4))
    with pytest.raises(StatisticError, match="two training images a class"):
        ClassMeans().check(TrainContext.of(FeatureSet(features=x, labels=np.arange(9))))
    ClassMeans().check(TrainContext.of(FeatureSet(features=x, labels=np.arange(9) // 2)))


def test_missing_labels_are_named():
    with pytest.raises(InputError, match=r"needs training labels; pass FeatureSet\(labels="):
        ClassMeans().check(TrainContext.of(FeatureSet(features=np.ones((4, 2)))))


def test_the_subset_by_class_is_the_published_one():
    labels = torch.tensor([0, 1, 0, 1, 0, 0, 1])
    mask = class_subset(labels, 2)
    for c in (0, 1):
        rows = np.flatnonzero(labels.numpy() == c)
        shuffled = rows.copy()
        np.random.RandomState(1).shuffle(shuffled)
        assert set(np.flatnonzero(mask.numpy() & (labels.numpy() == c))) == set(shuffled[:2])


def test_sampled_rows_carry_their_own_numbers():
    train = training_set()
    rows = SampledRows(0.1, seed=5)
    found = gathered(train, rows)[rows]
    assert len(found["rows"]) == 50
    x = train.features[found["rows"].numpy()].astype(float)
    np.testing.assert_array_equal(found["features"], x)
    energy = np.log(np.exp(x @ train.head.weight.numpy().astype(float).T).sum(1))
    np.testing.assert_allclose(found["log_sum_exp"], energy, rtol=1e-12)
    assert not torch.equal(gathered(train, SampledRows(0.1, seed=6))[SampledRows(0.1, seed=6)]["rows"], found["rows"])


class Fails(Detector):
    mean = mean_feature()

    def learn(self, stats, head):
        raise ValueError("no")

    def score_block(self, block):
        return block.norms


class Needs(Fails):
    means = ClassMeans()


class Works(Fails):
    def learn(self, stats, head):
        self.mean_feature = stats[self.mean]

    def score_block(self, block):
        return -(block.features - self.mean_feature.to(self.dtype)).norm(dim=1)


class Endless(Works):
    def refine(self, stats, head):
        self.rounds = getattr(self, "rounds", torch.tensor(0)) + 1
        return [Mean(f"round {int(self.rounds)}", lambda block: block.features)]


def test_a_detector_that_cannot_be_fitted_leaves_the_others_alone():
    train = FeatureSet(features=training_set().features)
    detectors = {"fails": Fails(), "needs": Needs(), "works": Works(), "endless": Endless()}
    errors = {}
    fit_all(detectors, train, on_error=errors.__setitem__)
    assert {k: type(e) for k, e in errors.items()} == {
        "fails": ValueError,
        "needs": InputError,
        "endless": StatisticError,
    }
    assert np.isfinite(detectors["works"].score(train)).all()


def test_a_statistic_that_fails_in_the_pass_fails_those_who_asked_for_it():
    x = training_set().features.copy()
    x[3, 2] = np.nan
    with pytest.raises(InputError, match="row 3"):
        Works().fit(FeatureSet(features=x))


def test_a_refused_fit_forgets_the_one_before():
    train = training_set()
    detector = Works().fit(train)
    with pytest.raises(InputError):
        detector.fit(FeatureSet(logits=np.ones((3, 2))))
    with pytest.raises(Exception, match="not been fitted"):
        detector.score(train)


def test_a_cache_that_cannot_write_stops_the_fit():
    class Full(dict):
        def put(self, key, result):
            raise OSError("no space left on device")

    errors = {}
    with pytest.raises(OSError, match="no space left"):
        fit_all({"works": Works()}, training_set(), cache=Full(), on_error=errors.__setitem__)
    assert not errors
