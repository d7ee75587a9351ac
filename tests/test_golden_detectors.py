"""The 21 detectors against golden values, and against a plain float64 reference on data of every awkward kind."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

import fiood_core as fiood

NAMES = {
    "msp": "msp",
    "max-logit": "maxlogit",
    "kl-matching": "klmatch",
    "energy": "energy",
    "gen": "gen",
    "react": "react",
    "ash-s": "ash_s",
    "scale": "scale",
    "dice": "dice",
    "mahalanobis": "maha",
    "relative-mahalanobis": "rmaha",
    "mahalanobis++": "mahapp",
    "relative-mahalanobis++": "rmahapp",
    "knn": "knn",
    "cosine": "cosine",
    "mcm": "mcm",
    "fdbd": "fdbd",
    "neco": "neco",
    "nac": "nac",
    "vim": "vim",
    "nnguide": "nnguide",
}
"""Detectors, and what the golden file calls them."""

MAHALANOBIS = tuple(name for name in NAMES if "mahalanobis" in name)


def within(name: str, dim: int) -> tuple[float, float]:
    """Relative and absolute tolerance of a float32 score."""
    if name in MAHALANOBIS:
        return 0, 1e-3
    if name in {"knn", "cosine"}:
        return 0, 1e-6
    if name in {"nac", "kl-matching"}:
        return 0, {"nac": 1 / dim, "kl-matching": 1e-5}[name]
    return (1e-4 if name == "gen" else 1e-5), 1e-6


def parameters(hyper: dict, bank: np.ndarray) -> dict[str, dict]:
    """What the golden file's hyper-parameters are called here."""
    return {
        "gen": {"gamma": hyper["gen_gamma"], "m": hyper["gen_M"]},
        "react": {"quantile": hyper["react_q"]},
        "ash-s": {"percentile": hyper["ash_p"]},
        "scale": {"percentile": hyper["scale_p"]},
        "dice": {"percentile": hyper["dice_p"]},
        "knn": {"k": hyper["knn_K"]},
        "mcm": {"temperature": hyper["mcm_T"]},
        "neco": {"variance": hyper["neco_var"]},
        "nac": {
            "bins": hyper["nac_M"],
            "alpha": hyper["nac_alpha"],
            "coverage_fraction": hyper["nac_o_frac"],
            "images_per_class": None,
        },
        "vim": {"dim": hyper["vim_dim"]},
        "nnguide": {"k": hyper["nnguide_K"], "bank_indices": bank},
    }


def made(name: str, given: dict[str, dict], **more) -> fiood.Detector:
    return fiood.detector(name, **{**given.get(name, {}), **more})


@pytest.fixture(scope="module")
def golden(shared):
    with np.load(shared / "golden" / "detectors_small.npz") as file:
        return dict(file)


def sets(golden: dict) -> dict[str, fiood.FeatureSet]:
    head = fiood.Head(golden["W"], golden["b"])
    return {
        part: fiood.FeatureSet(
            features=golden[f"F_{part}"], logits=golden[f"L_{part}"], labels=golden.get(f"y_{part}"), head=head
        )
        for part in ("train", "id", "ood")
    }


@pytest.mark.shared
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_every_detector_has_the_golden_scores(golden, precision):
    given, data = parameters(json.loads(str(golden["hyper_json"])), golden["bank_idx"]), sets(golden)
    detectors = {name: made(name, given, precision=precision) for name in NAMES}
    table = fiood.score_all(detectors, data["train"], {"id": data["id"], "ood": data["ood"]})
    for name, key in NAMES.items():
        rtol, atol = (1e-9, 1e-10) if precision == "float64" else within(name, 64)
        for part in ("id", "ood"):
            np.testing.assert_allclose(
                table[name][part], golden[f"score_{key}_{part}"], rtol=rtol, atol=atol, err_msg=f"{name} {part}"
            )


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "changed", "key"),
    [
        ("dice", {"percentile": 70}, "dice_dice_p_70"),
        ("react", {"quantile": 0.9}, "react_react_q_0.9"),
        ("gen", {"m": 5}, "gen_gen_M_5"),
        ("knn", {"k": 1}, "knn_knn_K_1"),
        ("scale", {"percentile": 65}, "scale_scale_p_65"),
        ("gen", {}, "gen_stable"),
    ],
)
def test_other_parameters_have_their_golden_scores(golden, name, changed, key):
    given, data = parameters(json.loads(str(golden["hyper_json"])), golden["bank_idx"]), sets(golden)
    detector = made(name, given, precision="float64", **changed).fit(data["train"])
    for part in ("id", "ood"):
        np.testing.assert_allclose(
            detector.score(data[part]), golden[f"extra_{key}_{part}"], rtol=1e-9, atol=1e-10, err_msg=part
        )


@pytest.mark.shared
def test_what_is_learned_is_golden(golden):
    given, data = parameters(json.loads(str(golden["hyper_json"])), golden["bank_idx"]), sets(golden)

    def learned(name):
        return made(name, given, precision="float64").fit(data["train"]).state()

    def same(found, key):
        np.testing.assert_allclose(found, golden[key], rtol=1e-9, atol=1e-12, err_msg=key)

    for name, suffix in (("relative-mahalanobis", ""), ("relative-mahalanobis++", "_n")):
        state = learned(name)
        for key, stat in (("whiten", "prec"), ("whiten_all", "prec0")):
            inverse, scale = state[key] @ state[key].T, np.abs(golden[f"stat_{stat}{suffix}"]).max()
            np.testing.assert_allclose(inverse / scale, golden[f"stat_{stat}{suffix}"] / scale, atol=1e-11)
        same(state["origin"], f"stat_mu0{suffix}")
    same(learned("react")["threshold"], "stat_react_clip")
    same(learned("dice")["weight"], "stat_dice_W")
    same(learned("kl-matching")["log_templates"].exp(), "stat_klm_Q")
    same(learned("neco")["directions"].shape[1], "stat_neco_dim")
    same(learned("neco")["std"], "stat_neco_std")
    same(learned("vim")["origin"], "stat_vim_u")
    same(learned("vim")["scale"], "stat_vim_alpha")
    np.testing.assert_array_equal(
        learned("nac")["covered0"], np.minimum(golden["stat_nac_counts"], golden["stat_nac_O"])
    )
    same(learned("nac")["full0"], "stat_nac_O")


@pytest.mark.shared
def test_nac_over_inner_layers_is_golden(shared):
    with np.load(shared / "golden" / "cood_nac_cnn.npz") as file:
        data = dict(file)
    hyper = json.loads(str(data["nac_hyper_json"]))
    layers = tuple((layer, h["sig_alpha"], h["M"], h["O"]) for layer, h in hyper.items())

    def columns(part, names):
        return {
            f"layer-gradients[{name}]": np.stack([data[f"nac_{name}_z_{part}"], data[f"nac_{name}_g_{part}"]], axis=1)
            for name in names
        }

    for chosen in [layers, *((layer,) for layer in layers)]:
        names = [layer[0] for layer in chosen]
        detector = fiood.detector("nac", layers=chosen, images_per_class=None, precision="float64")
        head = fiood.Head(data["w_fc_weight"], data["w_fc_bias"])
        detector.fit(fiood.FeatureSet(columns=columns("fit", names), head=head))
        expected = data["nac_multi_score"] if len(names) > 1 else data[f"nac_{names[0]}_score"]
        found = detector.score(fiood.FeatureSet(columns=columns("test", names)))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


# -- a reference of its own: one formula a function, nothing shared, nothing fast -------------------------------------


@dataclass
class Problem:
    """Training rows with features, logits and labels; a head; test rows."""

    F: np.ndarray
    L: np.ndarray
    y: np.ndarray
    W: np.ndarray
    b: np.ndarray | None
    X: np.ndarray
    M: np.ndarray

    def sets(self) -> tuple[fiood.FeatureSet, fiood.FeatureSet]:
        head = fiood.Head(self.W, self.b)
        return (
            fiood.FeatureSet(features=self.F, logits=self.L, labels=self.y, head=head),
            fiood.FeatureSet(features=self.X, logits=self.M, head=head),
        )


def made_up(signed: bool, classes: int, dim: int, n: int, seed: int, bias: bool = True, scale: float = 1.0) -> Problem:
    """A problem with an absent class, a class never predicted, duplicates and a zero row, at float32 resolution.

    Signed features leave a LayerNorm with an affine map, so that they lie in a hyperplane.
    """
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, dim))
    gain, shift = rng.uniform(0.5, 2, dim), rng.standard_normal(dim)

    def features(labels):
        raw = centres[labels] + rng.standard_normal((len(labels), dim)) * rng.uniform(0.3, 1.5, dim)
        if not signed:
            return np.maximum(raw, 0).astype(np.float32).astype(float)
        normed = (raw - raw.mean(1, keepdims=True)) / np.sqrt(raw.var(1, keepdims=True) + 1e-6)
        return (normed * gain + shift).astype(np.float32).astype(float)

    labels = rng.integers(0, classes, n)
    labels[labels == 3] = 4  # absent
    F = features(labels)
    labels[100:120] = labels[:20][::-1]
    F[:20] = F[100:120]
    X = np.concatenate([features(rng.integers(0, classes, 150)), 2 * features(rng.integers(0, classes, 100))[::-1]])
    X[6], X[200] = X[5], 0
    X[201] = F[42]
    W = (scale * (centres + 0.5 * rng.standard_normal((classes, dim))) / np.sqrt(dim)).astype(np.float32).astype(float)
    b = (0.1 * rng.standard_normal(classes)).astype(np.float32).astype(float) if bias else None
    head = fiood.Head(W, b)

    def logits(x):
        values = x @ head.weight.numpy().T + (0 if b is None else b)
        values[:, 1] -= 50  # never predicted
        return values.astype(np.float32).astype(float)

    return Problem(F, logits(F), labels, W, b, X, logits(X))


def softmax(L):
    e = np.exp(L - L.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def lse(L):
    top = L.max(1)
    return top + np.log(np.exp(L - top[:, None]).sum(1))


def unit(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(norms > 0, norms, 1)


def pinvh(S):
    w, V = np.linalg.eigh(S)
    keep = np.abs(w) > len(w) * np.finfo(float).eps * np.abs(w).max()
    return (V[:, keep] / w[keep]) @ V[:, keep].T


def mahalanobis(F, y, X, relative):
    present = np.unique(y)
    means = np.stack([F[y == c].mean(0) for c in present])
    away = F - means[np.searchsorted(present, y)]
    P = pinvh(away.T @ away / len(F))
    nearest = np.stack([np.einsum("nd,de,ne->n", X - m, P, X - m) for m in means]).min(0)
    if not relative:
        return -nearest
    centred = F - F.mean(0)
    P0 = pinvh(centred.T @ centred / len(F))
    return np.einsum("nd,de,ne->n", X - F.mean(0), P0, X - F.mean(0)) - nearest


def shaped(p: Problem, percentile, prune):
    out = np.empty(len(p.X))
    for i, x in enumerate(p.X):
        k = len(x) - round(len(x) * percentile / 100)
        top = np.argsort(-x, kind="stable")[:k]
        r = x.sum() / x[top].sum() if x.any() else 1.0
        kept = np.zeros_like(x)
        kept[top] = x[top]
        out[i] = lse(((kept if prune else x) * np.exp(r) @ p.W.T + (0 if p.b is None else p.b))[None])[0]
    return out


def reference(p: Problem, given: dict[str, dict]) -> dict[str, np.ndarray]:
    """Direct float64 formulas of every detector."""
    P, Ptrain, b = softmax(p.M), softmax(p.L), 0 if p.b is None else p.b
    top, energy = p.M.max(1), lse(p.M)
    scores = {"msp": P.max(1), "max-logit": top, "energy": energy}
    predicted = p.L.argmax(1)
    Q = np.stack([Ptrain[predicted == k].mean(0) for k in np.unique(predicted)])
    scores["kl-matching"] = -np.array([(q * np.log(q / Q)).sum(1).min() for q in P])
    log_p = p.M - energy[:, None]
    others = np.where(np.arange(P.shape[1]) == p.M.argmax(1)[:, None], -np.inf, p.M)
    log_rest = np.where(np.isinf(others), (lse(others) - energy)[:, None], np.log1p(-np.minimum(P, 0.75)))
    terms = np.exp(given["gen"]["gamma"] * (log_p + log_rest))
    order = np.argsort(-log_p, axis=1)[:, : given["gen"]["m"]]
    scores["gen"] = -np.take_along_axis(terms, order, 1).sum(1)
    scores["react"] = lse(np.minimum(p.X, np.quantile(p.F, given["react"]["quantile"])) @ p.W.T + b)
    scores["ash-s"] = shaped(p, given["ash-s"]["percentile"], True)
    scores["scale"] = shaped(p, given["scale"]["percentile"], False)
    V = p.W * p.F.mean(0)
    scores["dice"] = lse(p.X @ (p.W * (np.percentile(V, given["dice"]["percentile"]) < V)).T + b)
    for name in MAHALANOBIS:
        f = unit if name.endswith("++") else (lambda x: x)
        scores[name] = mahalanobis(f(p.F), p.y, f(p.X), name.startswith("relative"))
    squared = ((unit(p.X)[:, None] - unit(p.F)) ** 2).sum(2)
    scores["knn"] = -np.sort(squared, axis=1)[:, given["knn"]["k"] - 1]
    means = np.stack([p.F[p.y == c].mean(0) for c in np.unique(p.y)])
    cosines = unit(p.X) @ unit(means).T
    scores["cosine"] = cosines.max(1)
    scores["mcm"] = softmax(cosines / given["mcm"]["temperature"]).max(1)
    mu, hat = p.F.mean(0), p.M.argmax(1)
    gaps = np.linalg.norm(p.W[:, None] - p.W, axis=2)
    ratio = np.where(gaps[hat] > 0, (top[:, None] - p.M) / np.where(gaps[hat] > 0, gaps[hat], 1), 0)
    scores["fdbd"] = ratio.sum(1) / np.linalg.norm(p.X - mu, axis=1)
    std = np.where(p.F.std(0) > 0, p.F.std(0), 1)
    Z, z = (p.F - mu) / std, (p.X - mu) / std
    _, s, Vt = np.linalg.svd(Z, full_matrices=False)
    d = 1 + int(np.argmax(np.cumsum(s**2) / (s**2).sum() >= given["neco"]["variance"]))
    scores["neco"] = np.linalg.norm(z @ Vt[:d].T, axis=1) / np.linalg.norm(z, axis=1) * top
    scores["nac"] = coverage(p, P, Ptrain, **given["nac"])
    u = -np.linalg.pinv(p.W) @ (np.zeros(len(p.W)) if p.b is None else p.b)
    dim = given["vim"]["dim"] or p.F.shape[1] // 2
    N = np.linalg.eigh((p.F - u).T @ (p.F - u) / len(p.F))[1][:, : p.F.shape[1] - dim]
    alpha = p.L.max(1).sum() / np.linalg.norm((p.F - u) @ N, axis=1).sum()
    scores["vim"] = energy - alpha * np.linalg.norm((p.X - u) @ N, axis=1)
    bank = given["nnguide"]["bank_indices"]
    B = unit(p.F[bank]) * lse(p.L[bank])[:, None]
    scores["nnguide"] = np.sort(unit(p.X) @ B.T, axis=1)[:, -given["nnguide"]["k"] :].mean(1) * energy
    return scores


def coverage(p: Problem, P, Ptrain, bins, alpha, coverage_fraction, images_per_class):
    a = np.log(np.linspace(1, np.sqrt(1000), bins // 2)) / np.log(1000)
    edges = np.concatenate([a[:-1], 1 - a[::-1]])
    edges[-1] += 0.01
    edges = np.append(edges, 1.2)

    def states(x, p_):
        return 1 / (1 + np.exp(np.minimum(-alpha * x * ((p_ - 1 / p_.shape[1]) @ p.W), 700)))

    full = max(1, round(coverage_fraction * len(p.F)))
    S, T = states(p.F, Ptrain), states(p.X, P)
    total = np.zeros(len(p.X))
    for j in range(S.shape[1]):
        counts = np.histogram(S[:, j], edges)[0]
        total += np.minimum(counts, full)[np.searchsorted(edges, T[:, j], side="right") - 1]
    return total / (full * S.shape[1])


PROBLEMS = {
    "signed, C < D": {"signed": True, "classes": 37, "dim": 96, "n": 2220, "seed": 1},
    "signed, C > D": {"signed": True, "classes": 60, "dim": 24, "n": 1500, "seed": 2},
    "post-ReLU": {"signed": False, "classes": 10, "dim": 64, "n": 1000, "seed": 3},
    "no bias": {"signed": True, "classes": 12, "dim": 32, "n": 800, "seed": 4, "bias": False},
    "confident": {"signed": True, "classes": 12, "dim": 32, "n": 800, "seed": 5, "scale": 6.0},
}


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_detector_equals_its_formula(kind, precision):
    problem = made_up(**PROBLEMS[kind])
    hyper = {"gen_gamma": 0.1, "gen_M": 10, "react_q": 0.97, "ash_p": 90, "scale_p": 85, "dice_p": 80, "knn_K": 7}
    hyper |= {"mcm_T": 1.0, "neco_var": 0.9, "nac_M": 50, "nac_alpha": 100.0, "nac_o_frac": 0.01, "vim_dim": None}
    bank = np.random.default_rng(9).choice(len(problem.F), 90, replace=False)
    given = parameters({**hyper, "nnguide_K": 5}, bank)
    detectors = {name: made(name, given, precision=precision) for name in NAMES}
    train, test = problem.sets()
    table = fiood.score_all(detectors, train, {"test": test})
    for name, expected in reference(problem, given).items():
        rtol, atol = (1e-9, 1e-10) if precision == "float64" else within(name, problem.F.shape[1])
        np.testing.assert_allclose(table[name]["test"], expected, rtol=rtol, atol=atol, err_msg=f"{name} ({kind})")
