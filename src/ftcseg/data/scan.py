"""Decode every file once and remember what was seen.

Facts are kept in the cache folder by path, size and modification time; a file that was only touched is recognised by
its hash. They are written as they come, so an interrupted scan goes on where it stopped. User data is only read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.data import masks
from ftcseg.data.images import MAX_PIXELS, Header, read_header, read_image
from ftcseg.errors import DataError, FtcsegError
from ftcseg.files import cache_folder, inside
from ftcseg.parallel import Progress, map_in_order, silent
from ftcseg.types import ClassFiles, MaskRef, Pixels, Record, Shapes

THUMB = 24
"""Side of the square grey thumbnails that near-duplicate frames are found with."""
MAX_DISTINCT = 512
"""More different stored values than this is no class mask; counting stops there."""
_FACTS_VERSION = 4  # raise when the facts below change meaning
_SEAL = 32  # characters in front of a row's facts that tell whether these are whole
_SAVE_EVERY = 1.0  # seconds; what is lost when the process is killed


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a file cannot be used."""

    kind: str
    detail: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image: its header, channels and depth, a thumbnail, or the problem that kept us from decoding it."""

    digest: str
    header: Header | None = None
    channels: int = 0
    dtype: str = ""
    lowest: float = 0.0
    highest: float = 0.0
    thumb: bytes = b""
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class MaskFacts:
    """One mask: its size and the pixel count of every stored value ("38") or colour ("#ff00ff")."""

    digest: str
    mode: str = ""
    format: str = ""
    height: int = 0
    width: int = 0
    values: dict[str, int] | None = None  # None: more than MAX_DISTINCT
    corners: dict[str, int] | None = None  # colours with each channel cut at 128, for RGB masks
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What one record's files hold."""

    image: ImageFacts
    mask: MaskFacts | None


def scan(
    root: Path,
    records: Sequence[Record],
    *,
    numbering: Sequence[str] = (),
    max_pixels: int = MAX_PIXELS,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[Facts]:
    """The facts of every record, in order; decoded on all cores the first time, remembered afterwards.

    `numbering` are the class names in the order of their ids, on which drawn masks depend.
    """
    with closing(_Memory(root, max_pixels, numbering)) as memory:
        found: list[Facts | None] = [memory.recall(record) for record in records]
        todo = [i for i, facts in enumerate(found) if facts is None]
        progress(len(records) - len(todo), len(records))
        fresh = map_in_order(partial(examine, root, max_pixels=max_pixels), [records[i] for i in todo], workers)
        for done, (i, facts) in enumerate(zip(todo, fresh, strict=True), len(records) - len(todo) + 1):
            found[i] = facts
            memory.keep(records[i], facts)
            progress(done, len(records))
    return [facts for facts in found if facts is not None]


def examine(root: Path, record: Record, max_pixels: int = MAX_PIXELS) -> Facts:
    """Decode one record's image and mask and note what they hold."""
    image = _examine_image(root, record.image, max_pixels)
    if record.mask is None:
        return Facts(image, None)
    return Facts(image, _examine_mask(root, record.mask, image.header, max_pixels))


def _examine_image(root: Path, name: str, max_pixels: int) -> ImageFacts:
    digest = ""
    try:
        path = inside(root, name)
        digest = _digest(path)
        header = read_header(path, max_pixels)
        pixels = read_image(path, max_pixels)
        if pixels.dtype == np.float32 and not np.isfinite(pixels).all():
            problem = Problem("nan", f"{path.name} holds NaN or infinity.", "Write numbers only.")
            return ImageFacts(digest, header, pixels.shape[2], str(pixels.dtype), problem=problem)
        return ImageFacts(
            digest,
            header,
            pixels.shape[2],
            str(pixels.dtype),
            float(pixels.min()),
            float(pixels.max()),
            _thumbnail(pixels),
        )
    except DataError as error:
        return ImageFacts(digest, problem=Problem(error.kind, error.what, error.remedy))
    except OSError as error:
        return ImageFacts(digest, problem=Problem("missing", f"{name}: {error.strerror}.", "Check the file."))


def _thumbnail(pixels: Pixels) -> bytes:
    grey = pixels.mean(axis=2, dtype=np.float64) if pixels.shape[2] > 1 else pixels[:, :, 0]
    largest = max(abs(float(pixels.min())), abs(float(pixels.max()))) or 1.0  # float images may hold anything finite
    small = np.asarray(
        Image.fromarray((grey / largest).astype(np.float32)).resize((THUMB, THUMB), Image.Resampling.BOX)
    )
    low, high = float(small.min()), float(small.max())
    return ((small - low) * (255 / max(high - low, 1e-6))).clip(0, 255).astype(np.uint8).tobytes()


def _examine_mask(root: Path, ref: MaskRef, image: Header | None, max_pixels: int) -> MaskFacts:
    digest = ""
    name = ref.paths[0][1] if isinstance(ref, ClassFiles) else ref.path
    try:
        if isinstance(ref, Shapes | ClassFiles):
            return _examine_drawn(root, ref, image, max_pixels)
        path = inside(root, ref.path)
        digest = _digest(path)
        stored = masks.read_stored(path, max_pixels)
        is_array = path.suffix.lower() in (".npy", ".npz")
        header = None if is_array else read_header(path, max_pixels)
        height, width = stored.shape[:2] if header is None else masks.upright_shape(header)
        return MaskFacts(
            digest,
            str(stored.dtype) if header is None else header.mode,
            "npy" if header is None else header.format,
            height=height,
            width=width,
            values=_count(stored),
            corners=_count(np.where(stored >= masks.ON, np.uint8(255), np.uint8(0))) if stored.ndim == 3 else None,
        )
    except DataError as error:
        return MaskFacts(digest, problem=Problem(error.kind, error.what, error.remedy))
    except OSError as error:
        return MaskFacts(digest, problem=Problem("missing", f"{name}: {error.strerror}.", "Check the file."))


def _examine_drawn(root: Path, ref: Shapes | ClassFiles, image: Header | None, max_pixels: int) -> MaskFacts:
    if image is None:
        return MaskFacts("", problem=Problem("image-needed", "Its image cannot be read.", "Mend the image first."))
    shape = masks.upright_shape(image)
    if isinstance(ref, Shapes):
        return MaskFacts("", "drawn", ref.kind, *shape, values=_count(masks.DRAWERS[ref.kind](root, ref, shape)))
    labels = masks.stack_class_files(root, ref, shape, image, max_pixels)
    return MaskFacts("", "drawn", "class-files", *shape, values=_count(labels))


def _count(stored: NDArray[Any]) -> dict[str, int] | None:
    """Pixels of each stored value or colour; None where there are too many different ones."""
    if stored.ndim == 3:
        values, counts = np.unique(masks.pack_colors(stored), return_counts=True)
        names = [f"#{v:06x}" for v in values[: MAX_DISTINCT + 1].tolist()]
    else:
        values, counts = _histogram(stored)
        names = [str(v) for v in values[: MAX_DISTINCT + 1].tolist()]
    return None if len(values) > MAX_DISTINCT else dict(zip(names, counts.tolist(), strict=True))


def _histogram(stored: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if stored.dtype != np.uint8:
        return np.unique(stored, return_counts=True)
    counts = np.bincount(stored.ravel(), minlength=256)
    values = np.flatnonzero(counts)
    return values, counts[values]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:32]


class _Memory:
    """Facts on disk, one small database per set root; losing it costs only time."""

    def __init__(self, root: Path, max_pixels: int, numbering: Sequence[str]) -> None:
        self.root = root
        self.salt = f"{_FACTS_VERSION}:{max_pixels}"
        self.drawn_salt = f"{self.salt}:{hashlib.sha256(repr(list(numbering)).encode()).hexdigest()[:16]}"
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
        self.saved = time.monotonic()
        self.db = self._open(cache_folder() / f"scan-{name}.sqlite")

    @staticmethod
    def _open(path: Path) -> sqlite3.Connection:
        create = "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, stamp TEXT, facts TEXT)"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(path, timeout=30)
            db.execute(create)
            db.execute("SELECT count(*) FROM files").fetchone()
        except (sqlite3.Error, OSError):  # a damaged or unwritable cache is no reason to stop: work without it
            db = sqlite3.connect(":memory:")
            db.execute(create)
        return db

    def recall(self, record: Record) -> Facts | None:
        now = self._stamp(record)
        try:
            entry = self.db.execute("SELECT stamp, facts FROM files WHERE path = ?", (_key(record),)).fetchone()
            if entry is None or now is None:
                return None
            stamp, facts = str(entry[0]), _from_json(str(entry[1]))
        except (sqlite3.Error, ValueError, LookupError, TypeError):  # damaged: as good as forgotten
            return None
        if stamp == now:
            return facts
        # Touched but perhaps not changed: the hash decides.
        if stamp.split("|")[0] == now.split("|")[0] and self._same_content(record, facts):
            self.keep(record, facts)
            return facts
        return None

    def keep(self, record: Record, facts: Facts) -> None:
        stamp = self._stamp(record)
        if stamp is None:
            return
        row = (_key(record), stamp, _to_json(facts))
        try:
            self.db.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", row)
            if time.monotonic() - self.saved > _SAVE_EVERY:
                self.db.commit()
                self.saved = time.monotonic()
        except sqlite3.Error:  # a full or locked disk costs only the memory of this file
            self.db.rollback()

    def close(self) -> None:
        try:
            self.db.commit()
        except sqlite3.Error:
            self.db.rollback()
        self.db.close()

    def _stamp(self, record: Record) -> str | None:
        """Salt and sizes, then times: `salt,size,size|mtime,mtime`."""
        try:
            stats = [inside(self.root, name).stat() for name in files_of(record)]
        except (OSError, FtcsegError):
            return None
        sizes = ",".join(str(s.st_size) for s in stats)
        salt = self.drawn_salt if isinstance(record.mask, Shapes) else self.salt
        return f"{salt},{sizes}|{','.join(str(s.st_mtime_ns) for s in stats)}"

    def _same_content(self, record: Record, facts: Facts) -> bool:
        names = files_of(record)
        digests = [facts.image.digest, *([facts.mask.digest] if facts.mask else [])]
        if len(names) != len(digests) or not all(digests):
            return False
        return all(_digest(inside(self.root, n)) == d for n, d in zip(names, digests, strict=True))


def files_of(record: Record) -> list[str]:
    """The image and whatever its mask is read from, relative to the root."""
    if record.mask is None:
        return [record.image]
    if isinstance(record.mask, ClassFiles):
        return [record.image, *(path for _, path in record.mask.paths)]
    return [record.image, record.mask.path]


def _key(record: Record) -> str:
    """What the facts depend on beside the files' contents: their names, and how a mask is made of them."""
    mask = record.mask
    how = mask.key if isinstance(mask, Shapes) else ""
    if isinstance(mask, ClassFiles):
        how = ",".join(str(class_id) for class_id, _ in mask.paths)
    return "\0".join([*files_of(record), how])


def _seal(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=_SEAL // 2).hexdigest()


def _to_json(facts: Facts) -> str:
    data = asdict(facts)
    data["image"]["thumb"] = facts.image.thumb.hex()
    text = json.dumps(data)
    return _seal(text) + text


def _from_json(sealed: str) -> Facts:
    """The facts of a row; ValueError where it is not as it was written, for a count that changed would be believed."""
    seal, text = sealed[:_SEAL], sealed[_SEAL:]
    if seal != _seal(text):
        raise ValueError("damaged")
    data = json.loads(text)
    image, mask = data["image"], data["mask"]
    image["header"] = Header(**image["header"]) if image["header"] else None
    image["thumb"] = bytes.fromhex(image["thumb"])
    for part in (image, mask):
        if part is not None and part["problem"]:
            part["problem"] = Problem(**part["problem"])
    return Facts(ImageFacts(**image), MaskFacts(**mask) if mask else None)
