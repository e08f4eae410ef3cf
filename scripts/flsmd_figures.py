"""Draw the figures of docs/results/flsmd.md from the records beside it: no image of the set is in them.

`.venv/bin/python scripts/flsmd_figures.py`, after scripts/flsmd_records.py kept new runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from flsmd_tables import FOLDER, GROUPS, HUNDRED, LABELS_ONLY, OBJECTS, Record, class_iou, of, scored

from ftcseg.studies.drawing import draw
from ftcseg.studies.figures import Bars, Figure, Lines
from ftcseg.studies.figures import Value as Height
from ftcseg.studies.gain import NOISE, named
from ftcseg.studies.rows import BASELINE, FTC, WITH_ATC, WITH_OPR
from ftcseg.studies.statistics import summary

STUDY, BASE, OURS = "matched-methods@4000steps", "unimatch-v2", "ftc"
NAMES = {"supervised": "labels alone", BASE: "unimatch-v2", OURS: "ftc"}
LENGTHS = ("methods@1200steps", "matched-methods@2200steps", STUDY)
"""The same rows in runs of other lengths."""
SHARES = (STUDY, "main@5%@4000steps", "main@10%@4000steps")
"""The same rows with more labels."""
NOISY = "gain@4000steps"
"""The same rows with noise on every frame."""
PARTS = "matched-ablation@4000steps"
"""The study in which every part of FTC-Seg was taken out in turn."""
PART_NAMES = {
    LABELS_ONLY: "labels alone",
    "fixmatch": "fixmatch",
    BASELINE: "unimatch-v2 (M2)",
    WITH_OPR: "M2 + OPR",
    WITH_ATC: "M2 + ATC",
    FTC: "ftc",
}
SHOWN = {"all": None, "tail": "tail"}
"""What is shown of a row where there is no room for every group."""
ENDS = ("head", "tail")
"""The groups that are followed over a run."""
FOLLOWED = ("background", "wall", "tire", "hook", "valve", "standing-bottle")
SEEDS = "standard deviation over 3 seeds"

Curve = tuple[str, tuple[tuple[float, Height], ...]]
"""A name, and places from left to right."""


def height(values: Sequence[float]) -> Height:
    """Mean and spread over seeds."""
    told = summary(values)
    return Height(told.mean, told.std)


def iou_by_class() -> Bars:
    """What each class gains on the validation frames."""
    series = tuple(
        (said, tuple(height([HUNDRED * class_iou(record, name) for record in of(STUDY, row)]) for name in OBJECTS))
        for row, said in NAMES.items()
    )
    title = "IoU of every object class on 374 validation frames, 30 labels, 4000 steps"
    return Bars(name="by-class", title=title, label="IoU (%)", groups=OBJECTS, series=series, spread=SEEDS)


def followed(studies: Sequence[str], along: str) -> tuple[Curve, ...]:
    """The end of every row in several studies, all classes and the tail, along what a record says of its run."""

    def points(row: str, group: str | None) -> tuple[tuple[float, Height], ...]:
        runs = [of(study, row) for study in studies]
        ends = [[HUNDRED * (scored(group=group)(record) or 0.0) for record in found] for found in runs]
        return tuple((float(found[0][along]), height(end)) for found, end in zip(runs, ends, strict=True))

    return tuple((f"{what}, {NAMES[row]}", points(row, group)) for what, group in SHOWN.items() for row in NAMES)


def by_length() -> Lines:
    """What patience brings to each row."""
    title = "What the length of a run brings, 374 validation frames, 30 labels"
    series, label = followed(LENGTHS, "steps"), "mIoU (%)"
    return Lines(name="by-length", title=title, label=label, across="steps", series=series, spread=SEEDS)


def by_labels() -> Lines:
    """What more labels bring to each row."""
    title = "What more labels bring, 374 validation frames, 4000 steps"
    series, label, across = followed(SHARES, "labelled"), "mIoU (%)", "labelled frames"
    spread = "standard deviation over 3 seeds with 30 labels, one seed with more"
    return Lines(name="by-labels", title=title, label=label, across=across, series=series, spread=spread)


def in_groups(runs: Sequence[Record], groups: Mapping[str, str | None]) -> tuple[Height, ...]:
    """The mean IoU of each group of classes."""
    return tuple(height([HUNDRED * (scored(group=group)(run) or 0.0) for run in runs]) for group in groups.values())


def by_noise() -> Bars:
    """What noise on every frame leaves of each row."""
    series = tuple(
        (said, (*in_groups(of(STUDY, row), SHOWN), *in_groups(of(NOISY, named(row, NOISE)), SHOWN)))
        for row, said in NAMES.items()
    )
    groups = tuple(f"{what}, {where}" for where in ("as it is", "speckle") for what in SHOWN)
    title = "Without and with speckle of severity 5, 374 validation frames, 30 labels, 4000 steps"
    return Bars(name="by-noise", title=title, label="mIoU (%)", groups=groups, series=series, spread=SEEDS)


def by_part() -> Bars:
    """What OPR and ATC bring, alone and together."""
    groups = {"all": None, "head": "head", "middle": "middle", "tail": "tail"}
    series = tuple((said, in_groups(of(PARTS, row), groups)) for row, said in PART_NAMES.items())
    title = "Every part of FTC-Seg, 374 validation frames, 30 labels, 4000 steps"
    return Bars(name="ablation", title=title, label="mIoU (%)", groups=tuple(groups), series=series, spread=SEEDS)


def kept_right() -> Bars:
    """What of each class's true pixels a threshold lets through under the right name."""

    def share(record: Record, name: str) -> float:
        counts = record["audit"]["by_truth"][name]
        return HUNDRED * float(counts["correct_kept"]) / float(counts["pixels"])

    series = tuple(
        (NAMES[row], tuple(height([share(record, name) for record in of(STUDY, row)]) for name in OBJECTS))
        for row in (BASE, OURS)
    )
    title = "Pixels of 200 unlabelled frames kept under the right name"
    return Bars(name="kept-right", title=title, label="share (%)", groups=OBJECTS, series=series, spread=SEEDS)


def kept_over_time() -> Lines:
    """The share of what is called a class of a group that is kept, as training goes."""

    def share(moment: Record, places: Sequence[int]) -> float:
        return HUNDRED * sum(moment["kept"][p] for p in places) / max(1, sum(moment["seen"][p] for p in places))

    series = []
    for row in (BASE, OURS):
        runs = of(STUDY, row)
        names = list(runs[0]["scores"]["last"][runs[0]["predictor"]]["classes"])
        for group in ENDS:
            places = [names.index(member) for member in GROUPS[group]]
            moments = zip(*([m for m in run["over_time"] if "seen" in m] for run in runs), strict=True)
            points = tuple((float(at[0]["step"]), height([share(m, places) for m in at])) for at in moments)
            series.append((f"{group}, {NAMES[row]}", points))
    title = "Share of the pixels called head or tail objects that is kept"
    label, name = "kept (%)", "kept-over-time"
    return Lines(name=name, title=title, label=label, across="step", series=tuple(series), spread=SEEDS)


def thresholds() -> Lines:
    """Some classes' thresholds, mean over seeds."""
    runs = of(STUDY, OURS)
    names = list(runs[0]["scores"]["last"][runs[0]["predictor"]]["classes"])
    steps = [m["step"] for m in runs[0]["over_time"] if "seen" in m]
    series = []
    for name in FOLLOWED:
        taus = [[m["tau"][names.index(name)] for m in run["over_time"] if "seen" in m] for run in runs]
        points = tuple((float(step), Height(summary(at).mean)) for step, *at in zip(steps, *taus, strict=True))
        series.append((name, points))
    title = "Thresholds of ftc, mean over 3 seeds (unimatch-v2: 0.95 for all)"
    return Lines(name="thresholds", title=title, label="threshold", across="step", series=tuple(series))


DRAWN: tuple[Callable[[], Figure], ...] = (
    *(iou_by_class, by_length, by_labels, by_noise, by_part),
    *(kept_right, kept_over_time, thresholds),
)


def main() -> None:
    """Every figure as a PNG beside the records."""
    figures = [figure() for figure in DRAWN]
    with tempfile.TemporaryDirectory() as scratch:
        for figure in figures:
            _, png = draw(figure, Path(scratch))
            target = FOLDER / png.name
            target.write_bytes(png.read_bytes())
            print(target)


if __name__ == "__main__":
    main()
