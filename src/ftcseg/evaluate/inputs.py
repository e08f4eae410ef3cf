"""What a user means by «these images»: a folder, a pattern, files; and what their predictions are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from ftcseg.data.files_found import IMAGE_SUFFIXES, Tally, walk
from ftcseg.data.video import VIDEO_SUFFIXES, can_read_videos, is_video, no_reader
from ftcseg.errors import UsageError

Key: TypeAlias = tuple[str, int | None]
"""The path of an image; or that of a video, and the number of a frame."""
_NUMBERED = re.compile(r"(.*)-\d{6,}")  # the name of a frame's outputs


@dataclass(frozen=True, slots=True)
class Inputs:
    """Images and videos below one folder, by their paths from there, and what was found but cannot be read."""

    root: Path
    names: Sequence[str]
    problems: tuple[str, ...] = ()


def find_inputs(inputs: str | Path | Sequence[str | Path], out: Path) -> Inputs:
    """The images and videos a user means, without what lies in `out`."""
    return _readable_here(_found(inputs, out))


class Outputs:
    """What the outputs of each input are called, without a suffix; no two are called the same."""

    def __init__(self, names: Sequence[str]) -> None:
        self._stems = output_names(names)
        self._taken = {match[1].casefold() for stem in self._stems.values() if (match := _NUMBERED.fullmatch(stem))}

    def of(self, name: str, number: int | None) -> str:
        """`deep/b` for deep/b.png; `dive-000123` for a frame of dive.mp4."""
        stem = self._stems[name]
        if number is None:
            return stem
        # Frames that somebody cut out of dive.mp4 lie beside it as dive-000123.png more often than not.
        names = chain([stem, name], (f"{name}-frames{i}" for i in count()))
        return f"{next(n for n in names if n.casefold() not in self._taken)}-{number:06d}"


def output_names(names: Sequence[str]) -> dict[str, str]:
    """Image -> name of its outputs without a suffix; where a.jpg and a.png lie together both keep their whole name."""
    stems = {name: str(PurePosixPath(name).with_suffix("")) for name in names}
    # Compared without case, as some disks do; a whole name may be taken by a neighbour that had to keep its own.
    taken = Counter(stem.casefold() for stem in stems.values()) + Counter(name.casefold() for name in names)
    return {name: stem if taken[stem.casefold()] == 1 or stem == name else name for name, stem in stems.items()}


def _found(inputs: str | Path | Sequence[str | Path], out: Path) -> Inputs:
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


def _readable_here(found: Inputs) -> Inputs:
    """Without the videos where nothing can read them; where there is nothing else, that is an error."""
    videos = [name for name in found.names if is_video(name)]
    if not videos or can_read_videos():
        return found
    if len(videos) == len(found.names):
        raise no_reader(PurePosixPath(videos[0]).name)
    told = tuple(f"{name}: {no_reader(PurePosixPath(name).name)}" for name in videos)
    rest = [name for name in found.names if not is_video(name)]
    return replace(found, names=rest, problems=(*found.problems, *told))


def _folder(path: Path, out: Path) -> Inputs:
    if out.resolve() == path.resolve():
        raise UsageError(f"{out} is the folder of the images. Choose another --out.")
    tally = Tally()
    names = [n for n in walk(path, "", IMAGE_SUFFIXES | VIDEO_SUFFIXES, tally) if not _is_below(path / n, out)]
    if not names:
        images, videos = (", ".join(sorted(suffixes)) for suffixes in (IMAGE_SUFFIXES, VIDEO_SUFFIXES))
        raise UsageError(f"{path} holds no images and no videos. They end in {images}; in {videos}.")
    left_out = (f for f in tally.findings() if f.severity != "note")
    return Inputs(path, names, tuple(f"{f.file}: {f.detail}" for f in left_out))


def _matching(pattern: Path, out: Path) -> Inputs:
    parts = pattern.parts
    first = next(i for i, part in enumerate(parts) if any(sign in part for sign in "*?["))
    root = Path(*parts[:first])
    files = sorted(p for p in root.glob("/".join(parts[first:])) if p.is_file() and not _is_below(p, out))
    if not files:
        raise UsageError(f"No file matches {pattern}.")
    return Inputs(root, [p.relative_to(root).as_posix() for p in files])


def _listed(paths: list[Path], out: Path) -> Inputs:
    if not paths:
        raise UsageError("The list of images is empty.")
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise UsageError(f"{len(missing)} of {len(paths)} images are not there: {missing[0]} …")
    folders = {path: _folder(path, out) for path in paths if path.is_dir()}
    listed = [[path / name for name in folders[path].names] if path in folders else [path] for path in paths]
    whole = [path.absolute() for some in listed for path in some]
    root = next(p for p in whole[0].parents if all(path.is_relative_to(p) for path in whole))
    names = list(dict.fromkeys(path.relative_to(root).as_posix() for path in whole))
    return Inputs(root, names, tuple(problem for found in folders.values() for problem in found.problems))


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
