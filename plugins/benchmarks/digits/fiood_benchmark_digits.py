"""The digits benchmark: a complete OOD evaluation from pictures that come with Python packages."""

from __future__ import annotations

from collections.abc import Mapping

from fiood_dataset_digits import Digits, Noise, PhotoPatches, UnseenDigits

from fiood_core import Benchmark, OODSet


class DigitsBenchmark(Benchmark):
    """ID: handwritten digits 0 to 5.  Near: digits 6 to 9.  Far: patches of photos, and noise."""

    @property
    def id_test(self) -> Digits:
        return Digits("test")

    @property
    def id_train(self) -> Digits:
        return Digits("train")

    @property
    def ood(self) -> Mapping[str, OODSet]:
        return {
            "digits-6-9": OODSet(UnseenDigits("test"), "near"),
            "photo-patches": OODSet(PhotoPatches(), "far"),
            "noise": OODSet(Noise(), "far"),
        }
