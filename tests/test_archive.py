"""Archives that lie: nothing of them is left on disk, and the message names what they hold."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from fiood_core.archive import Limits, unpack
from fiood_core.errors import DataError

PICTURE = b"a picture" * 100


def tar(path: Path, members: Sequence[tuple[str, bytes] | tarfile.TarInfo], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tape:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tape.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tape.addfile(info, io.BytesIO(member[1]))
    return path


def zipped(path: Path, members: Sequence[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in members:
            bundle.writestr(name, content)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


def files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tar_is_extracted(tmp_path, mode):
    names = {"top/a b/it's.jpg": PICTURE, "top/ü.png": b"x"}
    unpack(tar(tmp_path / "a.tar", list(names.items()), mode), tmp_path / "out")
    assert files(tmp_path / "out") == names
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o755


def test_a_zip_is_extracted_and_a_tar_that_ends_in_one_is_still_a_tar(tmp_path):
    unpack(zipped(tmp_path / "a.zip", [("a/b.jpg", PICTURE), ("empty/", b"")]), tmp_path / "out")
    assert files(tmp_path / "out") == {"a/b.jpg": PICTURE}
    tape = tar(tmp_path / "a.tar", [("c.jpg", PICTURE)])
    tape.write_bytes(tape.read_bytes() + (tmp_path / "a.zip").read_bytes())
    unpack(tape, tmp_path / "again")
    assert files(tmp_path / "again") == {"c.jpg": PICTURE}


def test_archives_in_an_archive_become_folders(tmp_path):
    inner = {wnid: tar(tmp_path / wnid, [(f"{wnid}_1.JPEG", PICTURE)]).read_bytes() for wnid in ("n01", "n02")}
    outer = tar(tmp_path / "train.tar", [(f"{wnid}.tar", content) for wnid, content in inner.items()])
    unpack(outer, tmp_path / "out", nested=True)
    assert files(tmp_path / "out") == {"n01/n01_1.JPEG": PICTURE, "n02/n02_1.JPEG": PICTURE}


HOSTILE = {
    "a path out": (lambda p: tar(p, [("a.jpg", PICTURE), ("../evil", b"x")]), r"'\.\./evil', which leads out"),
    "a path out further down": (lambda p: tar(p, [("a/../../evil", b"x")]), "leads out"),
    "an absolute path": (lambda p: tar(p, [("/tmp/evil", b"x")]), "'/tmp/evil', which leads out"),
    "a zip's path out": (lambda p: zipped(p, [("a.jpg", PICTURE), ("../evil", b"x")]), "leads out"),
    "backslashes": (lambda p: zipped(p, [("..\\evil", b"x")]), "leads out"),
    "a drive": (lambda p: zipped(p, [("C:/evil", b"x")]), "leads out"),
    "a symbolic link": (lambda p: tar(p, [link("d", "/etc"), ("d/evil", b"x")]), "'d', a symbolic link; only files"),
    "a hard link": (lambda p: tar(p, [link("d", "/etc/passwd", tarfile.LNKTYPE)]), "'d', a hard link"),
    "a device": (lambda p: tar(p, [link("d", "", tarfile.CHRTYPE)]), "'d', a special file"),
    "a zip's link": (lambda p: zipped(p, [(zip_link("d"), b"/etc")]), "'d', a symbolic link"),
    "a file twice": (lambda p: tar(p, [("a.jpg", b"1"), ("a.jpg", b"2")]), r"'a\.jpg' twice"),
    "a bomb": (lambda p: zipped(p, [("a.jpg", bytes(70 << 20))]), "looks like a decompression bomb"),
    "a tar bomb": (lambda p: tar(p, [("a.jpg", bytes(70 << 20))], "w:gz"), "looks like a decompression bomb"),
    "nothing of the kind": (lambda p: (p.write_bytes(b"GIF89a" * 200), p)[1], "is damaged"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_archive_leaves_nothing(tmp_path, what):
    make, message = HOSTILE[what]
    archive = make(tmp_path / "archive")
    with pytest.raises(DataError, match=message):
        unpack(archive, tmp_path / "down" / "out")
    assert files(tmp_path / "down") == {}
    assert list((tmp_path / "down").iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_a_path_out_of_an_inner_archive_is_refused(tmp_path):
    inner = tar(tmp_path / "inner", [("../../evil", b"x")]).read_bytes()
    outer = tar(tmp_path / "outer", [("n01.tar", inner)])
    with pytest.raises(DataError, match="leads out"):
        unpack(outer, tmp_path / "down" / "out", nested=True)
    assert list((tmp_path / "down").iterdir()) == []


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2", "zip"])
def test_a_truncated_archive_is_damaged(tmp_path, mode):
    noise = b"".join(hash((i,)).to_bytes(8, "big", signed=True) for i in range(20_000))
    make = zipped if mode == "zip" else lambda path, members: tar(path, members, mode)
    archive = make(tmp_path / "a", [("a.jpg", noise), ("b.jpg", noise)])
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match="is damaged"):
        unpack(archive, tmp_path / "down" / "out")
    assert list((tmp_path / "down").iterdir()) == []


def test_a_zip_with_a_flipped_bit_is_damaged(tmp_path):
    archive = zipped(tmp_path / "a.zip", [("a.jpg", PICTURE)])
    content = bytearray(archive.read_bytes())
    content[45] ^= 1
    archive.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        unpack(archive, tmp_path / "out")


def test_members_and_bytes_are_limited(tmp_path):
    archive = tar(tmp_path / "a.tar", [(f"{i}.jpg", PICTURE) for i in range(4)])
    with pytest.raises(DataError, match="more than 3 members"):
        unpack(archive, tmp_path / "out", limits=Limits(members=3))
    with pytest.raises(DataError, match="more than 1000 bytes"):
        unpack(archive, tmp_path / "out", limits=Limits(total_bytes=1000))


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists already"):
        unpack(tar(tmp_path / "a.tar", [("a.jpg", PICTURE)]), tmp_path / "out")
