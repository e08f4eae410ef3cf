"""`ftcseg bench scaling`: how time grows with classes, prototypes, image side, images and processes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from ftcseg.bench.case import Case, parse_batch, placed
from ftcseg.bench.fresh import elsewhere
from ftcseg.bench.machine import RateMeter
from ftcseg.bench.record import Row, record, row, write
from ftcseg.bench.rig import Rig, warm
from ftcseg.bench.spread import Spread
from ftcseg.data import describe
from ftcseg.data.describe import Description
from ftcseg.data.doctor import examine_set
from ftcseg.data.index import open_source
from ftcseg.errors import UsageError, unknown_name
from ftcseg.parallel import Progress, silent
from ftcseg.rng import random_for
from ftcseg.types import ClassTable, MaskCoding

if TYPE_CHECKING:
    from ftcseg.studies.figures import Lines

STEP, INDEX, LOOK, AGAIN, BATCH = "a step", "list the files", "look at every file", "look again", "make a batch"
_CLASSES = 4  # of the set that is listed
_SIDE = 32  # of its images
_EVERY = 10  # of them has a mask, and every hundredth is judged on
_JUDGED = 100


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one place of a curve: seconds by what took them, and images of a step."""

    at: int
    seconds: Mapping[str, Spread]
    images: int
    rate: float
    """Of matrix products, at that moment."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One question: where it is measured unless told otherwise, and how."""

    line: str
    points: tuple[int, ...]
    measure: Callable[[Case, int, tuple[int, int]], tuple[dict[str, Spread], int]]
    log: bool = True
    """Whether the points multiply rather than add."""


def bench_scaling(  # noqa: PLR0913  the way in: each choice has a name
    over: str,
    *,
    at: Sequence[int] = (),
    method: str = "ftc",
    encoder: str | None = None,
    head: str | None = None,
    size: tuple[int, int] | None = None,
    batch: str | tuple[int, int] = (4, 4),
    steps: int = 8,
    warm_up: int = 2,
    settings: Sequence[str] = (),
    seed: int = 0,
    save: str | Path | None = None,
    plot: str | Path | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure a curve, as `ftcseg bench scaling --json` prints it; `plot` is a folder for an SVG and a PNG of it.

    `over` is one of CURVES. Ctrl-C ends the curve early; its points so far are returned, with `interrupted` set.

    Example: `ftcseg.bench_scaling("prototypes", at=[4, 64], steps=4)["points"]`
    """
    if over not in CURVES:
        raise unknown_name("curve", over, CURVES)
    if steps < 1 or warm_up < 0 or any(point < 1 for point in at):
        raise UsageError("A curve needs points from 1 on, and at least 1 step at each of them.")
    case = Case(
        method=method,
        encoder=encoder,
        head=head,
        size=size,
        batch=parse_batch(batch) if isinstance(batch, str) else batch,
        settings=tuple(settings),
        seed=seed,
    )
    result = curve(case, over, tuple(at) or CURVES[over].points, (steps, warm_up), progress)
    if save is not None:
        write(result, Path(save))
    if plot is not None:
        from ftcseg.studies.drawing import draw  # the studies are many, and take their time to be imported

        draw(figure(result), Path(plot))
    return result


def curve(case: Case, over: str, points: Sequence[int], length: tuple[int, int], progress: Progress) -> dict[str, Any]:
    """A record of all points, each with the machine's rate at its time."""
    device = torch.device("cuda" if torch.cuda.is_available() and "device=cpu" not in case.settings else "cpu")
    meter, found, interrupted = RateMeter(device), [], False
    try:
        for done, at in enumerate(points, 1):
            seconds, images = CURVES[over].measure(case, at, length)
            meter.take()  # after the point: with it the run's number of threads is set
            found.append(Point(at, seconds, images, meter.as_json()["each_time"][-1]))
            progress(done, len(points))
    except KeyboardInterrupt:
        interrupted = True
        if not found:
            raise
    details = {
        "over": over,
        "steps": length[0],
        "points": [
            {
                "at": point.at,
                "images": point.images,
                "flops_per_second": point.rate,
                "seconds": {name: spread.as_json() for name, spread in point.seconds.items()},
            }
            for point in found
        ],
        "interrupted": interrupted,
    }
    asked = {**case.as_json(), "over": over}
    del asked["root"]
    return record("scaling", asked, _rows(over, found), meter, device, details)


def figure(values: Mapping[str, Any]) -> Lines:
    """The curve as a picture that can be drawn: milliseconds over the points."""
    from ftcseg.studies.figures import Lines, Value

    over, names = values["over"], list(values["points"][0]["seconds"])
    series = [
        (
            name,
            tuple(
                (float(p["at"]), Value(1e3 * s["median"], 1e3 * (s["high"] - s["low"]) / 2))
                for p in values["points"]
                if (s := p["seconds"].get(name)) is not None
            ),
        )
        for name in names
    ]
    return Lines(
        name=f"scaling-{over}",
        title=CURVES[over].line,
        label="milliseconds",
        across=over,
        series=tuple(series),
        log=CURVES[over].log,
        spread="half of the middle half",
    )


def _rows(over: str, points: Sequence[Point]) -> list[Row]:
    rows = []
    for point in points:
        for name, spread in point.seconds.items():
            rows.append(row(f"{over} {point.at}: {name}", "s", "lower", spread))
            if name == STEP:
                name = f"{over} {point.at}: images a second"
                rows.append(row(name, "images/s", "higher", spread.under(point.images)))
    return rows


# ---------------------------------------------------------------- steps


def _steps(case: Case, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    steps, warm_up = length
    with Rig(placed(case)) as rig:
        warm(rig, max(1, warm_up))
        return {STEP: Spread.of([rig.step().seconds for _ in range(steps)])}, rig.images


def _over_classes(case: Case, at: int, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    return _steps(replace(case, classes=at), length)


def _over_prototypes(case: Case, at: int, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    told = replace(case, settings=(*case.settings, f"opr.count={at}"))
    with Rig(placed(told)) as rig:
        if not rig.config.opr.layers:
            raise UsageError(f"{case.method} has no prototypes. Take --method ftc, or --set opr.layers=1.")
    return _steps(told, length)


def _over_side(case: Case, at: int, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    return _steps(replace(case, size=(at, at)), length)


def _over_processes(case: Case, at: int, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    told = replace(placed(case), settings=(*case.settings, f"processes={at}"))
    found = elsewhere("steps", told, {"steps": length[0], "warm_up": max(1, length[1])})
    return {STEP: Spread.of(found["seconds"])}, int(found["images"])


# ---------------------------------------------------------------- many images


def _over_images(case: Case, at: int, length: tuple[int, int]) -> tuple[dict[str, Spread], int]:
    """Listing, looking at every file, looking again where all is remembered, and making batches of so many."""
    if at < _JUDGED:
        raise UsageError(f"A set of {at} images is no set to scale with. Ask for at least {_JUDGED}.")
    with tempfile.TemporaryDirectory(prefix="ftcseg-bench-") as folder, _own_cache(Path(folder) / "cache"):
        root = Path(folder) / "set"
        _write_set(root, at, case.seed)
        taken = {
            INDEX: _once(lambda: open_source(root)),
            LOOK: _once(lambda: examine_set(root)),
            AGAIN: _once(lambda: examine_set(root)),
        }
        told = replace(case, dataset=str(root), size=case.size or (_SIDE, _SIDE))
        with Rig(told) as rig:
            rig.stream(rig.clock.step)
            rig.stream.fetch()
            batches = [_timed(rig.stream.fetch) for _ in range(length[0])]
            return {**taken, BATCH: Spread.of(batches)}, rig.images


def _write_set(root: Path, count: int, seed: int) -> None:
    """Small grey images, all different; every tenth has a mask. Written without care: nobody keeps them."""
    table = ClassTable.named(*(f"class {number}" for number in range(_CLASSES)))
    for number in range(count):
        rng = random_for(seed, "scaling", number)
        name = f"{'test' if number % _JUDGED == 0 else 'train'}/{number // 1000:04d}/{number:07d}.png"
        _save(root / "images" / name, rng.integers(0, 256, (_SIDE, _SIDE), dtype=np.uint8))
        if number % _EVERY == 0:
            cells = rng.integers(0, _CLASSES, (4, 4), dtype=np.uint8)
            _save(root / "masks" / name, np.kron(cells, np.ones((_SIDE // 4, _SIDE // 4), dtype=np.uint8)))
    coding = MaskCoding("ids", values={c.id: c.id for c in table})
    describe.save(Description("scaling", root, "images-masks", table, coding), root / "dataset.yaml")


def _save(path: Path, pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, compress_level=1)


@contextmanager
def _own_cache(folder: Path) -> Iterator[None]:
    """Inside, what is remembered of files goes to a folder that will be gone: it is of no use to the user."""
    before = os.environ.get("FTCSEG_CACHE")
    os.environ["FTCSEG_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FTCSEG_CACHE"]
        else:
            os.environ["FTCSEG_CACHE"] = before


def _once(work: Callable[[], object]) -> Spread:
    return Spread.of([_timed(work)])


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


CURVES: Mapping[str, Curve] = {
    "classes": Curve("A step over the number of classes", (2, 5, 10, 20, 50, 100, 150), _over_classes),
    "prototypes": Curve("A step over OPR's prototypes", (4, 16, 64, 256), _over_prototypes),
    "side": Curve("A step over the side of square views", (112, 154, 224, 322, 518), _over_side, log=False),
    "images": Curve("Files over the number of images", (1000, 10_000, 100_000), _over_images),
    "processes": Curve("A step over processes that share the cores", (1, 2), _over_processes, log=False),
}
"""What «--over NAME» measures."""
