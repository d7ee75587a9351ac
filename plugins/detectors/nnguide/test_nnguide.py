import numpy as np
import pytest

import fiood_core as fiood
from fiood_core.errors import ParameterError, StatisticError
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F, L = RNG.standard_normal((200, 8)), RNG.standard_normal((200, 5)) - 2
DATA = fiood.FeatureSet(features=F, logits=L)


def test_it_conforms():
    check_detector("nnguide")


def test_neighbours_are_chosen_by_the_scaled_product_and_negative_energies_kept():
    bank = RNG.choice(200, 40, replace=False)
    detector = fiood.detector("nnguide", k=7, bank_indices=bank, precision="float64").fit(DATA)
    energy, unit = np.log(np.exp(L).sum(1)), F / np.linalg.norm(F, axis=1, keepdims=True)
    assert (energy < 0).any()
    products = unit @ (unit[bank] * energy[bank, None]).T
    expected = np.sort(products, axis=1)[:, -7:].mean(1) * energy
    np.testing.assert_allclose(detector.score(DATA), expected, rtol=1e-9, atol=1e-12)


def test_the_bank_is_drawn_by_its_own_seed_and_recorded():
    one = fiood.detector("nnguide", k=5, bank_fraction=0.1, seed=1).fit(DATA)
    same = fiood.detector("nnguide", k=5, bank_fraction=0.1, seed=1).fit(DATA)
    other = fiood.detector("nnguide", k=5, bank_fraction=0.1, seed=2).fit(DATA)
    assert one.rows.tolist() == same.rows.tolist() != other.rows.tolist()
    assert len(one.rows) == 20


def test_a_bank_smaller_than_k_is_refused():
    with pytest.raises(StatisticError, match=r"bank of only 2 of 200 .* lower k or raise bank_fraction"):
        fiood.detector("nnguide").fit(DATA)
    with pytest.raises(ParameterError, match="200 rows"):
        fiood.detector("nnguide", k=1, bank_indices=[5, 200]).fit(DATA)


def test_a_zero_row_scores_zero():
    detector = fiood.detector("nnguide", k=5, bank_fraction=0.5).fit(DATA)
    assert detector.score(fiood.FeatureSet(features=np.zeros((1, 8)), logits=L[:1])).tolist() == [0.0]


def test_indices_survive_the_state():
    detector = fiood.detector("nnguide", k=2, bank_indices=np.arange(9)).fit(DATA)
    assert type(detector).from_state(detector.state()).bank_indices == tuple(range(9))
