import json

import pytest
from fiood_dataset_reimagenet import Flags, ReImageNet

from fiood_core.errors import DataError
from fiood_core.testing import check_dataset
from fiood_core.testing.listed import stand_in

NAMES = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 50_001)]


def record(number, labels, **flags):
    boxes = [{"labels": labels, **flags}] if flags else []
    return {"image_name": NAMES[number], "reannotated_labels": labels, "original_class": [0], "bboxes": boxes}


def write(folder, records, pairs):
    (folder / "reannotation.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (folder / "class_update_config.json").write_text(json.dumps({"equivalent_classes": pairs}))
    return ReImageNet(lists=folder)


@pytest.fixture
def annotated(tmp_path):
    special = [record(0, [3, 7]), record(1, []), record(2, [-1]), record(3, [5], crowd_flag=True)]
    return write(tmp_path, [*special, *(record(n, [n % 1000]) for n in range(4, 50_000))], [[7, 8], [8, 9]])


def test_a_stand_in_conforms(tmp_path):
    check_dataset(stand_in(ReImageNet(tmp_path), [{"id": NAMES[0], "targets": [3, 7]}, {"id": NAMES[1]}]))


def test_targets_are_all_labels_and_the_classes_merged_with_them(annotated):
    targets = [entry.targets for entry in annotated.listed[:5]]
    assert targets == [(3, 7, 8, 9), (), (), (5,), (4,)]


def test_flags_are_counted_not_assumed(annotated):
    assert annotated.flags() == Flags(empty=1, minus_one=1, others={"crowd_flag": 1})
    assert annotated.remarks() == ("pictures without a label: 1 empty, 1 labelled -1, 1 with crowd_flag",)


def test_an_annotation_of_other_pictures_or_classes_is_refused(tmp_path):
    with pytest.raises(DataError, match="50,000 validation pictures once each"):
        _ = write(tmp_path, [record(0, [3])], []).listed
    with pytest.raises(DataError, match=r"reannotation.jsonl:1 has a label outside the 1000 classes"):
        _ = write(tmp_path, [record(0, [1000])], []).listed
    with pytest.raises(DataError, match=r"reannotation.jsonl:1 is no ReImageNet record"):
        _ = write(tmp_path, [{"image_name": NAMES[0]}], []).listed


def test_without_the_gated_files_it_says_where_they_are(tmp_path):
    missing = ReImageNet(tmp_path, tmp_path).missing()
    assert ["vrg-prague/ReImageNet" in line for line in missing] == [True, True]
