"""Odd and broken pictures: each is decoded as documented, or refused by name."""

from __future__ import annotations

import errno
import io
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from fiood_core.errors import DataError, ImageError, ParameterError
from fiood_core.images import FORMATS, ImagePolicy, decode

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)


def rgb(source: Path | Image.Image, **policy: int) -> np.ndarray:
    picture = decode(source, ImagePolicy(**policy), name="a/picture")  # type: ignore[arg-type]
    assert picture.mode == "RGB"
    return np.asarray(picture)


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_a_png_of_each_mode_gives_what_torchvision_reads(mode: str, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    colours = Image.fromarray(generator.integers(0, 256, (8, 9, 4), dtype=np.uint8), "RGBA")
    path = saved(colours.convert("RGB").convert(mode) if mode != "RGBA" else colours, tmp_path / "a.png")
    with Image.open(path) as image:
        assert image.mode == mode
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(rgb(path), expected)


def test_alpha_is_dropped_and_not_composited(tmp_path: Path) -> None:
    pixels = np.full((4, 4, 4), (10, 200, 30, 0), dtype=np.uint8)
    assert (rgb(saved(Image.fromarray(pixels), tmp_path / "a.png")) == (10, 200, 30)).all()


@pytest.mark.parametrize("transparency", [0, bytes([0, 128, 255])])
def test_a_transparent_palette_keeps_its_colours_without_a_warning(transparency: object, tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8), "P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    path = saved(image, tmp_path / "a.png", transparency=transparency)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rgb(path).tolist() == [[[255, 0, 0], [0, 255, 0], [0, 0, 255]]]


@pytest.mark.parametrize("adobe", [False, True])
def test_cmyk_jpeg_is_converted_as_pillow_does_with_and_without_adobes_marker(adobe: bool, tmp_path: Path) -> None:
    path = saved(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), tmp_path / "a.jpg", quality=95)
    data = path.read_bytes()
    marker = data.index(b"\xff\xee")
    if not adobe:
        length = struct.unpack(">H", data[marker + 2 : marker + 4])[0]
        path.write_bytes(data[:marker] + data[marker + 2 + length :])
    with Image.open(path) as image:
        assert image.mode == "CMYK"
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(rgb(path), expected)
    if adobe:
        assert np.abs(expected[8, 8].astype(int) - (255, 0, 0)).max() < 12


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_scaled_by_257_and_neither_wrapped_nor_clipped(suffix: str, tmp_path: Path) -> None:
    wide = RAMP.astype(np.uint16) * 257
    assert np.array_equal(rgb(saved(Image.fromarray(wide), tmp_path / f"a.{suffix}"))[..., 0], RAMP)
    wide[0, 0], wide[0, 1], wide[0, 2] = 128, 129, 65535
    values = rgb(saved(Image.fromarray(wide), tmp_path / f"b.{suffix}"))[0, :3, 1]
    assert values.tolist() == [0, 1, 255]


def test_big_endian_sixteen_bit_grey_is_read_in_its_byte_order(tmp_path: Path) -> None:
    image = Image.frombytes("I;16B", (2, 1), struct.pack(">HH", 257 * 7, 257 * 200))
    assert rgb(image)[0, :, 0].tolist() == [7, 200]


def test_32_bit_integers_are_taken_for_16_bits_or_refused_by_their_range(tmp_path: Path) -> None:
    fits = saved(Image.fromarray(RAMP.astype(np.int32) * 257), tmp_path / "a.tif")
    assert np.array_equal(rgb(fits)[..., 2], RAMP)
    wide = saved(Image.fromarray(RAMP.astype(np.int32) * 1000), tmp_path / "b.tif")
    with pytest.raises(ImageError, match=r"b\.tif holds 32-bit integers from 0 to 255000"):
        rgb(wide)


def test_floating_point_is_taken_from_0_to_1_only(tmp_path: Path) -> None:
    unit = saved(Image.fromarray(RAMP.astype(np.float32) / 255), tmp_path / "a.tif")
    assert np.array_equal(rgb(unit)[..., 0], RAMP)
    for bad in (2.0, -0.5, np.nan):
        values = RAMP.astype(np.float32) / 255
        values[3, 3] = bad
        with pytest.raises(ImageError, match="only 0 to 1"):
            rgb(saved(Image.fromarray(values), tmp_path / "b.tif"))


@pytest.mark.parametrize("suffix", ["gif", "webp", "png"])
def test_an_animation_gives_its_first_frame(suffix: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "lime", "blue")]
    path = saved(
        frames[0],
        tmp_path / f"a.{suffix}",
        save_all=True,
        append_images=frames[1:],
        **({"lossless": True} if suffix == "webp" else {}),
    )
    assert (rgb(path) == (255, 0, 0)).all()


def test_exif_orientation_is_ignored_and_the_record_says_so(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a viewer would turn it
    path = saved(Image.new("RGB", (20, 10)), tmp_path / "a.jpg", exif=exif)
    assert rgb(path).shape == (10, 20, 3)
    assert "EXIF orientation ignored" in str(ImagePolicy().record["rules"])


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_a_decompression_bomb_is_refused_with_path_and_limit_before_it_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "bomb.png").write_bytes(png_header(50_000, 50_000))
    with pytest.raises(ImageError, match=r"bomb\.png has 50000 × 50000 = 2,500,000,000 pixels.*178,956,970"):
        rgb(tmp_path / "bomb.png")


def test_the_limit_is_the_policys_and_exact(tmp_path: Path) -> None:
    path = saved(Image.new("RGB", (10, 10)), tmp_path / "a.png")
    assert rgb(path, max_pixels=100).shape == (10, 10, 3)
    with pytest.raises(ImageError, match="over the limit of 99"):
        rgb(path, max_pixels=99)
    with pytest.raises(ImageError, match="over the limit of 99"):
        rgb(Image.new("RGB", (10, 10)), max_pixels=99)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "bmp", "webp", "tif", "ppm"])
def test_a_truncated_file_is_refused_by_name(suffix: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    path = saved(Image.fromarray(noise), tmp_path / f"cut.{suffix}")
    data = path.read_bytes()
    for share in (0.3, 0.7, 0.9):
        path.write_bytes(data[: int(len(data) * share)])
        with pytest.raises(ImageError, match=rf"cut\.{suffix}.*skip-and-count"):
            rgb(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is an empty file"),
        (b"<html>not found</html>", "is not a picture"),
        (bytes(5000), "is not a picture"),
        (b"\xff\xd8\xff", "is "),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "is not a picture"),
    ],
)
def test_what_is_no_picture_is_refused_with_its_reason(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jpg"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=rf"odd\.jpg {reason}"):
        rgb(path)


def test_missing_files_and_directories_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"gone\.jpg does not exist"):
        rgb(tmp_path / "gone.jpg")
    with pytest.raises(ImageError, match="is a directory"):
        rgb(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ImageError, match="inner"):
        rgb(tmp_path / "file" / "inner.jpg")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_that_would_never_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="no regular file"):
        rgb(tmp_path / "pipe.jpg")


def test_a_system_that_cannot_read_is_not_taken_for_a_broken_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(Image.new("RGB", (4, 4)), tmp_path / "a.png")

    def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", fails)
    with pytest.raises(DataError, match=r"a\.png could not be read: Too many open files"):
        rgb(path)


def test_a_reason_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "odd.jpg").write_bytes(b"no picture")
    with pytest.raises(ImageError) as caught:
        rgb(tmp_path / "odd.jpg")
    assert "0x" not in str(caught.value)


def test_a_broken_picture_in_memory_is_refused_too() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(2).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(buffer, "png")
    with pytest.raises(ImageError, match="'a/picture' is truncated"):
        rgb(Image.open(io.BytesIO(buffer.getvalue()[:3000])))


def test_a_library_that_lets_truncated_pictures_pass_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(Image.new("RGB", (4, 4)), tmp_path / "a.png")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ImageError, match="LOAD_TRUNCATED_IMAGES"):
        rgb(path)


def test_decoding_leaves_pillow_as_it_was(tmp_path: Path) -> None:
    before = Image.MAX_IMAGE_PIXELS
    rgb(saved(Image.new("RGB", (4, 4)), tmp_path / "a.png"))
    assert before == Image.MAX_IMAGE_PIXELS
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_the_digest_changes_with_the_limit_and_not_with_what_errors_do() -> None:
    assert ImagePolicy().digest == ImagePolicy(on_error="skip-and-count").digest
    assert ImagePolicy().digest != ImagePolicy(max_pixels=1000).digest


@pytest.mark.parametrize("bad", [{"on_error": "ignore"}, {"max_pixels": 0}, {"max_pixels": 1.5}])
def test_a_policy_that_cannot_be_is_refused(bad: dict) -> None:
    with pytest.raises(ParameterError):
        ImagePolicy(**bad)


def test_no_format_that_runs_another_program_is_opened() -> None:
    assert not {"EPS", "WMF", "FPX"} & set(FORMATS)
