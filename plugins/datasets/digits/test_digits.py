import hashlib

import fiood_dataset_digits as digits
import numpy as np
import pytest
from fiood_dataset_digits import Digits, Noise, PhotoPatches, UnseenDigits
from sklearn.datasets import load_digits

from fiood_core import Concept
from fiood_core.errors import DataError, ParameterError
from fiood_core.images import ImagePolicy, decode
from fiood_core.testing import check_dataset

ALL = [Digits(), Digits("train"), UnseenDigits(), UnseenDigits("train"), PhotoPatches(), Noise()]


@pytest.mark.parametrize("dataset", ALL)
def test_conformance(dataset):
    check_dataset(dataset)


def test_the_digits_are_scikit_learn_s():
    loaded = load_digits()
    pictures, labels = digits.digit_pictures()
    np.testing.assert_array_equal(labels, loaded.target)
    np.testing.assert_array_equal(np.rint(pictures / (255 / 16)), loaded.images)


def test_halves_are_disjoint_and_together_all_pictures():
    rows = {
        (kind.__name__, split): {i.rpartition("/")[2] for i in kind(split).view().ids}
        for kind in (Digits, UnseenDigits)
        for split in ("train", "test")
    }
    assert {key: len(value) for key, value in rows.items()} == {
        ("Digits", "train"): 540,
        ("Digits", "test"): 543,
        ("UnseenDigits", "train"): 356,
        ("UnseenDigits", "test"): 358,
    }
    assert len(set.union(*rows.values())) == 1797
    with pytest.raises(ParameterError, match="'valid'"):
        Digits("valid")


def test_targets_are_the_digits_and_unseen_digits_are_concepts():
    view = Digits().view()
    assert [int(i[0]) for i in view.ids] == [target for (target,) in view.targets]
    assert set(view.targets) == {(c,) for c in range(6)}
    unseen = UnseenDigits().view()
    assert unseen.targets is None
    assert set(unseen.concepts) == {Concept(name) for name in ("six", "seven", "eight", "nine")}
    assert unseen.source == view.source


def test_patches_and_noise_name_photo_and_kind():
    patches, noise = PhotoPatches().view(), Noise().view()
    assert (len(patches), len({c.name for c in patches.concepts})) == (520, 13)
    assert (len(noise), len({c.name for c in noise.concepts})) == (490, 7)
    assert patches.targets is noise.targets is None


def content(dataset):
    sha = hashlib.sha256()
    for image_id in dataset.view().ids:
        sha.update(np.asarray(decode(dataset.open(image_id), ImagePolicy(), name=image_id)).tobytes())
    return sha.hexdigest()


def test_pictures_are_the_published_ones():
    """A change here changes what the sets are: raise their ``revision`` with it, or features in stores are stale."""
    assert content(Digits()).startswith("bc69f0ff656695de")
    assert content(UnseenDigits()).startswith("3e6b233e2847f007")
    assert content(Noise()).startswith("9c424c66b8b1bfb9")


def test_each_patch_lies_in_its_photo():
    dataset = PhotoPatches()
    patch = np.asarray(dataset.open("flower/03"))
    assert patch.shape == (32, 32, 3)
    windows = np.lib.stride_tricks.sliding_window_view(digits.photo("flower"), (32, 32, 3))[:, :, 0]
    assert (windows[:, :, 0, 0] == patch[0, 0]).all(axis=-1).any()
    assert len({dataset.open(i).tobytes() for i in dataset.view().ids}) > 500


def test_an_altered_or_missing_package_file_is_reported(tmp_path, monkeypatch):
    (tmp_path / "digits.csv.gz").write_bytes(b"x")
    digits.digit_pictures.cache_clear()
    monkeypatch.setattr(digits, "_locate", lambda name: tmp_path / name.rpartition("/")[2])
    try:
        assert "reinstall scikit-learn" in Digits().verify()[0]
        with pytest.raises(DataError, match="is not the file"):
            Digits().view()
        report = PhotoPatches().missing()
        assert len(report) == 13
        assert "pip install scikit-image" in report[0]
        assert "pip install scikit-learn" in report[4]
        assert list(PhotoPatches().verify()) == list(report)
    finally:
        digits.digit_pictures.cache_clear()
