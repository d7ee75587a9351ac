"""Made-up pictures for checks of what takes pictures."""

from __future__ import annotations

import numpy as np
from PIL import Image


def pictures(n: int = 9, seed: int = 0) -> list[Image.Image]:
    """RGB pictures of several sizes: gradients, noise, and one plain black one."""
    rng = np.random.default_rng(seed)
    made = [Image.new("RGB", (64, 48))]
    for i in range(1, n):
        height, width = int(rng.integers(40, 300)), int(rng.integers(40, 300))
        ramp = (
            np.linspace(0, 200, width)[None, :, None] * rng.uniform(0, 1, 3) + np.linspace(0, 55, height)[:, None, None]
        )
        noise = rng.normal(0, 10 * (i % 3), (height, width, 3))
        made.append(Image.fromarray(np.clip(ramp + noise, 0, 255).astype(np.uint8)))
    return made
