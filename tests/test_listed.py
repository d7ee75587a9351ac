"""Datasets that a list defines: found in any layout, reported on in full, mended, adopted, never half-accepted."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fiood_core import Concept, Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, FirstOfEachClass, ListedDataset
from fiood_core.testing.listed import manifest, picture_file, stand_in
from fiood_core.testing.loopback import Served, mirror

IDS = ("set/a b/one's.jpg", "set/a b/two.png", "set/c/three.gif", "set/c/four.jpg")
LIST = "".join(f"{name}\n" for name in IDS).encode()


class Small(ListedDataset):
    """Four pictures under names with spaces and apostrophes."""

    name = "small"
    source = "small"
    info = Info(title="small", expected_count=4)
    list_files = (Remote("list.txt", ("http://127.0.0.1:1/",), digest=f"sha256:{hashlib.sha256(LIST).hexdigest()}"),)
    archive = Remote("small.tar.gz", ("http://127.0.0.1:1/",), kind="gzip")
    folder = "set"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        return [Entry(line, concept=Concept("x")) for line in lists["list.txt"].read_text().splitlines()]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def archive():
    return packed({f"top/{name}": picture_file(name) for name in IDS} | {"top/README": b"hello"})


def packed(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tape:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tape.addfile(info, io.BytesIO(content))
    return out.getvalue()


def served(server, **more) -> Small:
    dataset = Small()
    dataset.archive = Remote("small.tar.gz", (server("small.tar.gz"),), kind="gzip", **more)
    dataset.list_files = (Remote("list.txt", (server("list.txt"),), digest=Small.list_files[0].digest),)
    return dataset


@pytest.fixture
def copy(tmp_path):
    """A complete copy that the user has, and its list."""
    folder = tmp_path / "copy"
    for name in IDS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture_file(name))
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "list.txt").write_bytes(LIST)
    return folder


def kinds(findings) -> list[str]:
    return [finding.partition(":")[0] for finding in findings]


def test_a_set_is_fetched_extracted_and_checked(archive):
    with mirror({"small.tar.gz": archive, "list.txt": LIST}) as server:
        dataset = served(server)
        assert len(dataset.missing()) == 2
        dataset.prepare()
        assert list(dataset.view().ids) == list(IDS)
        assert dataset.view().canonical
        assert not dataset.verify()
        dataset.prepare()
        assert [name for name, _ in server.asked] == ["list.txt", "small.tar.gz"]
    assert dataset.open(IDS[0]).read_bytes() == picture_file(IDS[0])
    assert not list(dataset.root.parent.glob(".*.*"))


def test_every_finding_is_in_one_report(copy, tmp_path):
    dataset = Small(copy, tmp_path / "lists")
    dataset.prepare()
    (copy / IDS[0]).unlink()
    (copy / IDS[1]).write_bytes(b"")
    (copy / IDS[2]).write_bytes(picture_file(IDS[2])[:-1] + b"?")
    (copy / IDS[3]).rename(copy / "set" / "renamed.jpg")
    (copy / "set" / "new.jpg").write_bytes(b"new")
    (copy / "elsewhere.txt").write_bytes(b"outside the set's folder")
    assert sorted(Small(copy, tmp_path / "lists").verify()) == [
        f"altered: {IDS[2]} at {IDS[2]}",
        f"empty: {IDS[1]} at {IDS[1]}",
        "extra: set/new.jpg",
        f"misplaced: {IDS[3]} lies at set/renamed.jpg",
        f"missing: {IDS[0]}",
    ]
    with pytest.raises(DataError, match=r"small: 1 of 4 pictures are not under .*one's\.jpg"):
        Small(copy, tmp_path / "lists").view()


def test_a_picture_altered_to_the_same_size_is_told(copy, tmp_path):
    Small(copy, tmp_path / "lists").prepare()
    content = bytearray((copy / IDS[0]).read_bytes())
    content[-3] ^= 255
    (copy / IDS[0]).write_bytes(content)
    assert kinds(Small(copy, tmp_path / "lists").verify()) == ["altered"]


@pytest.mark.parametrize("top", ["", "images_largescale/data/", "x/"])
def test_any_top_folder_and_underscores_for_spaces_will_do(copy, tmp_path, top):
    for name in IDS:
        place = tmp_path / "other" / top / name.replace(" ", "_")
        place.parent.mkdir(parents=True, exist_ok=True)
        (copy / name).rename(place)
    dataset = Small(tmp_path / "other", tmp_path / "lists")
    assert not dataset.verify()
    assert dataset.open(IDS[0]) == tmp_path / "other" / top / IDS[0].replace(" ", "_")


def test_the_sets_own_folder_as_root_will_do(copy, tmp_path):
    assert not Small(copy / "set", tmp_path / "lists").verify()
    (copy / "set" / "new.jpg").touch()
    assert kinds(Small(copy / "set", tmp_path / "lists").verify()) == ["extra"]


def test_two_copies_under_one_root_are_ambiguous(copy, tmp_path):
    copy.rename(tmp_path / "one")
    for name in IDS:
        (tmp_path / "two" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "two" / name).write_bytes(b"other")
    dataset = Small(tmp_path, tmp_path / "lists")
    assert kinds(dataset.verify()) == ["ambiguous"] * 4
    with pytest.raises(DataError, match=r"several files .* could be 4 of its pictures.* give the folder of one copy"):
        dataset.view()


def test_links_that_lead_in_a_circle_end(copy, tmp_path):
    (copy / "set" / "c" / "circle").symlink_to(copy)
    (copy / IDS[0]).unlink()
    assert kinds(Small(copy, tmp_path / "lists").verify()) == ["missing"]


def test_adopting_links_to_a_complete_copy_and_refuses_another(copy, tmp_path, home):
    dataset = Small(lists=tmp_path / "lists")
    dataset.prepare(adopt=copy)
    assert dataset.root.is_symlink()
    assert dataset.root == home / "datasets" / "small" / "pictures"
    assert not dataset.verify()
    assert not Small(lists=tmp_path / "lists").missing()
    (copy / IDS[0]).unlink()
    with pytest.raises(DataError, match=r"complete the copy, or adopt another:\n  missing: set/a b/one's"):
        Small(lists=tmp_path / "lists").prepare(adopt=copy)
    with pytest.raises(DataError, match="there is no folder or archive"):
        Small(lists=tmp_path / "lists").prepare(adopt=tmp_path / "nowhere")


def test_an_archive_that_the_user_has_is_extracted(archive, tmp_path, copy):
    (tmp_path / "mine.tgz").write_bytes(archive)
    dataset = Small(lists=tmp_path / "lists")
    dataset.prepare(adopt=tmp_path / "mine.tgz", offline=True)
    assert not dataset.verify()
    assert (tmp_path / "mine.tgz").exists()
    with pytest.raises(DataError, match="exists already"):
        Small(lists=tmp_path / "lists").prepare(adopt=tmp_path / "mine.tgz")


def test_sets_of_one_shelf_share_an_adopted_copy_until_one_brings_its_own(copy, tmp_path):
    class Sibling(Small):
        name = "sibling"
        shelf = "small"

    lists = tmp_path / "lists"
    Small(lists=lists).prepare(adopt=copy)
    assert not Sibling(lists=lists).missing()
    other = tmp_path / "other"
    for name in IDS:
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(picture_file(name))
    Sibling(lists=lists).prepare(adopt=other)
    assert Sibling(lists=lists).open(IDS[0]).resolve() == other / IDS[0]
    assert Small(lists=lists).open(IDS[0]).resolve() == copy / IDS[0]


def test_pictures_on_the_shelf_that_became_incomplete_are_extracted_anew(archive):
    with mirror({"small.tar.gz": archive, "list.txt": LIST}) as server:
        dataset = served(server)
        dataset.prepare()
        (dataset.root / "top" / IDS[0]).unlink()
        served(server).prepare(offline=True)
        assert not served(server).verify()
        assert len(server.asked) == 2


def test_what_a_killed_process_left_is_cleared_away(archive, home):
    left = home / "datasets" / "small" / ".pictures.abc123" / "new"
    left.mkdir(parents=True)
    with mirror({"small.tar.gz": archive, "list.txt": LIST}) as server:
        served(server).prepare()
    assert not left.exists()


def test_a_home_that_cannot_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FIOOD_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written: .*; set FIOOD_HOME"):
        Small().prepare()


def test_an_archive_that_lacks_pictures_is_not_accepted():
    short = packed({name: picture_file(name) for name in IDS[1:]})
    with mirror({"small.tar.gz": short, "list.txt": LIST}) as server:
        with pytest.raises(DataError, match=r"remove .*pictures and run again:\n  missing: set/a b/one's.jpg"):
            served(server).prepare()
        assert served(server).missing()


def test_a_damaged_archive_is_set_aside_and_the_next_run_fetches_it_anew(archive):
    with mirror({"small.tar.gz": archive[: len(archive) // 2], "list.txt": LIST}) as server:
        with pytest.raises(DataError, match=r"is damaged.*set aside as .*refused; run again to fetch it anew"):
            served(server).prepare()
        assert not served(server).root.exists()
        server.files["small.tar.gz"] = Served(archive)
        served(server).prepare()
        assert not served(server).verify()


def test_offline_with_a_full_cache_works_and_with_a_partial_one_says_what_lacks(archive, home):
    downloads = home / "datasets" / "small" / "downloads"
    downloads.mkdir(parents=True)
    (downloads / "small.tar.gz").write_bytes(archive)
    with pytest.raises(DataError, match=r"list.txt is not at .*list\.txt, and the run is offline; get it from http"):
        Small().prepare(offline=True)
    assert not Small().root.exists() or Small().missing()
    (home / "datasets" / "small" / "lists").mkdir(exist_ok=True)
    (home / "datasets" / "small" / "lists" / "list.txt").write_bytes(LIST)
    Small().prepare(offline=True)
    assert not Small().verify()


def test_all_that_cannot_be_had_is_told_at_once():
    with mirror({}) as server, pytest.raises(DataError) as raised:
        served(server).prepare()
    assert "list.txt could not be fetched" in str(raised.value)
    assert "small.tar.gz could not be fetched" in str(raised.value)


def test_a_stand_in_keeps_its_files_apart_and_never_passes_as_the_set(archive, home):
    entries = [{"id": IDS[0], "name": "x"}, {"id": IDS[1], "name": "y"}]
    given = manifest(entries, archive={"name": "small.tar.gz", "kind": "gzip", "urls": []})
    with mirror({"small.tar.gz": archive, "list.txt": LIST}) as server:
        given["archive"]["urls"] = [server("small.tar.gz")]
        double = served(server).with_manifest(given)
        double.prepare()
        view = double.view()
        assert not view.canonical
        assert view.source != Small.source
        assert double.root.is_relative_to(home / "datasets" / "small" / "stand-ins")
        assert not served(server).root.exists()
        served(server).prepare()
        (double.root / "top" / IDS[2]).unlink()
        (double.root / "top" / IDS[3]).unlink()
        with pytest.raises(DataError, match="2 of 4 pictures are not under"):
            Small(double.root, served(server).lists).view()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "non-empty list"),
        ([{"name": "x"}], "no mapping with an 'id'"),
        ([{"id": "../x"}], "not a relative path"),
        ([{"id": "/x"}], "not a relative path"),
        ([{"id": "x", "label": 1}], "unknown field 'label'"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(entries, message):
    with pytest.raises(DataError, match=message):
        Small().with_manifest({"entries": entries})


def test_a_manifest_whose_archive_leads_out_is_refused():
    with pytest.raises(DataError, match="plain file name"):
        Small().with_manifest(manifest([{"id": "x.jpg"}], archive={"name": "../x.zip"}))


def test_a_wrong_picture_is_altered_where_the_manifest_knows_better(tmp_path):
    dataset = stand_in(Small(tmp_path / "small"), [{"id": name, "name": "x"} for name in IDS])
    assert not dataset.verify()
    (tmp_path / "small" / IDS[3]).write_bytes(picture_file(IDS[0]))
    dataset.forget()
    assert kinds(dataset.verify()) == ["altered"]


PROGRAM = """
import json, sys
sys.path.insert(0, {tests!r})
from test_listed import Small
from fiood_core.download import Remote
dataset = Small()
dataset.archive = Remote("small.tar.gz", ({archive!r},), kind="gzip")
dataset.list_files = (Remote("list.txt", ({lists!r},), digest=Small.list_files[0].digest),)
dataset.prepare()
print(json.dumps(list(dataset.view().ids)))
"""


def test_two_processes_that_prepare_at_once_fetch_once_and_both_are_ready(archive):
    with mirror({"small.tar.gz": archive, "list.txt": LIST}) as server:
        program = PROGRAM.format(
            tests=str(Path(__file__).parent), archive=server("small.tar.gz"), lists=server("list.txt")
        )
        running = [
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)
        ]
        assert [json.loads(process.communicate()[0]) for process in running] == [list(IDS)] * 2
        assert sorted(name for name, _ in server.asked) == ["list.txt", "small.tar.gz"]


class FirstTwo(FirstOfEachClass):
    """The first two pictures of two classes."""

    name = "first-two"
    source = "first-two"
    info = Info(title="first two", expected_count=4)
    archive = Remote("first", instructions="Ask the owner.")
    classes, each = 2, 2
    folder = None

    def wnids(self, lists: Mapping[str, Path]) -> Sequence[str]:
        return ["n00000002", "n00000001"]


@pytest.mark.parametrize("top", ["", "winter21_whole"])
def test_the_first_pictures_are_the_first_by_name_not_by_number(tmp_path, top):
    for wnid in ("n00000001", "n00000002"):
        (tmp_path / top / wnid).mkdir(parents=True)
        for number in (2, 9, 10, 100):
            (tmp_path / top / wnid / f"{wnid}_{number}.JPEG").write_bytes(b"x")
    dataset = FirstTwo(tmp_path)
    assert [entry.id for entry in dataset.listed] == [
        "n00000002/n00000002_10.JPEG",
        "n00000002/n00000002_100.JPEG",
        "n00000001/n00000001_10.JPEG",
        "n00000001/n00000001_100.JPEG",
    ]
    assert not dataset.verify()
    for number in (9, 10, 100):
        (tmp_path / top / "n00000001" / f"n00000001_{number}.JPEG").unlink()
    with pytest.raises(DataError, match=r"1 classes have fewer than 2 pictures .*n00000001 \(1\)"):
        FirstTwo(tmp_path).view()


def test_what_needs_an_account_is_not_fetched():
    with pytest.raises(DataError, match=r"Ask the owner\. Then run fiood data prepare first-two --adopt PLACE"):
        FirstTwo().prepare()


@pytest.mark.slow
def test_fifty_thousand_pictures_are_found_in_seconds(tmp_path):
    import time

    entries = [{"id": f"n{i // 50:08d}/n{i // 50:08d}_{i}.JPEG"} for i in range(50_000)]
    for entry in entries:
        path = tmp_path / "deep" / "er" / entry["id"]
        if entry["id"].endswith("0.JPEG"):
            path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    dataset = Small(tmp_path).with_manifest({"entries": entries})
    start = time.monotonic()
    assert len(dataset.view()) == 50_000
    assert time.monotonic() - start < 20
