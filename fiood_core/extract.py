"""Filling the feature store: pictures go through a backbone once, and all that detectors need is kept on the way."""

from __future__ import annotations

import contextlib
import hashlib
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from fiood_core.backbone import Backbone, VisionLanguageBackbone
from fiood_core.column import Column, ImageBatch
from fiood_core.dataset import Dataset, View
from fiood_core.errors import (
    DataError,
    FioodError,
    GateError,
    ImageError,
    InputError,
    ParameterError,
    StoreError,
)
from fiood_core.features import FeatureSet
from fiood_core.head import Head
from fiood_core.images import ImagePolicy, decode
from fiood_core.progress import progress_bar
from fiood_core.sealed import DiskFullError
from fiood_core.store import SHARD_ROWS, FeatureStore, Located, Pictures, Segment, Shelf, Skip

if TYPE_CHECKING:
    from PIL import Image

HEAD_TOLERANCE: Mapping[str | None, float] = {None: 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Largest difference of ``head(features)`` from the logits, relative to the largest logit, by autocast type."""

Event = Callable[..., None]


@dataclass(frozen=True)
class ExtractSettings:
    """How pictures go through a backbone.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, or ``"auto"``: the first accelerator there is.
    batch_size : int
        Part of a segment's name, because sums depend on it in their last bits.
    workers : int
        Processes that read and transform pictures; 0 does it in this one.  Values do not depend on it.
    autocast : {"bfloat16", "float16"}, optional
        Half-precision arithmetic in the backbone; part of the backbone's key.
    images : ImagePolicy
    progress : bool
        Whether to show a progress bar with pictures per second and time left.

    Raises
    ------
    ParameterError
    """

    device: str = "auto"
    batch_size: int = 64
    workers: int = 0
    autocast: str | None = None
    images: ImagePolicy = field(default_factory=ImagePolicy)
    progress: bool = True

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ParameterError(f"the batch size must be positive, got {self.batch_size}")
        if self.workers < 0:
            raise ParameterError(f"the number of workers cannot be negative, got {self.workers}")
        if self.autocast not in HEAD_TOLERANCE:
            raise ParameterError(f"autocast must be 'bfloat16', 'float16' or nothing, got {self.autocast!r}")


@dataclass(frozen=True)
class Extracted:
    """What a backbone gave for a dataset.

    Attributes
    ----------
    features : FeatureSet
        Memory-mapped; with head, ids and columns, and labels where every picture has exactly one target: the rows of
        the head that stand for them (of 998 names for 1000 classes, two stand for two each).
    view : View
        In the same order; pictures that were left out are taken out.
    skipped : tuple of (id, reason)
        The pictures that were left out.
    computed : int
        Pictures that went through the backbone now; 0 if all was cached.
    content : str
        Digest of the view, the pictures' stamps, the image policy and the head: what statistics of this set are kept
        under.
    """

    features: FeatureSet
    view: View
    skipped: tuple[tuple[str, str], ...]
    computed: int
    content: str


@dataclass(frozen=True)
class Missing:
    """What an extraction would have to do.

    Attributes
    ----------
    images, total : int
        Pictures that must go through the backbone, of how many.
    columns : tuple of str
        The columns that lack some of them.
    bytes : int or None
        What would be written; None where the width of a column is not known before the backbone is loaded.
    """

    images: int
    total: int
    columns: tuple[str, ...]
    bytes: int | None


def extract(
    backbone: Backbone,
    dataset: Dataset,
    store: FeatureStore,
    settings: ExtractSettings,
    *,
    columns: Sequence[Column] = (),
    event: Event | None = None,
) -> Extracted:
    """Features, and columns, of every picture of a dataset: from the store, or computed now and stored.

    The backbone is loaded only if something is missing.  Work that was interrupted goes on at the first missing shard.

    Parameters
    ----------
    backbone : Backbone
        A vision-language backbone must have its classes set.
    dataset : Dataset
    store : FeatureStore
    settings : ExtractSettings
    columns : sequence of Column
    event : callable, optional
        Hears ``event(name, **data)``: ``"extraction-waiting"``, ``"extraction-started"``, ``"extraction-shard"``.

    Raises
    ------
    ImageError
        A picture cannot be decoded and the policy is ``fail``, or none can.
    GateError
        ``head(features)`` is not the logits, or the model is in training mode.
    InputError
        Features or a column hold NaN or infinite values.
    StoreError
        The store is damaged or the disk is full.
    """
    job = _Job(backbone, dataset, store, settings, columns, event or _ignore)
    job.prepare()
    while gaps := job.gaps():
        for keys, numbers in gaps:
            job.fill(keys, numbers)
    return job.extracted()


def missing(
    backbone: Backbone,
    dataset: Dataset,
    store: FeatureStore,
    settings: ExtractSettings,
    columns: Sequence[Column] = (),
) -> Missing:
    """What :func:`extract` would compute and write; loads nothing and writes nothing."""
    job = _Job(backbone, dataset, store, settings, columns, _ignore)
    images: set[int] = set()
    size: int | None = 0
    lacking: list[str] = []
    for keys, numbers in job.gaps():
        for key in keys:
            rows, width = job.outstanding(key, numbers), job.width(key)
            images.update(rows.tolist())
            lacking.append(key)
            size = None if size is None or width is None else size + 4 * width * len(rows)
    return Missing(len(images), len(job.view), tuple(lacking), size)


def pick_device(name: str) -> torch.device:
    """The device of a setting; ``"auto"`` is the first accelerator there is, else the CPU.

    Raises
    ------
    ParameterError
        No such device here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ParameterError(
            f"device {name!r} cannot be used here ({reason}); choose cpu, cuda, mps or auto"
        ) from error
    return device


class _Job:
    """One dataset's way through one backbone into the store."""

    def __init__(
        self,
        backbone: Backbone,
        dataset: Dataset,
        store: FeatureStore,
        settings: ExtractSettings,
        columns: Sequence[Column],
        event: Event,
    ) -> None:
        self.backbone, self.dataset, self.store, self.settings, self.event = backbone, dataset, store, settings, event
        self.title = backbone.card.title
        self.of_vocabulary = isinstance(backbone, VisionLanguageBackbone)
        self.view = dataset.view()
        if not len(self.view):
            raise DataError(f"{dataset.info.title} has no pictures; check where it is read from")
        self.key = backbone.key(autocast=settings.autocast)
        self.features_key = backbone.features_key(autocast=settings.autocast)
        self.pictures = Pictures(self.view.ids, dataset.stamps(self.view.ids))
        self.shelves = {
            key: store.shelf(key, self.view.source, settings.images, settings.batch_size)
            for key in (self.key, self.features_key)
        }
        self.columns = {self._storage_key(column): column for column in columns}
        self.keys = ["features", *(["logits"] if self._stores_logits else []), *self.columns]
        self.computed = 0
        self._forward: _Forward | None = None

    @property
    def _stores_logits(self) -> bool:
        """Under autocast the model's own logits are not the float32 product of head and features."""
        own_features = self.features_key == self.key
        return self.settings.autocast is not None and not self.of_vocabulary and own_features

    def _storage_key(self, column: Column) -> str:
        """A column's key, with the head where values depend on it and the backbone's key does not decide it."""
        if column.needs_head and self.of_vocabulary:
            return f"{column.key} under head {self.backbone.head.digest}"
        return column.key

    def prepare(self) -> None:
        """Let the backbone get ready if it will be loaded; before any segment is locked, for it may fill some."""
        if self.gaps() or self._known_head() is None:
            self.backbone.prepare(self.store, self.settings)

    def shelf(self, key: str) -> Shelf:
        """Where a column is kept: features with all others of the same, the rest with this backbone's."""
        return self.shelves[self.features_key if key == "features" else self.key]

    def width(self, key: str) -> int | None:
        """Values a row of a column, as far as known without the backbone."""
        head = self._known_head()
        if head is not None and key in ("features", "logits"):
            return head.dim if key == "features" else head.num_rows
        tails = [column.tail for column in self._locate(key).columns if column.tail is not None]
        return math.prod(tails[0]) if tails else None

    def outstanding(self, key: str, numbers: np.ndarray) -> np.ndarray:
        """Those of a column's missing pictures that no interrupted run has written."""
        segment = self.shelf(key).segment(self.pictures.hashes[numbers])
        return numbers[~np.isin(np.arange(len(numbers)) // SHARD_ROWS, segment.there(key))]

    def gaps(self) -> list[tuple[list[str], np.ndarray]]:
        """The columns that lack pictures, with the numbers of those pictures; together where all is the same."""
        found: dict[tuple[str, bytes], tuple[list[str], np.ndarray]] = {}
        for key in self.keys:
            numbers = self._locate(key).missing
            if len(numbers):
                found.setdefault((self.shelf(key).place, numbers.tobytes()), ([], numbers))[0].append(key)
        return list(found.values())

    def fill(self, keys: Sequence[str], numbers: np.ndarray) -> None:
        """Compute some columns, of one shelf, of some pictures, as far as no interrupted or other run has."""
        shelf = self.shelf(keys[0])
        segment = shelf.segment(self.pictures.hashes[numbers])
        shelf.put_about()
        with segment.writing(self._waiting):
            unfinished = [key for key in keys if not segment.complete(key)]
            lacking = {key: sorted(set(range(segment.shards)) - set(segment.checked(key))) for key in unfinished}
            shards = sorted({shard for lacks in lacking.values() for shard in lacks})
            if shards:
                self._compute(segment, numbers, shards, lacking)
            for key in unfinished:
                segment.finish(key)

    def extracted(self) -> Extracted:
        """What is in the store now, as a feature set."""
        located = {key: self._locate(key) for key in self.keys}
        skips = {at: skip for where in located.values() for at, skip in where.skips().items()}
        kept = np.array([at for at in range(len(self.view)) if at not in skips], dtype=np.int64)
        if not len(kept):
            first = skips[min(skips)]
            raise ImageError(
                f"none of the {len(skips)} pictures of {self.dataset.info.title} can be read: {first.reason}"
            )
        view = self.view.take(kept.tolist()) if skips else self.view
        head = self._head()
        rows = {key: where.rows(kept) for key, where in located.items()}
        features = FeatureSet(
            features=rows["features"],
            logits=rows.get("logits"),
            labels=_labels(view, head),
            head=head,
            columns={column.key: rows[key] for key, column in self.columns.items()},
            ids=view.ids,
        )
        parts = (view.digest, hashlib.sha256(self.pictures.hashes[kept].tobytes()).hexdigest())
        text = repr((*parts, self.settings.images.digest, head.digest))
        skipped = tuple((skips[at].image_id, skips[at].reason) for at in sorted(skips))
        return Extracted(features, view, skipped, self.computed, hashlib.sha256(text.encode()).hexdigest())

    def _locate(self, key: str) -> Located:
        """Where a column's rows are; a picture that an earlier run left out is refused under the policy ``fail``."""
        located = self.shelf(key).locate(key, self.pictures)
        skips = located.skips()
        if skips and self.settings.images.on_error == "fail":
            raise ImageError(
                f"{skips[min(skips)].reason} (found by an earlier run that left out {len(skips)}; "
                "a mended file is read again, for its time of change is new)"
            )
        return located

    def _known_head(self) -> Head | None:
        return self.backbone.head if self.of_vocabulary else self.store.head(self.key)

    def _head(self) -> Head:
        """The head; the backbone is loaded if the store has none, as after it was removed there."""
        head = self._known_head()
        return self._loaded().head if head is None else head

    def _loaded(self) -> _Forward:
        if self._forward is None:
            self._forward = _Forward(
                self.backbone, self.title, pick_device(self.settings.device), self.settings.autocast
            )
            self.store.put_backbone(self.key, self.title, None if self.of_vocabulary else self._forward.head)
            if self.features_key != self.key:
                self.store.put_backbone(self.features_key, f"features of {self.title}", None)
        return self._forward

    def _waiting(self) -> None:
        text = f"waiting for another process that extracts {self.dataset.info.title} with {self.title}"
        self.event("extraction-waiting", message=text)
        if self.settings.progress:
            print(text, file=sys.stderr)

    def _compute(
        self, segment: Segment, numbers: np.ndarray, shards: Sequence[int], lacking: Mapping[str, Sequence[int]]
    ) -> None:
        """Put the pictures of some shards through the backbone, and write each shard when it is full."""
        forward = self._loaded()
        columns = {key: self.columns[key] for key in lacking if key in self.columns}
        total = sum(len(segment.span(shard)) for shard in shards)
        self.event("extraction-started", dataset=self.dataset.info.title, backbone=self.title, images=total)
        with _exact_arithmetic(), self._progress(len(segment), total) as progress:
            buffer = _ShardBuffer()
            for span, batch in self._batches(segment, numbers, shards):
                self._refuse(batch)
                if batch.rows:
                    ids = [self.view.ids[numbers[row]] for row in batch.rows]
                    seed = int(segment.hashes[batch.rows[0], 0]) % 2**63
                    buffer.add(batch.rows, forward.outputs(batch.images, columns, ids, seed))
                buffer.skipped += [Skip(f.row, self.view.ids[numbers[f.row]], f.message) for f in batch.failures]
                progress.update(len(span))
                self.computed += len(batch.rows)
                shard = span.start // SHARD_ROWS
                if span.stop == segment.span(shard).stop:
                    forward.check_eval_mode()
                    self._write(segment, shard, buffer, lacking)
                    self.event("extraction-shard", shard=shard, of=segment.shards, dataset=self.dataset.info.title)
                    buffer = _ShardBuffer()

    def _write(self, segment: Segment, shard: int, buffer: _ShardBuffer, lacking: Mapping[str, Sequence[int]]) -> None:
        try:
            for key in (key for key, lacks in lacking.items() if shard in lacks):
                segment.write_shard(key, shard, buffer.values(key, segment.span(shard)), buffer.skipped)
        except DiskFullError as error:
            kept = min(len(segment.checked(key)) for key in lacking)
            raise StoreError(
                f"{error} ({kept} of {segment.shards} shards of {self.dataset.info.title} with {self.title} are there)"
            ) from error

    def _batches(self, segment: Segment, numbers: np.ndarray, shards: Sequence[int]) -> Iterator[tuple[range, _Batch]]:
        """Batches on a grid that begins anew at each shard, so that it is the same whichever shards are missing."""
        spans = [
            range(start, min(start + segment.batch_size, segment.span(shard).stop))
            for shard in shards
            for start in range(segment.span(shard).start, segment.span(shard).stop, segment.batch_size)
        ]
        ids = [self.view.ids[number] for number in numbers]
        pictures = _Pictures(self.dataset, ids, self.backbone.transform, self.settings.images)
        if self.settings.workers:
            _check_picklable(pictures, self.title)
        loader = DataLoader(
            pictures,
            batch_sampler=spans,  # type: ignore[arg-type]
            num_workers=self.settings.workers,
            collate_fn=_collate,
            pin_memory=self._loaded().device.type == "cuda",
            generator=torch.Generator(),  # the default would draw from the caller's random numbers
        )
        yield from zip(spans, loader, strict=True)

    def _refuse(self, batch: _Batch) -> None:
        for failure in batch.failures:
            if failure.kind == "transform":
                raise InputError(failure.message)
            if failure.kind == "dataset":
                raise DataError(failure.message)
            if self.settings.images.on_error == "fail":
                raise ImageError(failure.message)

    def _progress(self, images: int, total: int) -> Any:
        return progress_bar(
            total=images,
            initial=images - total,
            unit="img",
            desc=f"{self.dataset.info.title} · {self.title}",
            disable=not self.settings.progress,
            mininterval=0.5,
            dynamic_ncols=True,
        )


class _ShardBuffer:
    """The rows of one shard, until it is full."""

    def __init__(self) -> None:
        self.skipped: list[Skip] = []
        self._pieces: dict[str, list[tuple[list[int], np.ndarray]]] = {}

    def add(self, rows: list[int], outputs: Mapping[str, Tensor]) -> None:
        for key, values in outputs.items():
            self._pieces.setdefault(key, []).append((rows, values.numpy()))

    def values(self, key: str, span: range) -> np.ndarray:
        """The shard of a column; rows of pictures that were left out are NaN, so that none can pass for a value."""
        pieces = self._pieces.get(key, [])
        tail = pieces[0][1].shape[1:] if pieces else (0,)
        values = np.full((len(span), *tail), np.nan, dtype=np.float32)
        for rows, piece in pieces:
            values[np.asarray(rows) - span.start] = piece
        return values


class _Forward:
    """A loaded backbone, and what of it is checked while pictures go through."""

    def __init__(self, backbone: Backbone, title: str, device: torch.device, autocast: str | None) -> None:
        self.backbone, self.title, self.device, self.autocast = backbone, title, device, autocast
        backbone.load(device)
        self.head = backbone.head
        self._checked = False
        self.check_eval_mode()

    def check_eval_mode(self) -> None:
        """Raise :class:`GateError` if any part of the model is in training mode, where its output is random."""
        try:
            module = self.backbone.module
        except InputError:
            return
        name = next((name for name, part in module.named_modules() if part.training), None)
        if name is not None:
            raise GateError(
                f"{self.title}: {name or 'the model'} is in training mode; "
                "load() and every column must leave it in eval mode"
            )

    def outputs(
        self, images: Tensor, columns: Mapping[str, Column], ids: Sequence[str], seed: int
    ) -> dict[str, Tensor]:
        """Features, logits and columns of a batch, float32 on the CPU, each one row a picture and finite."""
        images = images.to(self.device, non_blocking=True)
        captured: dict[str, dict[str, Any]] = {key: {} for key in columns}
        with self._seeded(seed), self._precision():
            with contextlib.ExitStack() as watching:
                for key, column in columns.items():
                    watching.enter_context(column.watch(self.backbone, captured[key]))
                with torch.no_grad():
                    features, logits = (out.detach().float() for out in self.backbone.forward(images))
            self._check_head(features, logits, ids)
            found = {"features": features, "logits": logits}
            for key, column in columns.items():
                batch = ImageBatch(images, features, logits, captured[key])
                with torch.enable_grad():
                    found[key] = column.compute(batch, self.backbone, self.head)
        return {key: self._checked_values(key, values, ids) for key, values in found.items()}

    def _check_head(self, features: Tensor, logits: Tensor, ids: Sequence[str]) -> None:
        """Once, on the first batch: the head's product with the features is the logits."""
        if self._checked:
            return
        if features.ndim != 2 or features.shape[1] != self.head.dim:
            raise GateError(
                f"{self.title} gives features of shape {tuple(features.shape)}, but its head takes "
                f"(n, {self.head.dim}); features must be exactly what enters the head"
            )
        self._checked_values("features", features, ids)
        self._checked_values("logits", logits, ids)
        with torch.autocast(self.device.type, enabled=False), torch.no_grad():
            expected = self.head(features)
        if expected.shape != logits.shape:
            raise GateError(
                f"{self.title} gives logits of shape {tuple(logits.shape)}, but its head gives {tuple(expected.shape)}"
            )
        difference, scale = float((expected - logits).abs().max()), float(logits.abs().max())
        if not difference <= HEAD_TOLERANCE[self.autocast] * max(scale, 1e-6):
            raise GateError(
                f"{self.title}: head(features) differs from the logits by up to {difference:.3g} "
                f"(largest logit {scale:.3g}). Likely the head is not the last layer or lacks its bias or temperature, "
                "or the features are taken a layer before or after what enters the head (pooling, norm, dropout)"
            )
        self._checked = True

    def _checked_values(self, key: str, values: Tensor, ids: Sequence[str]) -> Tensor:
        values = values.detach().float().cpu().contiguous()
        if values.ndim < 1 or len(values) != len(ids):
            raise InputError(f"column {key!r} of {self.title} has shape {tuple(values.shape)} for {len(ids)} pictures")
        finite = torch.isfinite(values).reshape(len(ids), -1).all(dim=1)
        if not bool(finite.all()):
            bad = [ids[row] for row in (~finite).nonzero().flatten().tolist()]
            cause = (
                "a half-precision overflow; run without autocast" if self.autocast else "broken weights or transform"
            )
            raise InputError(
                f"{key} of {self.title} hold NaN or infinite values for {', '.join(bad[:5])}"
                f"{f' and {len(bad) - 5} more' if len(bad) > 5 else ''}; likely {cause}"
            )
        return values

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=getattr(torch, self.autocast))

    @contextlib.contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        """Random numbers by the batch alone, so that a resumed run draws the same; the caller's state is kept."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            yield


class _Failure(NamedTuple):
    """Why a picture gives no tensor: the picture itself, or the dataset or transform, which no policy forgives."""

    row: int
    kind: Literal["picture", "dataset", "transform"]
    message: str


class _Batch(NamedTuple):
    """Rows of a segment, their tensors (n, 3, H, W), and what failed."""

    rows: list[int]
    images: Tensor
    failures: list[_Failure]


class _Pictures(TorchDataset):
    """Pictures by their row in a segment, decoded and transformed; picklable if the dataset and the transform are."""

    def __init__(
        self, dataset: Dataset, ids: Sequence[str], transform: Callable[[Image.Image], Tensor], policy: ImagePolicy
    ) -> None:
        self.dataset, self.ids, self.transform, self.policy = dataset, ids, transform, policy

    def __getitem__(self, row: int) -> tuple[int, Tensor | _Failure]:
        name = self.ids[row]
        try:
            picture = decode(self.dataset.open(name), self.policy, name=name)
        except ImageError as error:
            return row, _Failure(row, "picture", str(error))
        except FioodError as error:
            return row, _Failure(row, "dataset", str(error))
        try:
            return row, self.transform(picture)
        except Exception as error:
            return row, _Failure(
                row, "transform", f"the transform fails on picture {name!r}: {type(error).__name__}: {error}"
            )


def _collate(items: Sequence[tuple[int, Tensor | _Failure]]) -> _Batch:
    failures = [value for _, value in items if isinstance(value, _Failure)]
    good = [(row, value) for row, value in items if isinstance(value, Tensor)]
    other = next((row for row, value in items if not isinstance(value, (_Failure, Tensor))), None)
    if other is not None:
        return _Batch([], torch.empty(0), [_Failure(other, "transform", "the transform must give a torch tensor")])
    shapes = {tuple(value.shape) for _, value in good}
    if len(shapes) > 1:
        message = f"the transform gives pictures of different shapes {sorted(shapes)}; it must resize or crop to one"
        return _Batch([], torch.empty(0), [_Failure(good[0][0], "transform", message)])
    images = torch.stack([value for _, value in good]) if good else torch.empty(0)
    return _Batch([row for row, _ in good], images, failures)


def _check_picklable(pictures: _Pictures, title: str) -> None:
    for what, value in (("transform", pictures.transform), ("dataset", pictures.dataset)):
        try:
            pickle.dumps(value)
        except Exception as error:
            raise InputError(
                f"the {what} of {title if what == 'transform' else type(value).__name__} cannot be sent to worker "
                f"processes ({error}); define it at module level, or set workers to 0"
            ) from error


@contextlib.contextmanager
def _exact_arithmetic() -> Iterator[None]:
    """No TF32 and no algorithm chosen by timing, so that float32 means float32 and a resumed run repeats the bits."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    try:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = False, False, True
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before[1:]


def _labels(view: View, head: Head) -> np.ndarray | None:
    """For each picture the row of the head that stands for its class; None unless each has exactly one class."""
    if view.targets is None or any(len(target) != 1 for target in view.targets):
        return None
    classes = [target[0] for target in view.targets]
    if head.classes is not None:
        row_of = {number: row for row, numbers in enumerate(head.classes) for number in numbers}
        unknown = sorted(set(classes) - set(row_of))
        if unknown:
            raise InputError(
                f"no row of the head stands for class {unknown[0]} of {view.source}; its classes have others"
            )
        classes = [row_of[number] for number in classes]
    return np.array(classes, dtype=np.int64)


def _ignore(name: str, **data: Any) -> None:
    """Hear nothing."""
