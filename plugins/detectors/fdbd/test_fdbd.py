import numpy as np

import fiood_core as fiood
from fiood_core.testing import check_detector

RNG = np.random.default_rng(0)
F, W = RNG.standard_normal((40, 5)), RNG.standard_normal((4, 5))


def direct(weight, rows):
    logits, centre = rows @ weight.T, F.mean(0)
    out = []
    for x, l in zip(rows, logits, strict=True):
        top = l.argmax()
        gaps = np.linalg.norm(weight[top] - weight, axis=1)
        terms = [(l[top] - l[c]) / gaps[c] for c in range(len(l)) if gaps[c] > 0]
        out.append(sum(terms) / np.linalg.norm(x - centre))
    return np.array(out)


def score(weight, rows, precision="float64"):
    head = fiood.Head(weight)
    detector = fiood.detector("fdbd", precision=precision).fit(fiood.FeatureSet(features=F, head=head))
    return detector.score(fiood.FeatureSet(features=rows, head=head))


def test_it_conforms():
    check_detector("fdbd")


def test_equal_head_rows_have_no_boundary_between_them():
    weight = np.vstack([W, W[1]])
    np.testing.assert_allclose(score(weight, F), direct(weight, F), rtol=1e-12)


def test_near_duplicate_rows_keep_their_digits():
    weight = np.vstack([W, W[1] + 1e-7])
    np.testing.assert_allclose(score(weight, F), direct(weight, F), rtol=1e-9)
