"""Zero-shot scores of 50,000 images against 1,000 names and 24,600 negative labels: time over the GEMM's, and memory.

    python benchmarks/speed/vlm.py [--images N] [--width D ...]

For each width the products of images with all names and labels are timed alone, in tiles of the best of a few shapes
(the roofline), then all scores together, read through a memory map as a run reads them.  What a score may cost is 1.5
times the roofline.  The error of the float32 exponentials is measured against float64 on some images.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import fiood_core as fiood
from fiood_core.scoring import fit_all, score_fitted

NAMES, LABELS, TEMPERATURE = 1_000, 24_600, 0.01
DETECTORS = ("mcm", "max-logit", "energy", "gen", "entropy", "margin", "neglabel", "eoe")
TILES = ((4096, 1024), (4096, 4096), (1024, 1024), (2048, 2048))
WRITTEN = 8192


def main() -> None:
    """Print what each width takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--width", type=int, nargs="+", default=[512, 1024])
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {given.images} × ({NAMES} + {LABELS})")
    for width in given.width:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder) / "features.npy", given.images, width)


def measure(place: Path, images: int, width: int) -> None:
    """Time the roofline and the scores at one width, in turn, and print what came out."""
    generator = torch.Generator().manual_seed(0)
    write_features(place, images, width, generator)
    names, labels = (unit(n, width, generator) for n in (NAMES, LABELS))
    head, negatives = (fiood.Head(weight, temperature=TEMPERATURE) for weight in (names, labels))
    given = fiood.FeatureSet(features=np.load(place, mmap_mode="r"), head=head, negatives=negatives)
    detectors = {name: fiood.detector(name) for name in DETECTORS}
    fit_all(detectors, fiood.FeatureSet(features=unit(1, width, generator), head=head))
    score_fitted(detectors, fiood.FeatureSet(features=unit(64, width, generator), head=head, negatives=negatives))
    both = torch.cat([names, labels])
    before = peak_bytes()
    one = {"neglabel": detectors["neglabel"]}
    works = {
        **{tile: partial(products, place, both, tile) for tile in TILES},
        "neglabel": partial(score_fitted, one, given),
        f"all {len(detectors)}": partial(score_fitted, detectors, given),
    }
    times = timed(works)
    grown = (peak_bytes() - before) / 2**20
    wall, cpu = (min(times[tile][i] for tile in TILES) for i in (0, 1))
    rate = 2 * images * width * (NAMES + LABELS) / wall / 1e9
    print(f"D = {width}: products {wall:.2f} s, {rate:.0f} GFLOP/s")
    for name in works:
        if isinstance(name, str):
            own = times[name]
            print(
                f"  {name}: {own[0]:.2f} s, {own[0] / wall:.2f} × by the clock, {own[1] / cpu:.2f} × of processor time"
            )
    print(f"  memory grew by {grown:.0f} MiB; log-odds are off by at most {error(given, negatives):.1e}")


def unit(n: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Random unit rows (n, D) float32."""
    return F.normalize(torch.randn(n, width, generator=generator), dim=1)


def write_features(place: Path, images: int, width: int, generator: torch.Generator) -> None:
    """Unit features on disk, written in pieces."""
    features = np.lib.format.open_memmap(place, mode="w+", dtype=np.float32, shape=(images, width))
    for start in range(0, images, WRITTEN):
        rows = min(WRITTEN, images - start)
        features[start : start + rows] = unit(rows, width, generator).numpy()
    features.flush()


def timed(works: Mapping[Any, Callable[[], object]]) -> dict[Any, tuple[float, float]]:
    """The best of three rounds of each, by the clock and in processor time; on a busy machine only the latter tells."""
    best = dict.fromkeys(works, (float("inf"), float("inf")))
    for _ in range(3):
        for name, work in works.items():
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            best[name] = min(best[name][0], time.perf_counter() - wall), min(best[name][1], time.process_time() - cpu)
    return best


def products(place: Path, weight: torch.Tensor, tile: tuple[int, int]) -> None:
    """The products alone, tile by tile into one buffer that is never read."""
    features = np.load(place, mmap_mode="r")
    rows, columns = tile
    buffer = torch.empty(rows * columns)
    for start in range(0, len(features), rows):
        block = torch.from_numpy(np.array(features[start : start + rows]))
        for at in range(0, len(weight), columns):
            part = weight[at : at + columns]
            torch.mm(block, part.T, out=buffer[: len(block) * len(part)].view(len(block), len(part)))


def peak_bytes() -> int:
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def error(given: fiood.FeatureSet, negatives: fiood.Head) -> float:
    """Largest difference of NegLabel's log-odds from float64's, on some images."""
    few = fiood.FeatureSet(features=given.features[:256], head=given.head, negatives=negatives)
    single, double = (
        fiood.detector("neglabel", form="log-odds", precision=precision).score(few)
        for precision in ("float32", "float64")
    )
    return float(np.abs(single - double).max())


if __name__ == "__main__":
    main()
