"""Some pictures of another dataset, chosen by a list of ids."""

from __future__ import annotations

from pathlib import Path

from fiood_core import Dataset, View
from fiood_core.dataset import PartOf
from fiood_core.errors import DataError
from fiood_core.request import Request

SHOWN = 5


class Subset(PartOf):
    """The pictures of ``of`` that a text file names, one id a line, in the file's order.

    Features are stored under the source of ``of``, so a picture that was seen there goes through no backbone again.

    Parameters
    ----------
    of : Dataset or specification
    ids : path
    """

    def __init__(self, of: Dataset | str, ids: str | Path) -> None:
        super().__init__(of if isinstance(of, Dataset) else Request.parse("dataset", of).create())
        self.info = self.dataset.info
        self._ids = Path(ids).expanduser()

    def view(self) -> View:
        if not self._ids.is_file():
            raise DataError(f"subset: there is no list of ids at {self._ids}")
        wanted = [line for line in self._ids.read_text("utf-8").splitlines() if line]
        if not wanted:
            raise DataError(f"subset: {self._ids} names no picture")
        whole = self.dataset.view()
        place = {image_id: row for row, image_id in enumerate(whole.ids)}
        absent = [image_id for image_id in wanted if image_id not in place]
        if absent:
            raise DataError(f"subset: {len(absent)} ids of {self._ids} are not in the set: {', '.join(absent[:SHOWN])}")
        return whole.take([place[image_id] for image_id in wanted])
