"""A streamed fit of training sets larger than memory: time over the head product's, growth with n, and memory.

    python benchmarks/speed/fit.py [--images N ...] [--dim D] [--classes C] [--json FILE]

Features lie on disk; each size is fitted by a process of its own, which maps its first rows and has labels and a head,
but no stored logits.  All detectors but k-NN, whose bank is a copy of the features, are fitted in one pass.  The unit
is the *head product*: the float32 product of the features with the head, block by block, timed in the same process.
Memory is anonymous memory beyond what importing torch takes, looked at every few milliseconds from outside (Linux).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

SIZES = (160_000, 320_000, 640_000, 1_280_000)
WRITTEN = 20_000
LOOKED_EVERY = 0.005
BOUND = 2e9


@dataclass
class Line:
    """Figures of one size, in seconds and bytes."""

    images: int
    product: float
    fit: float
    memory: int


def main() -> None:
    """Print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--place", type=Path, help="where the features are written, and removed again (a disk)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        fit(args.place, args.child)
        return
    with tempfile.TemporaryDirectory(dir=args.place) as folder:
        write(Path(folder), max(args.images), args.dim, args.classes)
        lines = [measure(Path(folder), images) for images in args.images]
    print(f"D = {args.dim}, C = {args.classes}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'images':>10} {'head product s':>15} {'fit s':>8} {'over it':>8} {'µs an image':>12} {'memory MB':>10}")
    for line in lines:
        print(
            f"{line.images:>10} {line.product:>15.2f} {line.fit:>8.1f} {line.fit / line.product:>8.1f} "
            f"{line.fit / line.images * 1e6:>12.1f} {line.memory / 1e6:>10.0f}"
        )
    if len(lines) > 1:
        power = np.polyfit(*(np.log([getattr(line, what) for line in lines]) for what in ("images", "fit")), 1)[0]
        print(f"time grows as images^{power:.2f}; memory stays {'within' if fits(lines) else 'NOT within'} 2 GB")
    if args.json:
        args.json.write_text(json.dumps([*map(asdict, lines)], indent=1))


def fits(lines: list[Line]) -> bool:
    """Whether no size takes more memory than is allowed."""
    return max(line.memory for line in lines) <= BOUND


def write(folder: Path, images: int, dim: int, classes: int) -> None:
    """Clusters of non-negative features, their labels, and a head that tells them apart."""
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(classes, dim, generator=generator)
    features = np.lib.format.open_memmap(folder / "features.npy", mode="w+", dtype=np.float32, shape=(images, dim))
    for start in range(0, images, WRITTEN):
        labels = torch.arange(start, min(start + WRITTEN, images)) % classes
        rows = (means[labels] + torch.randn(len(labels), dim, generator=generator)).relu_()
        features[start : start + len(rows)] = rows.numpy()
    features.flush()
    np.save(folder / "weight.npy", (means.relu() / dim**0.5).numpy())
    np.save(folder / "bias.npy", (torch.randn(classes, generator=generator) / 10).numpy())


def measure(folder: Path, images: int) -> Line:
    """Fit in a process of its own, and watch its memory from this one."""
    command = [sys.executable, __file__, "--place", str(folder), "--child", str(images)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # torch is imported
    before = peak = anonymous_bytes(process.pid)
    process.stdin.write("\n")
    process.stdin.flush()
    while process.poll() is None:
        peak = max(peak, anonymous_bytes(process.pid))
        time.sleep(LOOKED_EVERY)
    if process.returncode:
        raise SystemExit(f"the fit of {images} images ended with status {process.returncode}")
    return Line(images, *json.loads(process.stdout.read()), memory=peak - before)


def anonymous_bytes(pid: int) -> int:
    """Anonymous resident memory of a process; 0 where the system does not tell, or the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def fit(folder: Path, images: int) -> None:
    """The process that is watched: print the seconds of the head product and of the fit."""
    print("torch is imported", flush=True)
    sys.stdin.readline()
    from detectors import DETECTORS

    import fiood_core as fiood
    from fiood_core.scoring import fit_all

    features = np.load(folder / "features.npy", mmap_mode="r")[:images]
    weight, bias = (torch.from_numpy(np.load(folder / f"{what}.npy")) for what in ("weight", "bias"))
    labels = torch.arange(images) % len(weight)
    train = fiood.FeatureSet(features, labels, head=fiood.Head(weight, bias))
    detectors = [fiood.detector(name) for name in DETECTORS if name != "knn"]
    began = time.perf_counter()
    for block in train.blocks():
        _ = block.logits
    product = time.perf_counter() - began
    began = time.perf_counter()
    fit_all(detectors, train)
    print(json.dumps([product, time.perf_counter() - began]))


if __name__ == "__main__":
    main()
