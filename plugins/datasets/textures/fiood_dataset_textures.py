"""Describable Textures: all 5,640 pictures, or the 5,160 that ViM and OpenOOD keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns, github

DROPPED = {"bubbly", "cobwebbed", "honeycombed", "spiralled"}
"""The classes that ViM leaves out: they show ImageNet-1k objects."""

CITATION = "Cimpoi et al.: Describing Textures in the Wild, 2014, arXiv 1311.3618"
HOME = "https://www.robots.ox.ac.uk/~vgg/data/dtd/"
ARCHIVE = Remote(
    "dtd-r1.0.1.tar.gz",
    urls=("https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz",),
    kind="gzip",
    digest="md5:fff73e5086ae6bdbea199a49dfb8a4c1",
)


class Textures(ListedDataset):
    """All of DTD: 47 classes of 120 pictures; what Fi-ImageNet-1k evaluates."""

    name = "textures"
    source = "dtd"
    shelf = "dtd"
    info = Info(
        title="Textures (5,640)",
        summary="all 47 classes of Describable Textures, 120 pictures each",
        citation=CITATION,
        home=HOME,
        expected_count=5640,
        notes="Of 400 checked by NINCO 288 were clean; its four classes that ViM drops were 27 of 27 in distribution.",
    )
    list_files = (
        github(
            "mueller-mp/maha-norm",
            "NINCO/data/texture.csv",
            "5c4c498d6d513f2b25bf0626ec21dd83201d8460dee3b101ac99a0925a6068b9",
            name="maha_norm_texture_5640.csv",
        ),
    )
    archive = ARCHIVE
    folder = "images"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = csv_columns(lists["maha_norm_texture_5640.csv"], "image_location")
        return _entries([path.removeprefix("images_classic/texture/") for (path,) in rows], classes=47)

    def aliases(self, image_id: str) -> Sequence[str]:
        return (image_id.replace("images/", "texture/", 1),)


class Textures5160(ListedDataset):
    """The 43 classes that ViM and OpenOOD v1.5 keep."""

    name = "textures-5160"
    source = "dtd"
    shelf = "dtd"
    info = Info(
        title="Textures (5,160)",
        summary="43 classes of Describable Textures, without bubbly, cobwebbed, honeycombed and spiralled",
        citation=CITATION,
        home=HOME,
        expected_count=5160,
        notes="ViM's list; OpenOOD v1.5 has the same.",
    )
    list_files = (
        github(
            "haoqiwang/vim",
            "datalists/texture.txt",
            "abbc670ef19675c8763c43863ffbaef7858cea8c119757dfea69e3f6dd2ef803",
            name="vim_texture.txt",
        ),
    )
    archive = ARCHIVE
    folder = None

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        entries = _entries(lists["vim_texture.txt"].read_text("ascii").split(), classes=43)
        kept = {entry.id.split("/")[1] for entry in entries}
        if kept & DROPPED:
            raise DataError(f"vim_texture.txt holds classes that the 5,160 leave out: {sorted(kept & DROPPED)}")
        return entries

    def aliases(self, image_id: str) -> Sequence[str]:
        return (image_id.replace("images/", "texture/", 1),)


def _entries(paths: Sequence[str], classes: int) -> list[Entry]:
    found = {path.split("/")[0] for path in paths}
    if len(found) != classes:
        raise DataError(f"the texture list has {len(found)} classes, expected {classes}")
    return [Entry(f"images/{path}", concept=Concept(path.split("/")[0].replace("_", " "))) for path in paths]
