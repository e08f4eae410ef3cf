"""Images to files: masks, colours, overlays and confidences of as many frames as there are, in constant memory.

    masks/NAME.png        class ids, 8 bits, or 16 where there are more than 255 classes
    colors/NAME.png       the same in the classes' colours
    overlays/NAME.jpg     the frame with the colours over it
    confidence/NAME.png   probability of the class, 0 to 255
    predictions.json      the classes, and per image the share of each class and the mean confidence, in order

The frames of a video are images called NAME-000000, NAME-000001 and so on. Sizes and sub-folders are kept.
Interrupted, the same call goes on where it stopped: each file appears whole or not at all, `predictions.jsonl` has a
line for every image that is done, and predict.json says what made the folder.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.data import video
from ftcseg.data.images import read_image
from ftcseg.data.video import is_video
from ftcseg.data.writing import JPEG_QUALITY, claim
from ftcseg.errors import DataError, FtcsegError, ImageError, UsageError, unknown_name
from ftcseg.evaluate.batches import by_size, drawn_ahead
from ftcseg.evaluate.inputs import Inputs, Key, Outputs, find_inputs
from ftcseg.evaluate.predictor import Prediction, Predictor, Prepared, prepare
from ftcseg.files import atomic, disk_trouble, parse_json
from ftcseg.nets.folder import fingerprint
from ftcseg.parallel import Progress, silent
from ftcseg.types import ClassTable, Color, Labels, Pixels

Item = TypeVar("Item")
What: TypeAlias = Literal["masks", "colors", "overlays", "confidence"]
WHAT: tuple[What, ...] = get_args(What)
RECIPE = "predict.json"
JOURNAL = "predictions.jsonl"
SUMMARY = "predictions.json"
BYTE_CLASSES = 255  # ids that fit into 8 bits, 255 itself kept for «nobody knows»
PALETTE_CLASSES = 256


@dataclass(frozen=True, slots=True)
class Look:
    """How classes are shown to people."""

    classes: ClassTable
    colors: Sequence[Color]
    overlay: Callable[[Pixels, Labels], NDArray[np.uint8]]
    """(H, W, 3) picture of a frame with its classes over it."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """What became of a folder of images."""

    out: Path
    images: int
    """All that were asked for, each frame of a video being one."""
    made: int
    """Of these, predicted just now."""
    there: int
    """Of these, predicted before."""
    problems: tuple[str, ...]
    """One sentence for every image that was left out, and for every video whose end was."""


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    name: str
    number: int | None  # of a frame of a video
    prepared: Prepared
    pixels: Pixels | None  # kept only where an overlay is wanted


@dataclass(frozen=True, slots=True)
class _Length:
    """What is known about the length of a video."""

    name: str
    frames: int  # as many as its header says; once it was read, as many as there are
    is_read: bool = False
    is_whole: bool = False
    there: int = 0  # wanted frames that had been predicted before


def predict_folder(  # noqa: PLR0913  each choice has a name
    predictor: Predictor,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    look: Look,
    *,
    what: Collection[str] = WHAT,
    every: int = 1,
    progress: Progress = silent,
    workers: int = 2,
) -> Predicted:
    """Predict every image of a folder, a glob pattern, a single file or a list of files; see the top of this file.

    Of a video, every so many frames. One thread reads ahead, `workers` threads write behind; what is in memory does not
    grow with the number of images.
    """
    wanted = _wanted(what)
    if every < 1:
        raise UsageError(f"Every {every}th frame is none. Ask for at least 1.")
    place = Path(out)
    found = find_inputs(inputs, place)
    claim(place, _recipe(predictor, found), RECIPE)
    problems = list(found.problems)
    with _Journal(place / JOURNAL) as journal:
        work = _Work(predictor, found.root, place, look, wanted, Outputs(found.names), every, journal)
        count = _Count(found.names, every, journal.lengths)
        todo = [name for name in found.names if not work.is_done(name)]
        count.there = count.total - sum(count.asked(name) for name in todo)
        progress(count.done, count.total)
        for result in work.results(todo, max(1, workers)):
            if isinstance(result, str):
                problems.append(result)
                count.left_out += 1
            elif isinstance(result, _Length):
                count.learn(result)
                journal.note(result)
            else:
                journal.add(result)
                count.made += 1
            progress(count.done, count.total)
        _write_summary(place / SUMMARY, journal, count.keys(), look, problems)
    return Predicted(place, count.total, count.made, count.there, tuple(problems))


class _Count:
    """How many images are asked for, frames included, and what became of them; videos tell their length as they go."""

    def __init__(self, names: Sequence[str], every: int, lengths: Mapping[str, int]) -> None:
        self._names = names
        self._every = every
        self._lengths = dict(lengths)
        self._cut: set[str] = set()
        self.total = sum(map(self.asked, names))
        self.made = self.there = self.left_out = 0

    @property
    def done(self) -> int:
        return self.made + self.there + self.left_out

    def asked(self, name: str) -> int:
        """Images that one input stands for; what is behind a video's last readable frame counts as one."""
        if name not in self._lengths:
            return 1
        return len(range(0, self._lengths[name], self._every)) + (name in self._cut)

    def learn(self, length: _Length) -> None:
        before = self.asked(length.name)
        self._lengths[length.name] = length.frames
        if length.is_read and not length.is_whole:
            self._cut.add(length.name)
        self.total += self.asked(length.name) - before
        self.there += length.there

    def keys(self) -> Iterator[Key]:
        """Everything asked for, in order."""
        for name in self._names:
            numbers = range(0, self._lengths[name], self._every) if name in self._lengths else (None,)
            yield from ((name, number) for number in numbers)


def _wanted(what: Collection[str]) -> tuple[What, ...]:
    for name in what:
        if name not in WHAT:
            raise unknown_name("kind of prediction file", name, WHAT)
    if not what:
        raise UsageError(f"Ask for at least one of {', '.join(WHAT)}.")
    return tuple(name for name in WHAT if name in what)


def _recipe(predictor: Predictor, found: Inputs) -> dict[str, object]:
    """What must be the same for an interrupted folder to be continued."""
    facts = predictor.facts
    return {
        "command": "predict",
        "inputs": str(found.root.resolve()),
        "model": fingerprint(predictor.net),
        "short_side": facts.short_side,
        "mean": list(facts.mean),
        "std": list(facts.std),
        "window": predictor.window,
        "flips": predictor.flips,
        "scales": list(predictor.scales),
    }


def _target(out: Path, kind: What, name: str) -> Path:
    return out / kind / f"{name}.{'jpg' if kind == 'overlays' else 'png'}"


@dataclass(frozen=True, slots=True)
class _Work:
    """Reading, asking and writing, each in its own thread."""

    predictor: Predictor
    root: Path
    out: Path
    look: Look
    wanted: tuple[What, ...]
    outputs: Outputs
    every: int
    journal: _Journal

    def is_done(self, name: str) -> bool:
        """Whether an image, or every wanted frame of a video, has all its files from an earlier call."""
        frames = self.journal.lengths.get(name)
        if frames is None:
            return self._has(name, None)
        return all(self._has(name, number) for number in range(0, frames, self.every))

    def _has(self, name: str, number: int | None) -> bool:
        if (name, number) not in self.journal:
            return False
        output = self.outputs.of(name, number)
        return all(_target(self.out, kind, output).is_file() for kind in self.wanted)

    def results(self, names: Sequence[str], workers: int) -> Iterator[dict[str, object] | _Length | str]:
        """The journal entry of every image once its files are written, or a sentence about why there are none.

        In between, what was learned about the length of videos.
        """
        batch = self.predictor.batch
        pool = ThreadPoolExecutor(workers, thread_name_prefix="ftcseg-write")
        pending: deque[Future[dict[str, object]]] = deque()
        aside: list[_Length | str] = []
        frames = _readable(drawn_ahead(self._read(names), 2 * batch), aside)
        try:
            for group in by_size(frames, lambda frame: frame.prepared.size, batch):
                predictions = self.predictor.predictions([frame.prepared for frame in group])
                for frame, said in zip(group, predictions, strict=True):
                    pending.append(pool.submit(self._write, frame, said))
                    while len(pending) > workers + batch:
                        yield pending.popleft().result()
                yield from _emptied(aside)
            while pending:
                yield pending.popleft().result()
            yield from _emptied(aside)
        except OSError as error:
            raise FtcsegError(f"{self.out} cannot be written to: {error.strerror or error}.") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, names: Sequence[str]) -> Generator[_Frame | _Length | str]:
        for name in names:
            still = None if is_video(name) else self._still(name)
            if still is None:
                yield from self._frames(name)
            else:
                yield still

    def _still(self, name: str) -> _Frame | str | None:
        """The image, or what is wrong with it; None where it is no still image."""
        try:
            return self._frame(name, None, read_image(self.root / name))
        except DataError as error:
            return None if error.kind == "animated" else f"{name}: {error}"

    def _frames(self, name: str) -> Iterator[_Frame | _Length | str]:
        """The wanted frames of a video, as far as it can be read."""
        path, grey = self.root / name, self.predictor.facts.in_channels == 1
        read, there = 0, 0
        try:
            yield _Length(name, video.length(path) or 1)
            for number, pixels in video.frames(path, partial(self._wants, name), grey=grey):
                if pixels is not None:
                    yield self._frame(name, number, pixels)
                elif number % self.every == 0:
                    there += 1
                read = number + 1
            if read == 0:
                raise ImageError("It holds no frames.", remedy="Copy it again from its source.")
        except DataError as error:
            yield _Length(name, read, is_read=True, there=there)
            yield f"{name}: {f'from frame {read} on: ' if read else ''}{error}"
        else:
            yield _Length(name, read, is_read=True, is_whole=True, there=there)

    def _wants(self, name: str, number: int) -> bool:
        return number % self.every == 0 and not self._has(name, number)

    def _frame(self, name: str, number: int | None, pixels: Pixels) -> _Frame:
        prepared = prepare(pixels, self.predictor.facts, self.predictor.scales)
        return _Frame(name, number, prepared, pixels if "overlays" in self.wanted else None)

    def _write(self, frame: _Frame, said: Prediction) -> dict[str, object]:
        """Write one image's files; returns its journal entry."""
        name = self.outputs.of(frame.name, frame.number)
        for kind in self.wanted:
            image = self._picture(kind, frame, said)
            with atomic(_target(self.out, kind, name)) as file:
                if kind == "overlays":
                    image.save(file, "JPEG", quality=JPEG_QUALITY)
                else:
                    image.save(file, "PNG")
        height, width = said.labels.shape
        counts = np.bincount(said.labels.ravel())
        shares = {str(i): round(int(n) / said.labels.size, 6) for i, n in enumerate(counts) if n}
        conf = round(float(said.conf.mean(dtype=np.float64)), 6)
        return {
            "image": frame.name,
            **({} if frame.number is None else {"frame": frame.number}),
            "output": name,
            "height": height,
            "width": width,
            "shares": shares,
            "confidence": conf,
        }

    def _picture(self, kind: What, frame: _Frame, said: Prediction) -> Image.Image:
        count = len(self.look.classes)
        if kind == "confidence":
            return Image.fromarray(np.rint(said.conf * 255).clip(0, 255).astype(np.uint8))
        if kind == "masks":
            return Image.fromarray(said.labels.astype(np.uint8 if count <= BYTE_CLASSES else np.uint16))
        if kind == "overlays":
            assert frame.pixels is not None
            return Image.fromarray(self.look.overlay(frame.pixels, said.labels))
        colors = np.array(self.look.colors, np.uint8)
        if count > PALETTE_CLASSES:
            return Image.fromarray(colors[said.labels])
        image = Image.fromarray(said.labels.astype(np.uint8), "P")
        image.putpalette(colors.tobytes())
        return image


def _readable(frames: Iterator[_Frame | _Length | str], aside: list[_Length | str]) -> Iterator[_Frame]:
    """The frames; lengths, and sentences about what cannot be read, are put aside."""
    for frame in frames:
        if isinstance(frame, _Frame):
            yield frame
        else:
            aside.append(frame)


def _emptied(items: list[Item]) -> Iterator[Item]:
    while items:
        yield items.pop(0)


class _Journal:
    """A line of JSON for every image that is done, in the order of doing; only places in the file are remembered.

    A video that was read to its end has a line as well, with its number of frames.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at: dict[Key, int] = {}
        self.lengths: dict[str, int] = {}

    def __enter__(self) -> _Journal:
        self._file = self._path.open("a+b")
        self._file.seek(0)
        at, line = 0, b""
        for line in self._file:
            entry = _entry_in(line)
            if "frames" in entry:
                self.lengths[entry["image"]] = entry["frames"]
            elif entry:
                self._at[entry["image"], entry.get("frame")] = at
            at += len(line)
        if line and not line.endswith(b"\n"):  # the last one was cut off when its process was killed
            self._file.write(b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        with disk_trouble(self._path):
            self._file.close()

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def add(self, entry: Mapping[str, Any]) -> None:
        self._at[entry["image"], entry.get("frame")] = self._write(entry)

    def note(self, length: _Length) -> None:
        """Remember how long a video is, once it was read to its end."""
        if length.is_whole and self.lengths.get(length.name) != length.frames:
            self.lengths[length.name] = length.frames
            self._write({"image": length.name, "frames": length.frames})

    def line(self, key: Key) -> bytes:
        self._file.seek(self._at[key])
        return self._file.readline().rstrip()

    def _write(self, entry: Mapping[str, Any]) -> int:
        """Add a line; returns where it begins."""
        with disk_trouble(self._path):
            at = self._file.seek(0, 2)
            self._file.write(json.dumps(entry).encode() + b"\n")
            self._file.flush()
        return at


def _entry_in(line: bytes) -> dict[str, Any]:
    """What a line says; nothing where it is torn."""
    try:
        entry = parse_json(line)
    except ValueError:
        return {}
    counts = (int, type(None))
    fine = isinstance(entry, dict) and isinstance(entry.get("image"), str) and type(entry.get("frame")) in counts
    return entry if fine and type(entry.get("frames", 0)) is int else {}


def _write_summary(path: Path, journal: _Journal, keys: Iterable[Key], look: Look, problems: Sequence[str]) -> None:
    """predictions.json, written line by line: a million images fit."""
    classes = [
        {"id": c.id, "name": c.name, "background": c.background, "color": list(look.colors[c.id])} for c in look.classes
    ]
    with atomic(path) as file:
        file.write(f'{{\n"ftcseg": 1,\n"classes": {json.dumps(classes)},\n"images": ['.encode())
        for place, key in enumerate(key for key in keys if key in journal):
            file.write((b",\n" if place else b"\n") + journal.line(key))
        file.write(f'\n],\n"problems": {json.dumps(list(problems))}\n}}\n'.encode())
