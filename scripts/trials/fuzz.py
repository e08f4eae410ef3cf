"""Damage files at random and have every reader read them: a crash, a hang or a flood of memory is a fault.

    .venv/bin/python scripts/trials/fuzz.py --minutes 10 --seed 0                        # the targets named first
    .venv/bin/python scripts/trials/fuzz.py --minutes 1 --target coco --target labelme --out findings

The files come from the package's own writers (`tests/fuzz/fuzz_targets.py`). They are damaged as bytes (bits, cuts,
splices, lengths, words of a nasty dictionary) and, where they have a structure, as what they are: JSON, YAML and XML
keep their brackets, PNG chunks their checksums, arrays in zip files and safetensors headers their frame. An input that
reaches a line of ftcseg which none reached before is kept and damaged further. Every input has some seconds and some
memory; the process that reads it is another one, so that nothing it does ends the trial. Each finding is kept as the
folder of a seed for `tests/fuzz/seeds`, with its traceback; findings with the same two innermost places are one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "fuzz"))

from fuzz_mutations import mutated  # noqa: E402
from fuzz_targets import NAMED, TARGETS, Target, judge  # noqa: E402

MOST_SECONDS = 5.0
"""Of computing; an input that is read for longer hangs. A busy machine makes nothing hang."""
MOST_SILENCE = 120.0
"""Seconds by the clock without a sign of life, after which a reading process is taken for dead."""
MOST_MEMORY = 400 * 2**20
"""Bytes that reading may add to the process before it is a finding."""
HARD_MEMORY = 8 * 2**30
"""Bytes of address space at which a process gets no more."""
LARGEST = 2**18
"""Bytes of the largest input; damage that adds must not add for ever."""
_PACKAGE = f"{os.sep}ftcseg{os.sep}"
_NOW = "now.txt"  # the file that is being read
_REPORT_EVERY = 50  # inputs
_WATCHED = 0.3  # of the inputs
_MEMORY = Path("/dev/shm")  # noqa: S108  a disk would be most of the time


@dataclass
class Tally:
    """What came of one target."""

    inputs: int = 0
    kept: int = 0
    lines: int = 0
    slowest: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)


class _Hang(BaseException):
    pass


class Corpus:
    """Inputs worth damaging further, and the lines of ftcseg that they reach."""

    def __init__(self, seeds: list[tuple[str, bytes]]) -> None:
        self.inputs = seeds
        self.seen: set[tuple[CodeType, int]] = set()
        self._fresh = 0

    @contextmanager
    def watching(self, *, asked: bool = True) -> Iterator[None]:
        """Note the lines that are reached inside, if asked to: it takes as long as reading itself."""
        before = len(self.seen)
        sys.settrace(self._call if asked else None)
        try:
            yield
        finally:
            sys.settrace(None)
            self._fresh = len(self.seen) - before

    def keep(self, name: str, data: bytes) -> None:
        """Add an input if it reached something new."""
        if self._fresh:
            self.inputs.append((name, data))

    def _call(self, frame: FrameType, _event: str, _arg: object) -> Any:
        return self._line if _PACKAGE in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, _arg: object) -> Any:
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
        return self._line


def fuzz(name: str, seconds: float, seed: int, out: Path) -> Tally:
    """Try one target for so long; its findings are kept below `out`."""
    tally, target = Tally(), TARGETS[name]
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        os.environ["FTCSEG_CACHE"] = f"{folder}/cache"
        root, state = Path(folder) / "set", Path(folder) / "state.json"
        root.mkdir()
        whole = _made(target, root, state)
        spent = _children()
        turn = 0
        while (left := spent + seconds - _children()) > 0.5:
            turn += 1
            _one_process(target, root, whole, (f"{seed}/{name}/{turn}", left, state))
            _collect(name, root, state, tally, out)
    tally.findings.sort()
    return tally


def _made(target: Target, root: Path, names: Path) -> dict[str, bytes]:
    """The files of a target, made in a process of its own: one that has trained may not be forked any more."""
    child = os.fork()
    if child == 0:
        try:
            names.write_text(json.dumps(list(target.make(root))))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return {file: (root / file).read_bytes() for file in json.loads(names.read_text())}


def _one_process(target: Target, root: Path, whole: dict[str, bytes], turn: tuple[str, float, Path]) -> None:
    """Read damaged inputs in a process of their own until it ends, dies or has grown; watch that it goes on."""
    state = turn[2]
    for old in (state, state.with_name(_NOW)):
        old.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        try:
            _read_many(target, root, whole, turn)
        except BaseException:
            traceback.print_exc()  # a fault of the trial's own
        finally:
            os._exit(0)
    last, seen = time.monotonic(), -1.0
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.05)
        sign = state.with_name(_NOW)
        now = sign.stat().st_mtime if sign.is_file() else 0.0
        if now != seen:
            seen, last = now, time.monotonic()
        # What hangs within a library does not hear the alarm.
        if time.monotonic() - last > MOST_SILENCE:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return


def _read_many(target: Target, root: Path, whole: dict[str, bytes], turn: tuple[str, float, Path]) -> None:
    """The life of a reading process; it leaves its state behind after every input."""
    seed, left, state = turn
    resource.setrlimit(resource.RLIMIT_AS, (HARD_MEMORY, HARD_MEMORY))
    signal.signal(signal.SIGPROF, _alarmed)
    warnings.simplefilter("error")
    warnings.simplefilter("default", ResourceWarning)  # raised where nobody can catch it
    rng, until = random.Random(seed), time.process_time() + left  # noqa: S311  nothing secret
    corpus, counts, findings = Corpus(list(whole.items())), Counter[str](), dict[str, dict[str, str]]()
    slowest, inputs = 0.0, 0
    for file in whole:
        with corpus.watching():
            _outcome(target, root, file, {})
    base = _memory()

    def report() -> None:
        note = {"inputs": inputs, "kept": len(corpus.inputs), "lines": len(corpus.seen), "slowest": slowest}
        _write(state, {**note, "outcomes": counts, "findings": findings})

    while time.process_time() < until:
        name, data = rng.choice(corpus.inputs)
        data = mutated(name, data, rng, [other for _, other in corpus.inputs])[:LARGEST]
        state.with_name(_NOW).write_text(name)
        (root / name).write_bytes(data)
        began, known = time.process_time(), len(findings)
        with corpus.watching(asked=rng.random() < _WATCHED):
            outcome = _outcome(target, root, name, findings)
        inputs, slowest = inputs + 1, max(slowest, time.process_time() - began)
        counts[outcome] += 1
        full = _memory() - base > MOST_MEMORY
        if full:
            findings.setdefault("memory", {"file": name, "data": data.hex(), "told": f"{_memory() - base:,} bytes"})
        if full or len(findings) > known or inputs % _REPORT_EVERY == 0:
            report()
        if full:
            break
        corpus.keep(name, data)
        _restore(root, whole if target.writes else {name: whole[name]})
    report()
    state.with_name(_NOW).unlink(missing_ok=True)


def _outcome(target: Target, root: Path, name: str, findings: dict[str, dict[str, str]]) -> str:
    """What reading came to; a fault is put among the findings."""
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        return judge(target, root, name)
    except _Hang as error:
        fault: BaseException = error
    except Exception as error:  # whatever it is, it is what we look for
        fault = error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    sys.settrace(None)
    told = "".join(traceback.format_exception(fault))
    place = f"{type(fault).__name__} at {_place(fault)}"
    findings.setdefault(place, {"file": name, "data": (root / name).read_bytes().hex(), "told": told})
    return type(fault).__name__


def _place(fault: BaseException) -> str:
    """The two innermost places in ftcseg."""
    frames = [f for f in traceback.extract_tb(fault.__traceback__) if _PACKAGE in f.filename] or traceback.extract_tb(
        fault.__traceback__
    )
    return " < ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in reversed(frames[-2:]))


def _alarmed(_signal: int, _frame: FrameType | None) -> None:
    raise _Hang(f"more than {MOST_SECONDS} seconds of computing")


def _children() -> float:
    """Seconds that the reading processes have computed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _memory() -> int:
    """The most bytes that this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _write(path: Path, state: dict[str, Any]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(state))
    beside.replace(path)


def _restore(root: Path, whole: dict[str, bytes]) -> None:
    for name, data in whole.items():
        if not (root / name).is_file() or (root / name).read_bytes() != data:
            (root / name).write_bytes(data)


def _collect(target: str, root: Path, state: Path, tally: Tally, out: Path) -> None:
    """Add what a process left behind; one that died was killed by the input it was reading."""
    empty = {"inputs": 0, "kept": 0, "lines": 0, "slowest": 0.0, "outcomes": {}, "findings": {}}
    left = json.loads(state.read_text()) if state.is_file() else empty
    findings = dict(left["findings"])
    if (now := state.with_name(_NOW)).is_file():
        data = (root / now.read_text()).read_bytes()
        told = "The process hung within a library, or died."
        findings[f"death {hashlib.sha256(data).hexdigest()[:8]}"] = {
            "file": now.read_text(),
            "data": data.hex(),
            "told": told,
        }
    tally.inputs += left["inputs"]
    tally.kept, tally.lines = max(tally.kept, left["kept"]), max(tally.lines, left["lines"])
    tally.slowest = max(tally.slowest, left["slowest"])
    tally.outcomes.update(left["outcomes"])
    for place, finding in findings.items():
        if place not in tally.findings:
            tally.findings.append(place)
            _keep(out / target / _slug(place), place, finding)


def _slug(place: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in place)[:80].strip("-")


def _keep(folder: Path, place: str, finding: dict[str, str]) -> None:
    file = folder / finding["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes.fromhex(finding["data"]))
    (folder / "traceback.txt").write_text(f"{place}\n\n{finding['told']}", encoding="utf-8", errors="backslashreplace")


def main() -> int:
    """Try the targets in turn, each for its share of the time; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of computing, for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", choices=[*TARGETS, "rest"], help="else those named first")
    parser.add_argument("--out", type=Path, default=Path("findings"), help="where findings are kept")
    parser.add_argument("--json", type=Path, help="where the counts are written")
    chosen = parser.parse_args()
    names = list(chosen.target or NAMED)
    if "rest" in names:
        names = [name for name in TARGETS if name not in NAMED]
    results: dict[str, Any] = {}
    for name in names:
        tally = fuzz(name, 60 * chosen.minutes / len(names), chosen.seed, chosen.out)
        results[name] = vars(tally)
        print(
            f"{name}: {tally.inputs:,} inputs, {tally.outcomes['read']:,} read, {tally.lines:,} lines reached, ", end=""
        )
        print(f"slowest {tally.slowest:.2f} s, {len(tally.findings)} findings", *tally.findings, sep="\n  ", flush=True)
    if chosen.json is not None:
        _write(chosen.json, {"minutes": chosen.minutes, "seed": chosen.seed, "targets": results})
    return 1 if any(result["findings"] for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
