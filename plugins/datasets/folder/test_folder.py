import os
import re
import shutil

import pytest
from fiood_dataset_folder import PICTURES, Folder
from PIL import Image

from fiood_core import Concept
from fiood_core.errors import DataError
from fiood_core.testing import check_dataset

TENCH, GOLDFISH = "n01440764", "n01443537"  # classes 0 and 1
NO_CLASS = "n00007846"  # person, none of the thousand


@pytest.fixture
def picture(tmp_path):
    def write(*names, root=tmp_path / "pictures"):
        for name in names:
            place = root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (len(name), sum(name.encode()) % 256, 0)).save(place, "PNG")
        return root

    return write


def write_list(root, text, name="list.csv"):
    place = root / name
    place.write_text(text, encoding="utf-8")
    return place


def test_conformance(picture):
    root = picture(f"{GOLDFISH}/a.png", f"{TENCH}/b.png", f"{NO_CLASS}/c.png", "d.png")
    check_dataset(Folder, {"path": root})
    check_dataset(Folder, {"path": write_list(root, f"path,label\n{TENCH}/b.png,3;7\nd.png,\n")})


def test_a_folder_is_read_in_the_order_of_its_paths_with_odd_names_and_without_hidden_files(picture):
    names = ["b/it's a house.JPG", "a b.gif", "Zürich.webp", "c.JPEG", "b.png", "日本.png", ".hidden.png", ".git/x.png"]
    view = Folder(picture(*names)).view()
    assert list(view.ids) == sorted(n for n in names if not n.startswith("."))
    assert view.targets is None
    assert view.concepts is None


@pytest.mark.parametrize("ending", PICTURES)
def test_every_picture_extension_counts_in_both_cases(picture, ending):
    assert len(Folder(picture(f"a{ending}", f"b{ending.upper()}")).view()) == 2


def test_labels_come_from_wnid_folders_never_from_the_order_of_folders(picture):
    view = Folder(picture(f"{GOLDFISH}/x.png", "aaa/z.png", f"deep/{TENCH}/y.png", f"{NO_CLASS}/p.png")).view()
    labels = dict(zip(view.ids, zip(view.targets, view.concepts, strict=True), strict=True))
    assert labels == {
        f"{GOLDFISH}/x.png": ((1,), None),
        f"deep/{TENCH}/y.png": ((0,), None),
        f"{NO_CLASS}/p.png": ((), Concept(NO_CLASS, NO_CLASS)),
        "aaa/z.png": ((), None),
    }


def test_a_flat_folder_has_no_labels_though_its_names_begin_with_wnids(picture):
    assert Folder(picture(f"{TENCH}_1.png", f"{GOLDFISH}_1.png")).view().targets is None


def test_a_list_gives_order_and_targets(picture):
    root = picture("a.png", "b.png", "c.png", "d.png")
    view = Folder(write_list(root, "path,label,more\nb.png,3;7,x\na.png,0,\nd.png,-1,\nc.png,,\n")).view()
    assert list(view.ids) == ["b.png", "a.png", "d.png", "c.png"]
    assert list(view.targets) == [(3, 7), (0,), (), ()]
    assert view.concepts is None


def test_labels_that_are_names_are_concepts(picture):
    root = picture("a.png", "b.png", "c.png")
    view = Folder(write_list(root, f'path,label,wnid\na.png,"house, old",\nb.png,person,{NO_CLASS}\nc.png,,\n')).view()
    assert list(view.concepts) == [Concept("house, old"), Concept("person", NO_CLASS), None]
    assert view.targets is None


def test_a_concept_column_holds_names_even_if_they_are_numbers(picture):
    view = Folder(write_list(picture("a.png"), "path,concept\na.png,7\n")).view()
    assert list(view.concepts) == [Concept("7")]


def test_a_wnid_column_labels_where_there_are_no_class_indices(picture):
    root = picture("a.png", "b.png")
    by_wnid = Folder(write_list(root, f"path,wnid\na.png,{GOLDFISH}\nb.png,{NO_CLASS}\n")).view()
    assert list(by_wnid.targets) == [(1,), ()]
    assert list(by_wnid.concepts) == [None, Concept(NO_CLASS, NO_CLASS)]
    own_classes = Folder(write_list(root, f"path,label,wnid\na.png,0,{GOLDFISH}\nb.png,1,{TENCH}\n")).view()
    assert list(own_classes.targets) == [(0,), (1,)]


def test_a_list_of_paths_alone_takes_labels_from_wnid_folders(picture):
    root = picture(f"{GOLDFISH}/a.png", f"{TENCH}/b.png")
    assert list(Folder(write_list(root, f"path\n{GOLDFISH}/a.png\n")).view().targets) == [(1,)]


def test_a_list_may_lie_elsewhere(picture, tmp_path):
    root = picture("a.png", "b.png")
    dataset = Folder(root, labels=write_list(tmp_path, "\ufeffpath,label\na.png,5\n"))
    assert list(dataset.view().targets) == [(5,)]
    assert dataset.open("a.png") == root / "a.png"


def test_folder_and_list_of_one_root_share_the_store_and_other_roots_do_not(picture, tmp_path):
    root = picture("a.png")
    other = picture("a.png", root=tmp_path / "other")
    source = Folder(root).view().source
    assert Folder(write_list(root, "path\na.png\n")).view().source == source
    assert Folder(other).view().source != source


def test_a_changed_picture_gets_another_stamp(picture):
    root = picture("a.png")
    before = Folder(root).stamps(["a.png"])
    os.utime(root / "a.png", ns=(0, 0))
    assert Folder(root).stamps(["a.png"]) != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image,label\na.png,1\n", "'path' column"),
        ("path,label\na.png,1\na.png,2\n", "line 3: 'a.png' stands in line 2 too"),
        ("path,label\n../a.png,1\n", "line 2: '../a.png' leaves the folder"),
        ("path,label\n/etc/hosts,1\n", "line 2: '/etc/hosts' leaves the folder, to which paths are relative"),
        ("path,label\n./a.png,1\n", "should be written 'a.png'"),
        ("path,label\n,1\n", "line 2: '' is empty"),
        ('path,label\n"a\n.png",1\n', "is not printable"),
        ("path,label\na.png,1,2\n", "more or fewer cells"),
        ("path,label\na.png\n", "more or fewer cells"),
        ("path,wnid\na.png,n123\n", "'n123'"),
        ("path,label\na.png,tench\nb.png,1\n", "line 2: label 'tench' is no class index, unlike line 3's"),
        ("path,label\na.png,1.0\nb.png,\n", "line 2: label '1.0' is no class index"),
        ("path,label\n", "names no picture"),
        ('path,label\n"a.png,1\n', "not a CSV file"),
        ("path,label\na.png,1\nx.png,2\ny.png,3\n", "2 of 3 pictures"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused_with_the_line(picture, text, said):
    dataset = Folder(write_list(picture("a.png", "b.png"), text))
    with pytest.raises(DataError, match=re.escape(said)) as refusal:
        dataset.view()
    assert "list.csv" in str(refusal.value)


def test_missing_says_what_is_missing(picture, tmp_path):
    assert "no folder" in Folder(tmp_path / "nowhere").missing()[0]
    assert "cannot be read" in Folder(tmp_path / "nowhere.csv").missing()[0]
    (tmp_path / "empty").mkdir()
    assert "holds no picture" in Folder(tmp_path / "empty").missing()[0]
    assert Folder(picture("a.png")).missing() == []


def test_a_link_to_nothing_is_no_picture_less_but_an_error(picture):
    root = picture("a.png")
    (root / "b.png").symlink_to(root / "gone.png")
    with pytest.raises(DataError, match=r"links to nothing: b\.png"):
        Folder(root).view()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_is_no_picture_and_nothing_waits_for_it(picture):
    root = picture("a.png")
    os.mkfifo(root / "b.png")
    with pytest.raises(DataError, match=r"no files, or links to nothing: b\.png"):
        Folder(root).view()


def test_a_name_that_is_not_utf8_is_refused(picture):
    root = picture("a.png")
    try:
        shutil.copy(root / "a.png", os.fsencode(root) + b"/\xff.png")
    except OSError:
        pytest.skip("the file system takes UTF-8 names only")
    with pytest.raises(DataError, match=r"udcff\.png"):
        Folder(root).view()


def test_symbolic_links_are_followed_but_not_in_circles(picture, tmp_path):
    root = picture("a/x.png")
    (root / "a" / "up").symlink_to(root)
    (root / "linked").symlink_to(picture("y.png", root=tmp_path / "elsewhere"))
    dataset = Folder(root)
    assert list(dataset.view().ids) == ["a/x.png", "linked/y.png"]
    assert dataset.verify() == ["symbolic link to a folder above itself, not followed: a/up"]


def test_verify_names_what_does_not_belong(picture):
    root = picture("a.png", "b.png", "c.png")
    shutil.copy(root / "a.png", root / "copy of a.png")
    (root / "empty.jpg").touch()
    (root / "notes.txt").write_text("x")
    report = Folder(root).verify()
    assert report == [
        "not a picture by its name: notes.txt",
        "empty: empty.jpg",
        "the same picture twice: a.png and copy of a.png",
    ]
    listed = Folder(write_list(root, "path\na.png\n")).verify()
    assert "not in the list: b.png" in listed
    assert not any("list.csv" in line for line in listed)


@pytest.mark.parametrize("image_id", ["../a.png", "/etc/hosts", "a/../b.png", ""])
def test_no_id_leaves_the_folder(picture, image_id):
    with pytest.raises(DataError, match="relative paths inside"):
        Folder(picture("a.png")).open(image_id)


@pytest.mark.shared
def test_the_sample_of_imagenet_has_the_same_labels_by_folder_and_by_list(shared):
    root = shared / "data" / "imagenet_sample"
    by_folder, by_list = Folder(root).view(), Folder(root / "labels.csv").view()
    assert len(by_folder) == 500
    assert by_folder.digest == by_list.digest
