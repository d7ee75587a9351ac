import os
import pickle
import zipfile

import numpy as np
import pytest
from fiood_dataset_cood_pool import PICKLE, CoodPool, read_metadata, unrelated
from PIL import Image

from fiood_core import wordnet
from fiood_core.errors import DataError, ParameterError
from fiood_core.imagenet import wnids
from fiood_core.testing import check_dataset

CLASSES = ("n07751451", "n03558404")
"""Plum and ice skate, which are no relatives of ImageNet-1k's classes."""


def have_wordnet():
    try:
        wordnet.load()
    except DataError:
        return False
    return True


needs_wordnet = pytest.mark.skipif(not have_wordnet(), reason="WordNet 3.0 is not installed")


@pytest.fixture
def root(tmp_path):
    for wnid in CLASSES:
        folder = tmp_path / "pictures" / wnid
        folder.mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (8, 8), (number * 60, 0, 0)).save(folder / f"{wnid}_{number}.JPEG")
    return tmp_path / "pictures"


def metadata(**changes):
    files = [f"/data/authors/fall11_whole/{wnid}/{wnid}_{number}.JPEG" for wnid in CLASSES for number in range(4)]
    return {
        "image_files": files,
        "labels": np.repeat([0, 1], 4),
        "class_names": np.array(CLASSES),
        "train_idx": np.array([0, 1, 2, 4, 5, 6]),
        "val_idx": [3, 7],
        "dataset_base_folder": "/data/authors",
        **changes,
    }


def packed(tmp_path, data):
    path = tmp_path / "datasets_metadata_v4.zip"
    with zipfile.ZipFile(path, "w") as bundle:
        bundle.writestr(f"paper/{PICKLE}", pickle.dumps(data))
    return path


def test_it_conforms(root, tmp_path):
    check_dataset(CoodPool(root, metadata=packed(tmp_path, metadata())))


def test_the_papers_division_is_kept_and_paths_are_cut_at_its_folder(root, tmp_path):
    view = CoodPool(root, metadata=packed(tmp_path, metadata())).view()
    assert view.ids[0] == "n07751451/n07751451_0.JPEG"
    assert [concept.wnid for concept in view.concepts] == [CLASSES[0]] * 4 + [CLASSES[1]] * 4
    assert view.subsets == {"estimation": [0, 1, 2, 4, 5, 6], "test": [3, 7]}


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("data", [Harmful(), metadata(image_files=[Harmful()])])
def test_a_pickle_that_names_anything_but_data_is_refused_and_does_nothing(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"system, which is no data"):
        read_metadata(packed(tmp_path, data))
    assert not (tmp_path / "harmed").exists()


def test_a_path_that_leaves_the_folder_is_refused(root, tmp_path):
    files = metadata()["image_files"]
    files[0] = "/data/authors/fall11_whole/../../secret.JPEG"
    (problem,) = CoodPool(root, metadata=packed(tmp_path, metadata(image_files=files))).missing()
    assert "no path below fall11_whole/" in problem


@pytest.mark.parametrize("key", ["image_files", "labels", "train_idx", "val_idx", "class_names"])
def test_a_missing_key_is_named(tmp_path, key):
    data = metadata()
    del data[key]
    with pytest.raises(DataError, match=f"lacks {key}"):
        read_metadata(packed(tmp_path, data))


def test_something_else_is_refused(tmp_path):
    path = tmp_path / "metadata.pkl"
    path.write_bytes(b"not a pickle")
    with pytest.raises(DataError, match="is not COOD's metadata"):
        read_metadata(path)
    with pytest.raises(DataError, match=r"there is no .*; get datasets_metadata"):
        read_metadata(tmp_path / "absent.zip")


@needs_wordnet
def test_listed_classes_that_are_related_are_left_out_with_the_reason(root, tmp_path):
    listed = tmp_path / "classes.txt"
    listed.write_text("n07751451 plum\nn03558404\nn01440764\nn02084071\n")
    pool = CoodPool(root, classes=listed, per_class=3)
    view = pool.view()
    assert {concept.wnid for concept in view.concepts} == set(CLASSES)
    assert len(view) == 6
    assert pool.left_out["n01440764"].startswith("same of n01440764")
    assert pool.left_out["n02084071"].startswith("hypernym of n0")  # dog


@needs_wordnet
def test_every_class_of_imagenet_is_related_to_itself():
    kept, reasons = unrelated(wnids()[:5])
    assert kept == []
    assert all(reason.startswith("same") for reason in reasons.values())


@needs_wordnet
def test_a_class_without_pictures_is_refused_by_name(root, tmp_path):
    listed = tmp_path / "classes.txt"
    listed.write_text("\n".join(CLASSES))
    for picture in (root / CLASSES[1]).iterdir():
        picture.unlink()
    (problem,) = CoodPool(root, classes=listed).missing()
    assert f"class {CLASSES[1]}" in problem


def test_it_takes_either_metadata_or_classes():
    with pytest.raises(ParameterError, match="either metadata="):
        CoodPool()
