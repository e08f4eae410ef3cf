"""Are two run folders the same, file by file, and if not: why, and may they differ there?

    .venv/bin/python scripts/trials/repeat.py RUN_A RUN_B

The same command, data and versions on the same kind of machine give the same bytes, whatever the run is called,
wherever it lies, and however many loader processes it has. What tells of time, speed, memory and places cannot be the
same and is left out; the table below names all of it. Any two folders will do: splits, predictions, exported models.
Ends with 1 where something differs that should not.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from ftcseg.files import read_yaml

Plain: TypeAlias = Callable[[Path], Any]
"""What of a file must be the same."""

PLACES = ("title", "dataset", "root")
"""Of run.json: what the folder is called, and where the set lies."""
UNASKED = ("data.workers", "data.split")
"""Settings that change how a run is made, and no number of it: loader processes, and where a split lies."""
_SPEED = re.compile(r"  [\d.]+ images/s  memory .* left$", re.MULTILINE)
_MEASURED = ("folder", "time", "images per second, mean", "memory at most, MB", "device memory at most, MB")
_ROW = re.compile(rf"<tr><td>(?:{'|'.join(map(re.escape, _MEASURED))})</td>.*?</tr>", re.DOTALL)
_SETTING = re.compile(rf"<tr><td><code>(?:{'|'.join(map(re.escape, UNASKED))})</code></td>.*?</tr>", re.DOTALL)
_COMMAND = re.compile(r"<p><code>ftcseg train .*?</code></p>", re.DOTALL)


def metrics(path: Path) -> Any:
    """The lines without what stands under `timing`."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [{key: value for key, value in line.items() if key != "timing"} for line in lines]


def log(path: Path) -> Any:
    """The lines without speed, memory and the time that is left."""
    return _SPEED.sub("", path.read_text(encoding="utf-8")).splitlines()


def note(path: Path) -> Any:
    """run.json without its seconds and its places."""
    return {key: value for key, value in json.loads(path.read_bytes()).items() if key not in ("seconds", *PLACES)}


def settings(path: Path) -> Any:
    """config.yaml without the settings of UNASKED, and why they are what they are."""
    told = read_yaml(path)
    return {key: value for part in ("config", "why") for key, value in _flat(told[part], f"{part}: ")}


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}{'' if name.endswith(': ') else '.'}{key}")
    elif name.partition(": ")[2] not in UNASKED:
        yield name, value


def report(path: Path) -> Any:
    """report.html without measured times, memory, places, and the settings of UNASKED."""
    text = path.read_text(encoding="utf-8")
    for left_out in (_ROW, _SETTING, _COMMAND):
        text = left_out.sub("", text)
    return re.split(r"(?=<)", text)


@dataclass(frozen=True, slots=True)
class Rule:
    """What of a file is compared, and what it may differ in."""

    plain: Plain
    but_for: str


RULES: Mapping[str, Rule] = {
    "metrics.jsonl": Rule(metrics, "times, speed and memory («timing»)"),
    "log.txt": Rule(log, "speed, memory and the time left"),
    "run.json": Rule(note, "the seconds it took, its title, and where the set lies"),
    "config.yaml": Rule(settings, f"the settings {' and '.join(UNASKED)}"),
    "report.html": Rule(report, "the time it took, its speed and memory, its folder and the command with its paths"),
}
LEFT_OUT = {".lock": "which process last held the folder"}


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file."""

    file: str
    same: bool
    """Apart from what may differ."""
    told: str


def compare(ours: Path, theirs: Path) -> list[Row]:
    """Every file of the two folders, by name."""
    names = {name for folder in (ours, theirs) for name in _files(folder)}
    return [_row(ours, theirs, name) for name in sorted(names)]


def _files(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _row(ours: Path, theirs: Path, name: str) -> Row:
    if name in LEFT_OUT:
        return Row(name, True, f"not compared: {LEFT_OUT[name]}")
    for folder in (ours, theirs):
        if not (folder / name).is_file():
            return Row(name, False, f"is not in {folder}")
    one, other = (ours / name).read_bytes(), (theirs / name).read_bytes()
    if one == other:
        return Row(name, True, "same bytes")
    rule = RULES.get(name)
    if rule is None:
        return Row(name, False, _tensors(one, other) if name.endswith(".safetensors") else _first(one, other, name))
    plain, plainly = rule.plain(ours / name), rule.plain(theirs / name)
    if plain == plainly:
        return Row(name, True, f"same but for {rule.but_for}")
    return Row(name, False, _where(plain, plainly))


def _tensors(one: bytes, other: bytes) -> str:
    """Which tensors differ, and by how much."""
    try:
        ours, theirs = load(one), load(other)
    except SafetensorError:
        return "is not whole in one of them"
    alone = ours.keys() ^ theirs.keys()
    if alone:
        return f"{len(alone)} tensors are in one of them only, such as {min(alone)}"
    changed = [name for name in sorted(ours) if ours[name].tobytes() != theirs[name].tobytes()]
    if not changed:
        return "the tensors are the same, the remarks at its head are not"
    far = max(float(np.abs(ours[n].astype(np.float64) - theirs[n].astype(np.float64)).max()) for n in changed)
    return f"{len(changed)} of {len(ours)} tensors differ, by up to {far:.3g}, the first of them {changed[0]}"


def _first(one: bytes, other: bytes, name: str) -> str:
    if PurePosixPath(name).suffix == ".json":
        return _where(json.loads(one), json.loads(other))
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"differs from byte {place} on; {len(one)} and {len(other)} bytes"


def _where(ours: Any, theirs: Any, at: str = "") -> str:
    """The first place where two plain values differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in [*ours, *(key for key in theirs if key not in ours)]:
            if key not in ours or key not in theirs:
                return f"{at}{key} is in one of them only"
            if ours[key] != theirs[key]:
                return _where(ours[key], theirs[key], f"{at}{key}/")
    if isinstance(ours, list) and isinstance(theirs, list):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                return _where(one, other, f"{at}{place}/")
        return f"{at or 'it'} has {len(ours)} and {len(theirs)} entries"
    return f"{at.rstrip('/') or 'it'}: {str(ours)[:100]!r} and {str(theirs)[:100]!r}"


def main() -> int:
    """Compare the two folders on the command line."""
    if len(sys.argv) != 3:
        sys.exit("usage: repeat.py RUN_A RUN_B")
    ours, theirs = map(Path, sys.argv[1:])
    for folder in (ours, theirs):
        if not folder.is_dir():
            sys.exit(f"There is no folder {folder}.")
    rows = compare(ours, theirs)
    width = max((len(row.file) for row in rows), default=0)
    for row in rows:
        print(f"{row.file:{width}}  {'' if row.same else 'DIFFERS: '}{row.told}")
    different = [row.file for row in rows if not row.same]
    print(
        f"\n{len(rows)} files, {len(different)} that differ where they should not." if different else "\nThe same run."
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
