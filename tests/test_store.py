"""The feature store: what is stored comes back, mapped and checked; what is damaged is noticed."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from fiood_core import sealed
from fiood_core import store as store_module
from fiood_core.cli.store import command
from fiood_core.errors import StoreError
from fiood_core.features import BLOCK_ROWS, FeatureSet
from fiood_core.head import Head
from fiood_core.images import ImagePolicy
from fiood_core.store import SHARD_ROWS, FeatureStore, Pictures, Segment, Shelf, Skip

KEY = "a" * 64


@pytest.fixture(autouse=True)
def _check_files_anew() -> Iterator[None]:
    sealed.forget()
    yield
    sealed.forget()


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(store_module, "SHARD_ROWS", 8)
    return 8


def pictures(first: int, last: int, stamp: str = "1") -> Pictures:
    return Pictures([f"p{i}" for i in range(first, last)], [stamp] * (last - first))


def values_of(numbers: range, width: int = 3) -> np.ndarray:
    return np.array([[i * 10 + d for d in range(width)] for i in numbers], dtype=np.float32)


def shelf_of(root: Path, source: str = "source") -> Shelf:
    return FeatureStore(root).shelf(KEY, source, ImagePolicy(), 4)


def fill(shelf: Shelf, first: int, last: int, column: str = "features", shards: int | None = None) -> Segment:
    """Store the values of pictures ``first`` to ``last``, all shards or the first few."""
    shelf.put_about()
    segment = shelf.segment(pictures(first, last).hashes)
    with segment.writing(lambda: None):
        for shard in range(segment.shards if shards is None else shards):
            span = segment.span(shard)
            segment.write_shard(column, shard, values_of(range(first + span.start, first + span.stop)), [])
        if shards is None:
            segment.finish(column)
    return segment


def read(shelf: Shelf, wanted: Pictures, column: str = "features") -> torch.Tensor:
    located = shelf.locate(column, wanted)
    assert not len(located.missing)
    rows = located.rows(np.arange(len(wanted.hashes)))
    return rows[0 : len(rows)]


def files(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_shard_is_whole_blocks_so_that_a_block_is_one_map() -> None:
    assert SHARD_ROWS % BLOCK_ROWS == 0


def test_a_view_in_the_segments_order_comes_back(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 20)
    assert np.array_equal(read(shelf, pictures(0, 20)).numpy(), values_of(range(20)))


def test_a_view_gathers_rows_from_several_segments_in_its_own_order(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 20)
    fill(shelf, 20, 50)
    order = np.random.default_rng(0).permutation(50)
    wanted = Pictures([f"p{i}" for i in order], ["1"] * 50)
    located = shelf.locate("features", wanted)
    rows = located.rows(np.arange(50))
    assert rows.shape == (50, 3)
    assert rows[50:50].shape == (0, 3)
    for start, stop in ((0, 50), (7, 19), (13, 14)):
        assert np.array_equal(rows[start:stop].numpy(), values_of(order[start:stop]))


def test_a_picture_with_a_new_stamp_is_missing(tmp_path: Path) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 5)
    assert shelf.locate("features", pictures(0, 5, stamp="2")).missing.tolist() == [0, 1, 2, 3, 4]
    assert shelf.locate("features", pictures(3, 8)).missing.tolist() == [2, 3, 4]


@pytest.mark.parametrize("other", ["source", "policy", "backbone"])
def test_features_are_kept_apart_by_backbone_source_and_policy(other: str, tmp_path: Path) -> None:
    fill(shelf_of(tmp_path), 0, 5)
    key, source, policy = KEY, "source", ImagePolicy()
    key = "b" * 64 if other == "backbone" else key
    source = "another" if other == "source" else source
    policy = ImagePolicy(max_pixels=9) if other == "policy" else policy
    shelf = FeatureStore(tmp_path).shelf(key, source, policy, 4)
    assert len(shelf.locate("features", pictures(0, 5)).missing) == 5


def test_a_column_is_added_without_touching_the_others(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 20)
    before = files(tmp_path)
    fill(shelf, 0, 20, column="odin[temperature=2.0]")
    after = files(tmp_path)
    assert before.items() <= after.items()
    assert len({Path(p).parts[2] for p in after if p.count("/") > 2}) == 1  # the same segment
    assert np.array_equal(read(shelf, pictures(0, 20), "odin[temperature=2.0]").numpy(), values_of(range(20)))


def test_an_unfinished_segment_is_resumed_and_not_read(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    segment = fill(shelf, 0, 20, shards=2)
    assert len(shelf.locate("features", pictures(0, 20)).missing) == 20
    assert segment.checked("features") == [0, 1]


def test_finished_shards_of_an_abandoned_segment_serve_another_list(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 20, shards=2)
    located = shelf.locate("features", pictures(0, 24))  # a picture was added, so the list is another
    assert located.missing.tolist() == list(range(16, 24))
    assert np.array_equal(located.rows(np.arange(16))[0:16].numpy(), values_of(range(16)))


def test_left_out_pictures_are_remembered_with_their_reason(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    segment = shelf.segment(pictures(0, 10).hashes)
    first, second = values_of(range(8)), values_of(range(8, 10))
    first[3] = np.nan
    with segment.writing(lambda: None):
        segment.write_shard("features", 0, first, [Skip(3, "p3", "is truncated")])
        segment.write_shard("features", 1, second[:, :0], [Skip(8, "p8", "is empty"), Skip(9, "p9", "is empty")])
        segment.finish("features")
    located = shelf.locate("features", pictures(2, 10))
    assert {at: skip.reason for at, skip in located.skips().items()} == {
        1: "is truncated",
        6: "is empty",
        7: "is empty",
    }
    kept = np.array([0, 2, 3, 4, 5])
    assert np.array_equal(located.rows(kept)[0:5].numpy(), values_of(range(10))[[2, 4, 5, 6, 7]])


def test_a_feature_set_over_the_store_gives_its_blocks(tmp_path: Path, small_shards: int) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 20)
    located = shelf.locate("features", pictures(0, 20))
    features = FeatureSet(features=located.rows(np.arange(20)), head=Head(np.ones((2, 3))))
    got = torch.cat([block.features for block in features.blocks(rows=8)])
    assert np.array_equal(got.numpy(), values_of(range(20)))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_slice_of_a_shard_is_the_file_itself_in_memory(tmp_path: Path) -> None:
    segment = fill(shelf_of(tmp_path), 0, 100)
    rows = shelf_of(tmp_path).locate("features", pictures(0, 100)).rows(np.arange(100))
    part = rows[10:90]
    where = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    ranges = [tuple(int(end, 16) for end in line[0].split("-")) for line in where]
    assert any(low <= part.data_ptr() and part.data_ptr() + part.nbytes <= high for low, high in ranges)
    del part
    shard = str(tmp_path / segment.shard_place("features", 0))
    assert shard not in Path("/proc/self/maps").read_text()  # let go after use


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs /proc")
def test_reading_a_large_column_takes_no_anonymous_memory(tmp_path: Path) -> None:
    shelf = shelf_of(tmp_path)
    n = 4 * SHARD_ROWS
    segment = shelf.segment(pictures(0, n).hashes)
    with segment.writing(lambda: None):
        for shard in range(4):
            segment.write_shard("features", shard, np.full((SHARD_ROWS, 1024), shard, dtype=np.float32), [])
        segment.finish("features")
    sealed.forget()
    rows = shelf.locate("features", pictures(0, n)).rows(np.arange(n))
    held, before = [], anonymous()
    for start in range(0, n, BLOCK_ROWS):
        held.append(rows[start : start + BLOCK_ROWS])
        assert float(held[-1][5, 7]) == start // SHARD_ROWS
    assert sum(part.nbytes for part in held) == 64 * 2**20
    assert anonymous() - before < 8 * 2**20


def anonymous() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anonymous:"))


def test_what_is_written_to_a_map_reaches_neither_the_file_nor_the_next_reader(tmp_path: Path) -> None:
    shelf = shelf_of(tmp_path)
    fill(shelf, 0, 5)
    before = files(tmp_path)
    read(shelf, pictures(0, 5)).zero_()
    assert np.array_equal(read(shelf, pictures(0, 5)).numpy(), values_of(range(5)))
    assert files(tmp_path) == before


def test_hundreds_of_thousands_of_pictures_are_found_without_a_loop_over_them(tmp_path: Path) -> None:
    n = 300_000
    wanted = pictures(0, n)
    segment = Segment(tmp_path, "s", wanted.hashes, 64)
    order = np.random.default_rng(0).permutation(n)
    assert np.array_equal(segment.find(wanted.hashes[order]), order)
    assert (segment.find(pictures(n, n + 1000).hashes) == store_module.MISSING).all()


# -- files ---------------------------------------------------------------------------------------------------------


def test_files_are_plain_safetensors_and_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    tensors = {
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "bits": torch.tensor([True, False, True]),
        "wide": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
        "none": torch.zeros(0, 4),
        "one": torch.tensor(7),
    }
    for name in ("a", "b"):
        sealed.write(tmp_path / name, "x/file.safetensors", tensors, {"note": "ä"})
    assert files(tmp_path / "a") == files(tmp_path / "b")
    opened = sealed.read(tmp_path / "a", "x/file.safetensors")
    foreign = load_file(tmp_path / "a" / "x/file.safetensors")
    for name, tensor in tensors.items():
        for got in (opened.tensor(name), foreign[name]):
            assert got.dtype == tensor.dtype
            assert torch.equal(got, tensor)


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


META = {"sha256": "0" * 64, "place": "x.safetensors"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\xff" * 7 + b"\x7f" + b"{}",
        struct.pack("<Q", 2**40) + b"{}",
        safetensors_bytes(b"[1, 2]"),
        safetensors_bytes(b"not json"),
        safetensors_bytes(b"[" * 100_000),
        safetensors_bytes({"__metadata__": {"sha256": 3}}),
        safetensors_bytes({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors_bytes(
            {"__metadata__": META, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)
        ),
        safetensors_bytes(
            {"__metadata__": META, "a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}, bytes(4)
        ),
        safetensors_bytes({"__metadata__": META, "a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        safetensors_bytes(
            {"__metadata__": META, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, bytes(8)
        ),
        safetensors_bytes(
            {
                "__metadata__": META,
                "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            },
            bytes(4),
        ),
        safetensors_bytes(b'{"__metadata__": {"sha256": ""}, "a": 1, "a": 2}'),
    ],
)
def test_a_hostile_header_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(StoreError, match=r"x\.safetensors.*fiood store"):
        sealed.read(tmp_path, "x.safetensors")


def test_no_key_leads_out_of_the_store(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path / "store")
    store.put_backbone("../../outside", "evil", Head(np.ones((2, 3))))
    store.statistics("../x", "../../y").put("../z", {"a": torch.ones(2)})
    assert {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")} == {"store"}


# -- damage --------------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def zero_the_tail(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def swap_with_next(path: Path) -> None:
    other = path.with_name("00001.safetensors")
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def swap_with_other_column(path: Path) -> None:
    other = next(p for p in path.parent.parent.glob("*/00000.safetensors") if p != path)
    path.write_bytes(other.read_bytes())


def delete(path: Path) -> None:
    path.unlink()


DAMAGES = [truncate, fill_with_zeros, zero_the_tail, flip_a_bit, swap_with_next, swap_with_other_column, delete]


@pytest.mark.parametrize("spoil", DAMAGES)
def test_a_damaged_shard_is_noticed_by_readers_and_by_verify(
    spoil: Callable[[Path], None], tmp_path: Path, small_shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path))
    root = tmp_path / "store"
    shelf = shelf_of(root)
    segment = fill(shelf, 0, 24)
    fill(shelf, 0, 24, column="other")
    assert CliRunner().invoke(command, ["verify"]).exit_code == 0
    path = root / segment.shard_place("features", 0)
    spoil(path)
    with pytest.raises(StoreError, match=r"00000\.safetensors.*fiood store (verify|remove)"):
        read(shelf_of(root), pictures(0, 24))
    result = CliRunner().invoke(command, ["verify"])
    assert result.exit_code == 1
    assert str(path) in result.output
    removed = CliRunner().invoke(command, ["remove", "--damaged", "--yes"])
    assert removed.exit_code == 0, removed.output
    assert CliRunner().invoke(command, ["verify"]).exit_code == 0
    assert 0 not in segment.checked("features")  # the next run makes it again
    assert len(shelf_of(root).locate("features", pictures(0, 24)).missing) == 24


@pytest.mark.parametrize("spoil", [truncate, fill_with_zeros, flip_a_bit])
def test_a_damaged_shard_of_an_interrupted_segment_is_noticed(
    spoil: Callable[[Path], None], tmp_path: Path, small_shards: int
) -> None:
    segment = fill(shelf_of(tmp_path), 0, 24, shards=2)
    spoil(tmp_path / segment.shard_place("features", 1))
    with pytest.raises(StoreError, match=r"00001\.safetensors"):
        segment.checked("features")


def test_a_shard_damaged_after_it_was_read_is_noticed_on_the_next_read(tmp_path: Path) -> None:
    shelf = shelf_of(tmp_path)
    segment = fill(shelf, 0, 8)
    rows = shelf.locate("features", pictures(0, 8)).rows(np.arange(8))
    rows[0:8]
    flip_a_bit(tmp_path / segment.shard_place("features", 0))
    with pytest.raises(StoreError, match="altered"):
        rows[0:8]


@pytest.mark.parametrize("name", ["features.json", "rows.safetensors"])
def test_a_damaged_manifest_or_list_is_noticed(name: str, tmp_path: Path) -> None:
    segment = fill(shelf_of(tmp_path), 0, 8)
    path = tmp_path / segment.place / name
    path.write_bytes(path.read_bytes().replace(b"8", b"9") if name.endswith("json") else path.read_bytes()[:-1] + b"!")
    sealed.forget()
    with pytest.raises(StoreError, match=name):
        read(shelf_of(tmp_path), pictures(0, 8))


def test_a_damaged_head_or_statistic_is_noticed(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    store.put_backbone(KEY, "net", Head(np.ones((2, 3)), np.zeros(2)))
    cache = store.statistics(KEY, "b" * 64)
    cache.put("mean", {"mean": torch.ones(3)})
    for path in tmp_path.rglob("*.safetensors"):
        flip_a_bit(path)
    with pytest.raises(StoreError, match=r"head\.safetensors"):
        store.head(KEY)
    with pytest.raises(StoreError, match="altered"):
        cache.get("mean")


# -- heads and statistics ------------------------------------------------------------------------------------------


def test_a_head_comes_back_with_temperature_and_classes(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    head = Head(torch.randn(2, 3), None, temperature=0.01, classes=[(0, 2), (1,)])
    store.put_backbone(KEY, "net", head)
    found = FeatureStore(tmp_path).head(KEY)
    assert found is not None
    assert found.digest == head.digest
    assert FeatureStore(tmp_path).head("c" * 64) is None


def test_another_head_under_the_same_key_is_refused(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    store.put_backbone(KEY, "net", Head(np.ones((2, 3))))
    with pytest.raises(StoreError, match="weights_digest must change"):
        store.put_backbone(KEY, "net", Head(np.zeros((2, 3))))


def test_statistics_come_back_by_backbone_content_and_key(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    store.statistics(KEY, "b" * 64).put("moments[unit]", {"n": torch.tensor(4), "mean": torch.arange(3.0)})
    found = store.statistics(KEY, "b" * 64).get("moments[unit]")
    assert found is not None
    assert int(found["n"]) == 4
    assert found["mean"].tolist() == [0, 1, 2]
    assert store.statistics(KEY, "b" * 64).get("moments") is None
    assert store.statistics(KEY, "c" * 64).get("moments[unit]") is None
    assert store.statistics("c" * 64, "b" * 64).get("moments[unit]") is None


# -- writers -------------------------------------------------------------------------------------------------------


def test_temporary_files_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = os.uname().nodename
    stale = tmp_path / f".a.json~{host}~{dead.pid}~00000000.tmp"
    mine = tmp_path / f".a.json~{host}~{os.getpid()}~00000000.tmp"
    elsewhere = tmp_path / f".a.json~another-host~{dead.pid}~00000000.tmp"
    old = tmp_path / ".a.json~another-host~1~00000000.tmp"
    foreign = tmp_path / "notes.tmp"
    for path in (stale, mine, elsewhere, old, foreign):
        path.touch()
    os.utime(old, (0, 0))
    sealed.sweep(tmp_path)
    assert set(tmp_path.iterdir()) == {mine, elsewhere, foreign}
    sealed.sweep(tmp_path, locked=True)
    assert set(tmp_path.iterdir()) == {foreign}


@pytest.mark.skipif(os.name != "posix", reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_second_writer_waits_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    segment = shelf_of(tmp_path).segment(pictures(0, 4).hashes)
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        with segment.writing(lambda: None):
            os.write(done, b"x")
            signal.pause()
    os.read(ready, 1)
    waited = []

    def waiting() -> None:
        waited.append(True)
        os.kill(child, signal.SIGKILL)

    with segment.writing(waiting):
        assert waited == [True]
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(ready)
    os.close(done)


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_shards: int) -> Path:
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path))
    root = tmp_path / "store"
    FeatureStore(root).put_backbone(KEY, "ResNet-50", Head(np.ones((2, 3))))
    fill(shelf_of(root, "folder:birds"), 0, 10)
    fill(shelf_of(root, "folder:birds"), 0, 10, column="odin")
    fill(shelf_of(root, "folder:cats"), 0, 20, shards=1)
    return root


def test_list_shows_backbone_source_pictures_columns_and_state(filled: Path) -> None:
    output = CliRunner().invoke(command, ["list"]).output
    birds = next(line for line in output.splitlines() if "folder:birds" in line)
    cats = next(line for line in output.splitlines() if "folder:cats" in line)
    assert "ResNet-50" in birds
    assert "features" in birds
    assert "odin" in birds
    assert " 10 " in birds
    assert birds.endswith("complete")
    assert cats.endswith("incomplete: features 1/3 shards")
    assert "2 segments" in output


def test_another_store_can_be_looked_at(filled: Path, tmp_path: Path) -> None:
    assert "0 segments" in CliRunner().invoke(command, ["--store", str(tmp_path / "other"), "list"]).output
    assert "2 segments" in CliRunner().invoke(command, ["--store", str(filled), "list"]).output


def test_remove_takes_a_key_or_all_that_is_incomplete_and_asks(filled: Path) -> None:
    run = CliRunner().invoke
    assert run(command, ["remove"]).exit_code == 2
    assert run(command, ["remove", "--incomplete"], input="n\n").exit_code == 1
    assert "folder:cats" in run(command, ["list"]).output
    assert run(command, ["remove", "--incomplete", "--yes"]).exit_code == 0
    assert "folder:cats" not in run(command, ["list"]).output
    assert run(command, ["remove", KEY[:8], "--yes"]).exit_code == 0
    assert list(filled.iterdir()) == []  # the head went with the last segment


def test_remove_refuses_a_key_that_names_nothing_or_too_much(filled: Path) -> None:
    for key in ("ffffffff", "a"):
        result = CliRunner().invoke(command, ["remove", key, "--yes"])
        assert isinstance(result.exception, StoreError)
    assert "2 segments" in CliRunner().invoke(command, ["list"]).output


def test_a_segment_that_is_being_written_is_not_removed(filled: Path) -> None:
    segment = shelf_of(filled, "folder:cats").segment(pictures(0, 20).hashes)
    with segment.writing(lambda: None):
        result = CliRunner().invoke(command, ["remove", "--incomplete", "--yes"])
    assert isinstance(result.exception, StoreError)
    assert segment.begun


def test_list_and_verify_survive_damage_everywhere(filled: Path) -> None:
    for path in [p for p in filled.rglob("*") if p.is_file()]:
        path.write_bytes(b"{}")
    sealed.forget()
    listing = CliRunner().invoke(command, ["list"])
    assert listing.exit_code == 0, listing.exception
    assert "(damaged)" in listing.output
    assert CliRunner().invoke(command, ["verify"]).exit_code == 1
    assert CliRunner().invoke(command, ["remove", "--damaged", "--yes"]).exit_code == 0
    assert CliRunner().invoke(command, ["verify"]).exit_code == 0


def test_the_command_imports_no_torch(filled: Path) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from fiood_core.cli.store import command\n"
        "for words in (['list'], ['verify'], ['remove', '--incomplete', '--yes']):\n"
        "    result = CliRunner().invoke(command, words)\n"
        "    assert result.exit_code == 0, result.output\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
