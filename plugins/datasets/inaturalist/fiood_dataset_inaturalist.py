"""iNaturalist OOD Plants: 10,000 pictures of 110 plant species."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fiood_core.dataset import Concept, Info
from fiood_core.download import Remote
from fiood_core.errors import DataError
from fiood_core.listed import Entry, ListedDataset
from fiood_core.lists import csv_columns, github, image_list
from fiood_core.sources import openood

SPECIES = 110


class INaturalist(ListedDataset):
    """The plants of MOS, with the species that NINCO's authors recovered for all of them."""

    name = "inaturalist"
    source = "inaturalist"
    info = Info(
        title="iNaturalist OOD Plants",
        summary="10,000 pictures of 110 plant species",
        citation="Huang, Li: MOS: Towards Scaling Out-of-distribution Detection for Large Semantic Space, 2021, "
        "arXiv 2105.01879",
        licence="iNaturalist 2017 competition terms: non-commercial research and education (say third parties)",
        home="https://github.com/deeplearning-wisc/large_scale_ood",
        expected_count=10000,
        notes="Of 400 checked by NINCO 383 were clean. Species names are Latin.",
    )
    list_files = (
        openood("test_inaturalist.txt", "86a19665f968eecf17383bafa15dea3aeb53db96c305d08f026cdb6438376ecb"),
        github(
            "j-cb/NINCO",
            "data/labels_of_other_datasets/OOD_iNaturalist_MOS_labels.csv",
            "e543af9e7175441c4c1867c89fac15ea0518d07f42a8370ff46aec1e0d0b0126",
        ),
    )
    archive = Remote(
        "iNaturalist.tar.gz",
        urls=(
            "https://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/iNaturalist.tar.gz",
            "http://pages.cs.wisc.edu/~huangrui/imagenet_ood_dataset/iNaturalist.tar.gz",
        ),
        kind="gzip",
        digest="md5:5be6ea8aa027d7b631916427b32cb335",
        digest_by_others=True,
        instructions="OpenOOD has a copy at Google Drive 1zfLfMvoUD0CUlKNnkk7LgxZZBnTBipdj.",
    )
    folder = "images"

    def entries(self, lists: Mapping[str, Path]) -> Sequence[Entry]:
        rows = csv_columns(lists["OOD_iNaturalist_MOS_labels.csv"], "image_location", "species")
        species = dict(rows)
        if len(set(species.values())) != SPECIES:
            raise DataError(f"the label list has {len(set(species.values()))} species, the set has {SPECIES}")
        entries = []
        for path, _ in image_list(lists["openood_v1.5/test_inaturalist.txt"]):
            name = path.rpartition("/")[2]
            if name not in species:
                raise DataError(f"{name} has no species in OOD_iNaturalist_MOS_labels.csv")
            entries.append(Entry(f"images/{name}", concept=Concept(species[name])))
        return entries
