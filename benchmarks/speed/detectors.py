"""Fit and score times of the 21 detectors, beside pytorch-ood's and beside the machine's GEMM rate, in one run.

    python benchmarks/speed/detectors.py [--n-train N] [--n-test N] [--dim D] [--classes C] [--json FILE]

The unit is one *head product*: the float32 product of the test features with the head, timed in the same run.  A
*roofline* is the time that a detector's matrix products alone would take at the measured GEMM rate.  Slow peers score
``--peer-rows`` rows, and their time is scaled up; the table marks them with ``~``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import fiood_core as fiood
from fiood_core.detector import Detector
from fiood_core.scoring import fit_all, score_fitted

DETECTORS = (
    *("msp", "max-logit", "kl-matching", "energy", "gen"),
    *("react", "ash-s", "scale", "dice"),
    *("mahalanobis", "relative-mahalanobis", "mahalanobis++", "relative-mahalanobis++"),
    *("knn", "cosine", "mcm", "fdbd", "neco", "nac"),
    *("vim", "nnguide"),
)
REPEATS = 3
QUICK_SECONDS = 1.0


@dataclass
class Sizes:
    """Rows, width and classes of the arrays."""

    n_train: int
    n_test: int
    dim: int
    classes: int


@dataclass
class Data:
    """The arrays that everything in a run is measured on, float32."""

    train: Tensor
    labels: Tensor
    test: Tensor
    weight: Tensor
    bias: Tensor
    train_logits: Tensor
    test_logits: Tensor

    @property
    def train_set(self) -> fiood.FeatureSet:
        """The training side as detectors see it."""
        return fiood.FeatureSet(self.train, self.labels, self.train_logits, fiood.Head(self.weight, self.bias))

    @property
    def test_set(self) -> fiood.FeatureSet:
        """The test side as detectors see it."""
        return fiood.FeatureSet(self.test, logits=self.test_logits, head=fiood.Head(self.weight, self.bias))


@dataclass
class Line:
    """One detector's figures, in seconds and bytes."""

    detector: str
    fit: float
    score: float
    roofline: float
    peak: int
    peer_fit: float | None = None
    peer_score: float | None = None
    peer_scaled: bool = False

    @property
    def to_peer(self) -> float | None:
        """Our time over the peer's, fit and score together."""
        if self.peer_fit is None or self.peer_score is None:
            return None
        return (self.fit + self.score) / (self.peer_fit + self.peer_score)


def make(sizes: Sizes, seed: int = 0) -> Data:
    """Clusters of non-negative features, a head that tells them apart, and logits."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(sizes.classes, sizes.dim, generator=generator)

    def draw(labels: Tensor) -> Tensor:
        return (means[labels] + torch.randn(len(labels), sizes.dim, generator=generator)).relu_()

    labels = torch.arange(sizes.n_train) % sizes.classes
    train = draw(labels)
    test = draw(torch.randint(sizes.classes, (sizes.n_test,), generator=generator))
    weight = means.relu() / sizes.dim**0.5
    bias = torch.randn(sizes.classes, generator=generator) / 10
    logits = [torch.nn.functional.linear(x, weight, bias) for x in (train, test)]
    return Data(train, labels, test, weight, bias, *logits)


def seconds(work: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Shortest of several runs; one that is slow is not repeated."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
        if best > QUICK_SECONDS * 5:
            break
    return best


def gemm_rate(dtype: torch.dtype, size: int = 3072) -> float:
    """Multiply-adds a second, times two, of a large square product."""
    a, b = torch.randn(size, size, dtype=dtype), torch.randn(size, size, dtype=dtype)
    return 2 * size**3 / seconds(lambda: a @ b, 5)


def products(name: str, s: Sizes) -> tuple[float, float]:
    """Operations of a detector's matrix products by its definition: in float32, and in float64."""
    n, t, d, c = s.n_train, s.n_test, s.dim, s.classes
    head, moments = 2.0 * t * d * c, n * d * d * 1.0  # a symmetric product is half a full one
    residual = d - (1000 if d >= 2048 else 512 if d >= 768 else d // 2)
    whitened = 2.0 * t * d * (d + c)
    return {
        "kl-matching": (0.0, 2.0 * t * c * c),
        "react": (head, 0.0),
        "ash-s": (head, 0.0),
        "scale": (head, 0.0),
        "dice": (head, 0.0),
        "mahalanobis": (whitened, moments),
        "mahalanobis++": (whitened, moments),
        "relative-mahalanobis": (whitened + 2.0 * t * d * d, moments),
        "relative-mahalanobis++": (whitened + 2.0 * t * d * d, moments),
        "knn": (2.0 * t * n * d, 0.0),
        "cosine": (head, 0.0),
        "mcm": (head, 0.0),
        "fdbd": (0.0, 2.0 * c * c * d),
        "neco": (2.0 * t * d * d, moments),
        "nac": (2.0 * (t + min(n, 50 * c)) * d * c, 0.0),
        "vim": (2.0 * (n + t) * d * residual, moments),
        "nnguide": (2.0 * t * d * n / 100, 0.0),
    }.get(name, (0.0, 0.0))


def detector(name: str, sizes: Sizes) -> Detector:
    """A detector with its defaults, k lowered where the bank is smaller."""
    if name == "nnguide":
        return fiood.detector(name, k=min(100, max(1, sizes.n_train // 200)))
    if name == "knn":
        return fiood.detector(name, k=min(1000, sizes.n_train // 10))
    return fiood.detector(name)


def peers(data: Data, sizes: Sizes) -> dict[str, tuple[Callable[[], Any], Callable[[Tensor, Tensor], Any]]]:
    """For each detector that pytorch-ood has: its fit, and its score of features and logits."""
    from pytorch_ood import detector as peer

    weight, bias = data.weight, data.bias
    layer = torch.nn.Linear(sizes.dim, sizes.classes).requires_grad_(False)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)

    def head(z: Tensor) -> Tensor:
        return layer(z.flatten(1))

    def nothing() -> None:
        return None

    x, y, logits = data.train, data.labels, data.train_logits
    dims = 512 if sizes.dim >= 768 else sizes.dim // 2
    kl, react, dice = peer.KLMatching(None), peer.ReAct(head, head, percentile=0.99), peer.DICE(None, weight, bias, 0.9)
    maha, rmd, vim = peer.Mahalanobis(None), peer.RMD(None), peer.ViM(None, dims, weight, bias)
    knn, fdbd = peer.KNN(None, k=min(1000, sizes.n_train // 10)), peer.fDBD(layer, layer)
    nnguide = peer.NNGuide(head, head, k=10)
    ash, scale = peer.ASH(head, head, percentile=0.9), peer.SCALE(head, head, percentile=0.85)

    def maps(z: Tensor) -> Tensor:
        return z[:, :, None, None]

    return {
        "msp": (nothing, lambda _, m: peer.MaxSoftmax(None).predict_logits(m)),
        "max-logit": (nothing, lambda _, m: peer.MaxLogit(None).predict_logits(m)),
        "energy": (nothing, lambda _, m: peer.EnergyBased(None).predict_logits(m)),
        "gen": (nothing, lambda _, m: peer.GEN(None, M=min(100, sizes.classes)).predict_logits(m)),
        "kl-matching": (lambda: kl.fit_logits(logits, y), lambda _, m: kl.predict_logits(m)),
        "react": (lambda: react.fit_feature_maps(maps(x), y), lambda z, _: react.predict_feature_maps(maps(z))),
        "ash-s": (nothing, lambda z, _: ash.predict_feature_maps(maps(z))),
        "scale": (nothing, lambda z, _: scale.predict_feature_maps(maps(z))),
        "dice": (lambda: dice.fit_features(x, y), lambda z, _: dice.predict_features(z)),
        "mahalanobis": (lambda: maha.fit_features(x, y), lambda z, _: maha.predict_features(z)),
        "relative-mahalanobis": (lambda: rmd.fit_features(x, y), lambda z, _: rmd.predict_features(z)),
        "knn": (lambda: knn.fit_features(x, y), lambda z, _: knn.predict_features(z)),
        "fdbd": (lambda: fdbd.fit_features(x), lambda z, _: fdbd.predict_features(z)),
        "vim": (lambda: vim.fit_features(x, y), lambda z, _: vim.predict_features(z)),
        "nnguide": (lambda: nnguide.fit_features(x, y), lambda z, _: nnguide.predict_features(z)),
    }


def peer_times(
    fit: Callable[[], Any], score: Callable[[Tensor, Tensor], Any], data: Data, rows: int
) -> tuple[float, float, bool]:
    """Fit and score seconds of a peer; scaled up from ``rows`` rows where it is slow."""
    with torch.no_grad():
        fitting = seconds(fit, 1)
        few = min(rows, len(data.test))
        part = seconds(lambda: score(data.test[:few], data.test_logits[:few]), 1)
        whole = part * len(data.test) / few
        if whole > 10 * QUICK_SECONDS:
            return fitting, whole, few < len(data.test)
        return fitting, seconds(lambda: score(data.test, data.test_logits), REPEATS), False


def peak(work: Callable[[], Any]) -> int:
    """Bytes by which the resident set grew at most during ``work`` (Linux; 0 elsewhere)."""
    reset, status = Path("/proc/self/clear_refs"), Path("/proc/self/status")
    if not reset.exists():
        work()
        return 0
    reset.write_text("5")
    before = _status(status, "VmRSS")
    work()
    return max(0, _status(status, "VmHWM") - before)


def _status(path: Path, field: str) -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def measure(data: Data, sizes: Sizes, names: list[str], peer_rows: int, rates: tuple[float, float]) -> list[Line]:
    """Each detector alone, and its peer."""
    train, test = data.train_set, data.test_set
    others = peers(data, sizes) if peer_rows else {}
    lines = []
    for name in names:
        d = detector(name, sizes)
        fitting = seconds(lambda d=d: d.fit(train))
        scoring = seconds(lambda d=d: d.score(test))
        memory = peak(lambda d=d: d.fit(train).score(test))
        single, double = products(name, sizes)
        line = Line(name, fitting, scoring, single / rates[0] + double / rates[1], memory)
        if name in others:
            line.peer_fit, line.peer_score, line.peer_scaled = peer_times(*others[name], data, peer_rows)
        lines.append(line)
        print(f"  {name:24s} fit {fitting:8.3f} s  score {scoring:8.3f} s", file=sys.stderr, flush=True)
    return lines


def together(data: Data, sizes: Sizes, names: list[str]) -> dict[str, float]:
    """All detectors in one fit pass; all but k-NN in one scoring pass; k-NN by itself."""
    train, test = data.train_set, data.test_set
    detectors = {name: detector(name, sizes) for name in names}
    fitting = seconds(lambda: fit_all(list(detectors.values()), train), 2)
    without = {name: d for name, d in detectors.items() if name != "knn"}
    scoring = seconds(lambda: score_fitted(without, test), 2)
    found = {"fit": fitting, "score_without_knn": scoring}
    if "knn" in detectors:
        found["score_knn"] = seconds(lambda: score_fitted({"knn": detectors["knn"]}, test), 1)
    return found


def report(result: dict[str, Any], lines: list[Line]) -> str:
    """The table."""
    unit, both = result["head_product_seconds"], result["together"]
    rows = [
        f"{'detector':24s} {'fit s':>8s} {'score s':>8s} {'roofline':>9s} {'peer fit':>9s} {'peer score':>11s} "
        f"{'ours/peer':>10s} {'peak MB':>8s}"
    ]
    for line in lines:
        to_roofline = f"{(line.fit + line.score) / line.roofline:8.1f}x" if line.roofline else f"{'–':>9s}"
        mark = "~" if line.peer_scaled else " "
        peer = (
            "" if line.peer_fit is None else f"{line.peer_fit:9.3f} {mark}{line.peer_score:10.3f} {line.to_peer:10.4f}"
        )
        rows.append(
            f"{line.detector:24s} {line.fit:8.3f} {line.score:8.3f} {to_roofline} {peer:32s} {line.peak / 1e6:8.0f}"
        )
    rows += [
        "",
        f"head product {unit:.3f} s · GEMM float32 {result['gemm_float32'] / 1e9:.0f} GFLOP/s, "
        f"float64 {result['gemm_float64'] / 1e9:.0f} GFLOP/s · {result['threads']} threads",
        f"all together: fit {both['fit'] / unit:.1f} head products, score without k-NN "
        f"{both['score_without_knn'] / unit:.1f} head products"
        + (f", k-NN {result['knn_to_roofline']:.2f} × its roofline" if "score_knn" in both else ""),
    ]
    if result["times_faster_than_peer"] is not None:
        rows.append(
            f"{result['times_faster_than_peer']:.0f} × faster than pytorch-ood {result['peer_version']}, summed over "
            f"the detectors both have, k-NN aside; slower than 1.2 × its peer + 50 ms: "
            f"{', '.join(result['slower_than_peer']) or 'none'}"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-train", type=int, default=50_000)
    parser.add_argument("--n-test", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--detectors", default=",".join(DETECTORS), help="comma-separated names")
    parser.add_argument("--peer-rows", type=int, default=1000, help="rows that a slow peer scores; 0: no peer")
    parser.add_argument("--json", type=Path, help="write all figures here")
    args = parser.parse_args()
    sizes = Sizes(args.n_train, args.n_test, args.dim, args.classes)
    names = args.detectors.split(",")

    data = make(sizes)
    unit = seconds(lambda: torch.nn.functional.linear(data.test, data.weight, data.bias), 7)
    rates = (gemm_rate(torch.float32), gemm_rate(torch.float64))
    combined = together(data, sizes, names)
    lines = measure(data, sizes, names, args.peer_rows, rates)

    shared = [line for line in lines if line.peer_fit is not None and line.detector != "knn"]
    ours, theirs = sum(x.fit + x.score for x in shared), sum((x.peer_fit or 0) + (x.peer_score or 0) for x in shared)
    slower = [
        x.detector
        for x in lines
        if x.peer_fit is not None and x.fit + x.score > 1.2 * (x.peer_fit + (x.peer_score or 0)) + 0.05
    ]
    result: dict[str, Any] = {
        "sizes": asdict(sizes),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "head_product_seconds": unit,
        "gemm_float32": rates[0],
        "gemm_float64": rates[1],
        "together": combined,
        "detectors": [asdict(line) for line in lines],
        "times_faster_than_peer": theirs / ours if shared else None,
        "slower_than_peer": slower,
    }
    if "score_knn" in combined:
        result["knn_to_roofline"] = combined["score_knn"] * rates[0] / products("knn", sizes)[0]
    if shared:
        import pytorch_ood

        result["peer_version"] = pytorch_ood.__version__
    print(report(result, lines))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
