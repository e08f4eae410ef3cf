"""Images to files: masks, colours, overlays and confidences of as many frames as there are, in constant memory.

    masks/NAME.png        class ids, 8 bits, or 16 where there are more than 255 classes
    colors/NAME.png       the same in the classes' colours
    overlays/NAME.jpg     the frame with the colours over it
    confidence/NAME.png   probability of the class, 0 to 255
    predictions.json      the classes, and per image the share of each class and the mean confidence, in order

Sizes and sub-folders are kept. Interrupted, the same call goes on where it stopped: each file appears whole or not at
all, `predictions.jsonl` has a line for every image that is done, and predict.json says what made the folder.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ftcseg.data.files_found import IMAGE_SUFFIXES, Tally, walk
from ftcseg.data.images import read_image
from ftcseg.data.writing import JPEG_QUALITY, claim
from ftcseg.errors import DataError, FtcsegError, UsageError, unknown_name
from ftcseg.evaluate.batches import ahead, by_size
from ftcseg.evaluate.predictor import Prediction, Predictor, Prepared, prepare
from ftcseg.files import atomic
from ftcseg.nets.folder import fingerprint
from ftcseg.parallel import Progress, silent
from ftcseg.types import ClassTable, Color, Labels, Pixels

What: TypeAlias = Literal["masks", "colors", "overlays", "confidence"]
WHAT: tuple[What, ...] = get_args(What)
VIDEO_SUFFIXES = frozenset({".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv", ".mts"})
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
class Inputs:
    """Images below one folder, by their paths from there, and what was found but cannot be read."""

    root: Path
    names: Sequence[str]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Predicted:
    """What became of a folder of images."""

    out: Path
    images: int
    made: int
    """Of these, predicted just now; the others were there already."""
    problems: tuple[str, ...]
    """One sentence for every image that was left out."""


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    name: str
    prepared: Prepared
    pixels: Pixels | None  # kept only where an overlay is wanted


def predict_folder(  # noqa: PLR0913  each choice has a name
    predictor: Predictor,
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    look: Look,
    *,
    what: Collection[str] = WHAT,
    progress: Progress = silent,
    workers: int = 2,
) -> Predicted:
    """Predict every image of a folder, a glob pattern, a single file or a list of files; see the top of this file.

    One thread reads ahead, `workers` threads write behind; what is in memory does not grow with the number of images.
    """
    wanted = _wanted(what)
    place = Path(out)
    found = find_inputs(inputs, place)
    claim(place, _recipe(predictor, found), RECIPE)
    outputs = output_names(found.names)
    problems = list(found.problems)
    with _Journal(place / JOURNAL) as journal:
        todo = [name for name in found.names if not (name in journal and _is_done(place, outputs[name], wanted))]
        done = len(found.names) - len(todo)
        progress(done, len(found.names))
        work = _Work(predictor, found.root, place, look, wanted, outputs)
        for entry in work.results(todo, max(1, workers)):
            if isinstance(entry, str):
                problems.append(entry)
            else:
                journal.add(entry)
            done += 1
            progress(done, len(found.names))
        _write_summary(place / SUMMARY, journal, found.names, look, problems)
    made = len(todo) - (len(problems) - len(found.problems))
    return Predicted(place, len(found.names), made, tuple(problems))


def find_inputs(inputs: str | Path | Sequence[str | Path], out: Path) -> Inputs:
    """The images a user means, without what lies in `out`; a video is refused with the way to its frames."""
    if not isinstance(inputs, str | Path):
        return _listed([Path(item) for item in inputs], out)
    path = Path(inputs)
    if path.is_dir():
        return _folder(path, out)
    if path.is_file():
        return _listed([path], out)
    if any(sign in str(inputs) for sign in "*?["):
        return _matching(path, out)
    raise UsageError(f"There is no file or folder {path}. Give images, a folder of them, or a pattern such as «*.png».")


def output_names(names: Sequence[str]) -> dict[str, str]:
    """Image -> name of its outputs without a suffix; where a.jpg and a.png lie together both keep their whole name."""
    stems = {name: str(PurePosixPath(name).with_suffix("")) for name in names}
    # Compared without case, as some disks do; a whole name may be taken by a neighbour that had to keep its own.
    taken = Counter(stem.casefold() for stem in stems.values()) + Counter(name.casefold() for name in names)
    return {name: stem if taken[stem.casefold()] == 1 or stem == name else name for name, stem in stems.items()}


def _wanted(what: Collection[str]) -> tuple[What, ...]:
    for name in what:
        if name not in WHAT:
            raise unknown_name("kind of prediction file", name, WHAT)
    if not what:
        raise UsageError(f"Ask for at least one of {', '.join(WHAT)}.")
    return tuple(name for name in WHAT if name in what)


def _folder(path: Path, out: Path) -> Inputs:
    if out.resolve() == path.resolve():
        raise UsageError(f"{out} is the folder of the images. Choose another --out.")
    tally = Tally()
    names = [name for name in walk(path, "", IMAGE_SUFFIXES, tally) if not _is_below(path / name, out)]
    if not names:
        _refuse_videos(sorted(p for p in path.iterdir() if p.suffix.lower() in VIDEO_SUFFIXES))
        raise UsageError(f"{path} holds no images. They end in {', '.join(sorted(IMAGE_SUFFIXES))}.")
    left_out = (f for f in tally.findings() if f.severity != "note")
    return Inputs(path, names, tuple(f"{f.file}: {f.detail}" for f in left_out))


def _matching(pattern: Path, out: Path) -> Inputs:
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if any(sign in part for sign in "*?["))
    root = Path(*parts[:first])
    files = sorted(p for p in root.glob("/".join(parts[first:])) if p.is_file() and not _is_below(p, out))
    if not files:
        raise UsageError(f"No file matches {pattern}.")
    _refuse_videos(files)
    return Inputs(root, [p.relative_to(root).as_posix() for p in files])


def _listed(paths: list[Path], out: Path) -> Inputs:
    if not paths:
        raise UsageError("The list of images is empty.")
    _refuse_videos(paths)
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"{len(missing)} of {len(paths)} images are not there: {missing[0]} …")
    folders = {path: _folder(path, out) for path in paths if path.is_dir()}
    listed = [[path / name for name in folders[path].names] if path in folders else [path] for path in paths]
    whole = [path.absolute() for some in listed for path in some]
    root = next(p for p in whole[0].parents if all(path.is_relative_to(p) for path in whole))
    names = list(dict.fromkeys(path.relative_to(root).as_posix() for path in whole))
    return Inputs(root, names, tuple(problem for found in folders.values() for problem in found.problems))


def _refuse_videos(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.suffix.lower() in VIDEO_SUFFIXES:
            raise UsageError(
                f"{path.name} is a video. Turn it into frames first: "
                f"«mkdir frames && ffmpeg -i {path.name} frames/%06d.png», then predict frames/."
            )


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


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


def _is_done(out: Path, name: str, wanted: Sequence[What]) -> bool:
    return all(_target(out, kind, name).is_file() for kind in wanted)


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
    outputs: Mapping[str, str]

    def results(self, names: Sequence[str], workers: int) -> Iterator[dict[str, object] | str]:
        """The journal entry of every image once its files are written, or a sentence about why there are none."""
        batch = self.predictor.batch
        pool = ThreadPoolExecutor(workers, thread_name_prefix="ftcseg-write")
        pending: deque[Future[dict[str, object]]] = deque()
        failed: list[str] = []
        frames = _readable(ahead(self._read, names, 2 * batch), failed)
        try:
            for group in by_size(frames, lambda frame: frame.prepared.size, batch):
                predictions = self.predictor.predictions([frame.prepared for frame in group])
                for frame, said in zip(group, predictions, strict=True):
                    pending.append(pool.submit(self._write, frame, said))
                    while len(pending) > workers + batch:
                        yield pending.popleft().result()
                yield from _emptied(failed)
            while pending:
                yield pending.popleft().result()
            yield from _emptied(failed)
        except OSError as error:
            raise FtcsegError(f"{self.out} cannot be written to: {error.strerror or error}.") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, name: str) -> _Frame | str:
        try:
            pixels = read_image(self.root / name)
            prepared = prepare(pixels, self.predictor.facts, self.predictor.scales)
        except DataError as error:
            return f"{name}: {error}"
        return _Frame(name, prepared, pixels if "overlays" in self.wanted else None)

    def _write(self, frame: _Frame, said: Prediction) -> dict[str, object]:
        """Write one image's files; returns its journal entry."""
        name = self.outputs[frame.name]
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


def _readable(frames: Iterator[_Frame | str], failed: list[str]) -> Iterator[_Frame]:
    """The frames; sentences about unreadable ones are put aside."""
    for frame in frames:
        if isinstance(frame, str):
            failed.append(frame)
        else:
            yield frame


def _emptied(sentences: list[str]) -> Iterator[str]:
    while sentences:
        yield sentences.pop(0)


class _Journal:
    """A line of JSON for every image that is done, in the order of doing; only places in the file are remembered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at: dict[str, int] = {}

    def __enter__(self) -> _Journal:
        self._file = self._path.open("a+b")
        self._file.seek(0)
        at, line = 0, b""
        for line in self._file:
            name = _name_in(line)
            if name is not None:
                self._at[name] = at
            at += len(line)
        if line and not line.endswith(b"\n"):  # the last one was cut off when its process was killed
            self._file.write(b"\n")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def add(self, entry: Mapping[str, object]) -> None:
        self._at[str(entry["image"])] = self._file.seek(0, 2)
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()

    def line(self, name: str) -> bytes:
        self._file.seek(self._at[name])
        return self._file.readline().rstrip()


def _name_in(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry["image"] if isinstance(entry, dict) and isinstance(entry.get("image"), str) else None


def _write_summary(path: Path, journal: _Journal, names: Sequence[str], look: Look, problems: Sequence[str]) -> None:
    """predictions.json, written line by line: a million images fit."""
    classes = [
        {"id": c.id, "name": c.name, "background": c.background, "color": list(look.colors[c.id])} for c in look.classes
    ]
    with atomic(path) as file:
        file.write(f'{{\n"ftcseg": 1,\n"classes": {json.dumps(classes)},\n"images": ['.encode())
        for number, name in enumerate(name for name in names if name in journal):
            file.write((b",\n" if number else b"\n") + journal.line(name))
        file.write(f'\n],\n"problems": {json.dumps(list(problems))}\n}}\n'.encode())
