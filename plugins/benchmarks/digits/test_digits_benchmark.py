from fiood_benchmark_digits import DigitsBenchmark

from fiood_core.testing import check_benchmark


def test_conformance():
    check_benchmark(DigitsBenchmark)


def test_near_and_far_sets_and_a_training_half_apart_from_the_test_half():
    benchmark = DigitsBenchmark()
    assert {name: ood.group for name, ood in benchmark.ood.items()} == {
        "digits-6-9": "near",
        "photo-patches": "far",
        "noise": "far",
    }
    test, train = benchmark.id_test.view(), benchmark.id_train.view()
    assert test.source == train.source
    assert not set(test.ids) & set(train.ids)
