"""Every list that defines a dataset is held to its digest, and every dataset to what a record of it must say."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

import fiood_core as fiood
from fiood_core import registry
from fiood_core.download import file_digest
from fiood_core.errors import DataError
from fiood_core.shelved import ShelvedDataset

CLASSES = {name: registry.load("dataset", name) for name in registry.names("datasets")}
SHELVED = [name for name, cls in CLASSES.items() if isinstance(cls, type) and issubclass(cls, ShelvedDataset)]
DEFINED_BY = [(n, remote.name) for n in SHELVED for remote in CLASSES[n].list_files if remote.digest]
OF_THE_PAPERS = {
    "imagenet-1k", "imagenet-1k-train", "imagenet-1k-id", "fi-imagenet-1k", "reimagenet", "inaturalist", "openimage-o",
    "360openset", "360openset-all", "cood", "imagenet-o", "textures", "textures-5160", "places", "sun", "ssb-easy",
    "ssb-hard", "species", "in1k-ood", "ninco", "clean-ood", "ninco-unit-tests", "imagenet-ood", "imagenet-v2",
    "imagenet-r", "imagenet-c", "imagenet-es",
}  # fmt: skip


def test_every_set_of_the_papers_is_registered():
    assert set(SHELVED) >= OF_THE_PAPERS


@pytest.mark.parametrize("name", SHELVED)
def test_a_dataset_says_what_it_is(name):
    dataset = fiood.dataset(name)
    info = dataset.info
    assert info.title
    assert info.summary
    assert info.licence
    assert info.home.startswith("https://")
    assert info.expected_count
    assert "arXiv" in info.citation or "," in info.citation
    for remote in (*dataset.list_files, dataset.archive):
        assert remote.urls or remote.instructions, f"{remote.name} has neither an address nor instructions"
        if remote.digest:
            assert info.digests[remote.name] == remote.digest.removeprefix("sha256:")


def test_the_datasets_are_loaded_without_torch():
    program = (
        "import sys, fiood_core as f; from fiood_core import registry as r; "
        "[r.load_component(c) for c in r.components('dataset')]; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.shared
@pytest.mark.parametrize(("name", "file"), DEFINED_BY)
def test_the_list_has_its_digest_and_a_changed_line_is_refused(name, file, lists, tmp_path):
    dataset = fiood.dataset(name, lists=tmp_path)
    for remote in dataset.list_files:
        if (lists / remote.name).exists():
            (tmp_path / remote.name).parent.mkdir(exist_ok=True)
            shutil.copy(lists / remote.name, tmp_path / remote.name)
    assert f"sha256:{fiood.dataset(name).info.digests[file]}" == file_digest(tmp_path / file)
    lines = (tmp_path / file).read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = lines[len(lines) // 2].replace(b"1", b"2") + b" "
    (tmp_path / file).chmod(0o644)
    (tmp_path / file).write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=f"{file}.* is altered.* remove it"):
        dataset.list_paths()
    assert any("altered" in line for line in dataset.missing())
