"""Write the tables of the pages on FLSMD in docs/results from the records in docs/results/flsmd.

    .venv/bin/python scripts/flsmd_tables.py            # after scripts/flsmd_records.py kept new runs
    .venv/bin/python scripts/flsmd_tables.py --check    # 1 where a page says something else than the records

A table is `KIND:FOLDER,ROW,ROW...`; rows are called as in the study, a folder may narrow them as FOLDER@LABELS,
FOLDER@STEPSsteps or FOLDER@LABELS@STEPSsteps. balanced-FOLDER holds what `ftc` was before, and of rows that did not
change it has those of FOLDER; again-FOLDER holds runs of FOLDER as another
machine trained them, and matched-FOLDER is FOLDER with these in the place of its own.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from flsmd_records import AGAIN, KEPT, PACKED
from pages import RESULTS, markdown, rewrite
from scipy.stats import spearmanr

from ftcseg.data.archives import unpack
from ftcseg.evaluate.metrics import mean
from ftcseg.evaluate.per_image import COUNTS, PerImage, read_counts
from ftcseg.files import read_json
from ftcseg.studies.ablation import EFFECTS
from ftcseg.studies.gain import CONDITIONS
from ftcseg.studies.rows import BASELINE, FTC, LABELS_ONLY, PUBLISHED, WITH_ATC, WITH_OPR
from ftcseg.studies.statistics import bootstrap_difference, holm, main_effect, paired, summary

PAGES = tuple(RESULTS / name for name in ("flsmd.md", "flsmd-details.md", "flsmd-balanced.md"))
FOLDER = RESULTS / "flsmd"
HUNDRED = 100
SAME_ORDER = 1e-9
"""What is left of a rank correlation of one, but for rounding."""
BACKGROUND = "background"
BASES = ((LABELS_ONLY, "supervised"), (PUBLISHED, "unimatch-v2", BASELINE))
"""What every row is compared with; studies call the same run by different names."""
SPOKEN = {
    LABELS_ONLY: "`supervised` (M1)",
    PUBLISHED: "`unimatch-v2`",
    BASELINE: "`unimatch-v2` (M2)",
    WITH_OPR: "M3: M2 + OPR",
    WITH_ATC: "M4: M2 + ATC",
    FTC: "`ftc` (M5)",
}

BEFORE = "balanced-"
"""Begins the names of folders with runs of `ftc` as it was, its loss balanced over classes."""
SPOKEN_BEFORE = SPOKEN | {BASELINE: "M2: `ftc` without both"}
"""The loss was balanced without OPR and ATC, too, so that M2 was not `unimatch-v2` yet."""
MATCHED = "matched-"
"""Begins the names of folders whose runs are those of AGAIN where it has them: one machine trained each seed."""

GROUPS = {
    "head": ("wall", "tire", "chain", "can"),
    "middle": ("bottle", "propeller", "shampoo-bottle"),
    "tail": ("drink-carton", "hook", "valve", "standing-bottle"),
}
"""Object classes of FLSMD, most pixels first."""
OBJECTS = tuple(name for members in GROUPS.values() for name in members)

TRAIN_PIXELS = {
    "background": 220_963_937,
    "wall": 3_768_625,
    "tire": 1_339_001,
    "chain": 1_033_779,
    "can": 562_872,
    "bottle": 551_391,
    "propeller": 454_456,
    "drink-carton": 202_434,
    "shampoo-bottle": 196_123,
    "hook": 180_913,
    "valve": 122_266,
    "standing-bottle": 102_603,
}
"""Pixels of each class in all 1494 masks of the training part, as `ftcseg split flsmd --labels 100%` counts them."""

BANDS = ((0.5, "less than half"), (0.9, "half to 90 %"), (math.inf, "90 % and more"))
"""How much of a class is called so, and what such a share is called."""

Record = dict[str, Any]
Value = Callable[[Record], float | None]


@cache
def records(folder: str) -> tuple[Record, ...]:
    """All runs kept under a name; «main@5%» are those with 5 % of the labels, «main@900steps» those of that length."""
    name, *only = folder.split("@")
    packed = f"{AGAIN if name.startswith(AGAIN) else ''}{KEPT}"
    files = sorted((FOLDER / name).glob("*.json"))
    found = (json.loads(file.read_text(encoding="utf-8")) | {"packed": packed} for file in files)
    there = (r for r in found if {*only} <= {r["labels"], f"{r['steps']}steps"})
    return tuple(sorted(there, key=lambda r: r["seed"]))


def of(folder: str, row: str) -> list[Record]:
    """A row's runs, by seed; «ftc; added noise» is the row «ftc, added noise», since a comma parts rows on the page."""
    if folder.startswith(MATCHED):
        own = folder.removeprefix(MATCHED)
        again = {record["key"]: record for record in of(AGAIN + own, row)}
        return [again.get(record["key"], record) for record in of(own, row)]
    name = row.replace(";", ",")
    place = folder if _was_otherwise(folder, row) else folder.removeprefix(BEFORE)
    return [record for record in records(place) if record["row"] == name]


def _was_otherwise(folder: str, row: str) -> bool:
    """Whether a folder of earlier runs has this row; those it lacks have not changed since."""
    whole = folder.partition("@")[0]
    return whole.startswith(BEFORE) and any(r["row"] == row.replace(";", ",") for r in records(whole))


def said(row: str, folder: str = "") -> str:
    """A row's name on the page."""
    model, _, condition = row.partition("; ")
    names = SPOKEN_BEFORE if folder.startswith(BEFORE) else SPOKEN
    return names.get(model, f"`{model}`") + (f", {condition}" if condition else "")


def said_of(place: str) -> str:
    """The same for «FOLDER/ROW», where several kinds of a row may stand in one table."""
    folder, _, row = place.partition("/")
    if folder.startswith(AGAIN):
        return f"{said(row)}, other machine"
    return said(row, folder) + (", balanced" if _was_otherwise(folder, row) else "")


def scored(when: str = "last", who: str | None = None, group: str | None = None) -> Value:
    """Reads mIoU, or the mean of a group, of the network that answers unless another is named."""

    def read(record: Record) -> float | None:
        told = record["scores"][when].get(who or record["predictor"])
        if told is None:
            return None
        return told["groups"].get(group) if group else told["miou"]

    return read


def over_seeds(found: Sequence[Record], value: Value, digits: int = 1) -> str:
    """«41.2 ± 0.7» in percent; one seed has no spread."""
    values = [number for record in found if (number := value(record)) is not None]
    if not values:
        return ""
    told = summary(values)
    average = f"{HUNDRED * told.mean:.{digits}f}"
    return average if told.std is None else f"{average} ± {HUNDRED * told.std:.{digits}f}"


def over(ours: Sequence[Record], theirs: Sequence[Record], value: Value) -> str:
    """«+2.3 ± 0.8 (p 0.04)»: seed by seed."""
    base = {record["seed"]: value(record) for record in theirs}
    both = [(value(r), base[r["seed"]]) for r in ours if base.get(r["seed"]) is not None and value(r) is not None]
    if not both or list(ours) == list(theirs):
        return "–"
    mine, other = ([pair[i] for pair in both] for i in (0, 1))
    told = summary([a - b for a, b in zip(mine, other, strict=True)])
    test = paired(mine, other)
    spread = "" if told.std is None else f" ± {HUNDRED * told.std:.1f}"
    return f"{HUNDRED * told.mean:+.1f}{spread}" + ("" if test.p is None else f" (p {test.p:.2g})")


def scores(folder: str, *rows: str) -> str:
    """Mean IoU, groups and differences, a line for every row; under a condition from what it is compared with there."""
    lines = []
    for row in rows:
        found = of(folder, row)
        _, *condition = row.split("; ")
        asked = (["; ".join((name, *condition)) for name in names] for names in BASES)
        bases = [next((base for name in names if (base := of(folder, name))), []) for names in asked]
        groups = [over_seeds(found, scored(group=group)) for group in ("head", "middle", "tail")]
        minutes = summary([r["seconds"] / 60 for r in found]).mean if found else 0
        cells = [
            over_seeds(found, scored()),
            over_seeds(found, scored("best")),
            over_seeds(found, scored(who="student")),
        ]
        gaps = [over(found, base, scored()) for base in bases]
        lines.append([said(row, folder), str(len(found)), *cells, *groups, *gaps, f"{minutes:.0f}"])
    heads = ("run", "seeds", "mIoU, last", "mIoU, best", "student, last", "head", "middle", "tail")
    return markdown((*heads, "over labels alone", "over `unimatch-v2`", "minutes"), lines)


def gaps(folder: str, *pairs: str) -> str:
    """What one row has over another («ROW > ROW»), seed by seed: all classes, each group, and every seed's own."""
    lines, tests = [], []
    for pair in pairs:
        ours, theirs = (of(folder, row) for row in pair.split(" > "))
        mine, base = ({r["seed"]: scored()(r) or 0.0 for r in side} for side in (ours, theirs))
        both = sorted(mine.keys() & base.keys())
        if not both:
            continue
        groups = [over(ours, theirs, scored(group=g)).partition(" (")[0] for g in ("head", "middle", "tail")]
        seeds = ", ".join(f"{HUNDRED * (mine[seed] - base[seed]):+.1f}" for seed in both)
        name = " over ".join(said(row, folder) for row in pair.split(" > "))
        lines.append([name, over(ours, theirs, scored()).partition(" (")[0], *groups, seeds])
        tests.append(paired([mine[seed] for seed in both], [base[seed] for seed in both]).p)
    known = holm([p for p in tests if p is not None])
    strict = iter(known)
    for line, p in zip(lines, tests, strict=True):
        line.extend(["–", "–"] if p is None else [f"{p:.2g}", f"{next(strict):.2g}"])
    return markdown(("difference", "mIoU, last", "head", "middle", "tail", "by seed", "p", "Holm p"), lines)


def lengths(*places: str) -> str:
    """Rows of several folders («FOLDER/ROW») with their steps and minutes; the last is compared with the others."""
    runs = {place: of(*place.split("/")) for place in places}
    ours = runs[places[-1]]
    lines = []
    for place, found in runs.items():
        values = [over_seeds(found, scored(group=group)) for group in (None, "head", "middle", "tail")]
        seeds = ", ".join(f"{HUNDRED * (scored()(r) or 0.0):.1f}" for r in found)
        minutes = summary([r["seconds"] / 60 for r in found]).mean
        name, steps = said_of(place), str(found[0]["steps"])
        lines.append([name, steps, f"{minutes:.0f}", *values, seeds, over(ours, found, scored())])
    heads = ("run", "steps", "minutes", "mIoU, last", "head", "middle", "tail", "by seed")
    return markdown((*heads, f"{said_of(places[-1])} over it"), lines)


def chance(folder: str) -> str:
    """Runs that two machines trained, seed and all the same: mIoU (tail) of each, and their difference."""
    first = {record["key"]: record for record in records(folder)}
    lines = []
    for again in sorted(records(AGAIN + folder), key=lambda r: (r["row"], r["steps"], r["seed"])):
        before = first[again["key"]]
        ends = [[over_seeds([r], scored(group=group)) for group in (None, "tail")] for r in (before, again)]
        name = [said(again["row"]), str(again["steps"]), str(again["seed"])]
        lines.append([*name, *(f"{miou} ({tail})" for miou, tail in ends), over([again], [before], scored())])
    return markdown(("run", "steps", "seed", "mIoU (tail), A", "mIoU (tail), B", "B over A"), lines)


def drawn(*pairs: str) -> str:
    """What one row has over another («FOLDER/ROW > FOLDER/ROW») had other scenes been judged, mean over seeds."""
    lines = []
    for pair in pairs:
        ours, theirs = ({r["seed"]: r for r in of(*place.split("/"))} for place in pair.split(" > "))
        seeds = sorted(ours.keys() & theirs.keys())
        mine, other = ([counts(side[seed]) for seed in seeds] for side in (ours, theirs))
        found = bootstrap_difference(mine, other, mine[0].clusters)
        assert found.miou is not None, pair
        ends = " to ".join(f"{HUNDRED * end:+.1f}" for end in (found.miou.low, found.miou.high))
        name = " over ".join(said_of(place) for place in pair.split(" > "))
        steps = " / ".join(str(side[seeds[0]]["steps"]) for side in (ours, theirs))
        amount = ours[seeds[0]]["labels"]
        difference = f"{HUNDRED * found.miou.value:+.1f}"
        lines.append([name, amount, steps, str(len(seeds)), str(found.units), difference, ends])
    return markdown(("difference", "labels", "steps", "seeds", "sequences", "mIoU", "95 % of the draws"), lines)


@cache
def _unpacked(folder: str, run: str) -> PerImage:
    with tempfile.TemporaryDirectory() as scratch:
        return read_counts(unpack(FOLDER / folder / f"{run}{PACKED}", Path(scratch) / run) / COUNTS)


@cache
def _split(folder: str, run: str) -> Record:
    with tempfile.TemporaryDirectory() as scratch:
        return dict(read_json(unpack(FOLDER / folder / f"{run}{PACKED}", Path(scratch) / run) / "split.json"))


def counts(record: Record) -> PerImage:
    """What every judged image of a kept run holds of each class."""
    return _unpacked(record["packed"], f"{record['method']}-{record['key']}")


def by_class(folder: str, *rows: str) -> str:
    """IoU by class at the end, most pixels first, recall and precision behind it."""
    runs = {row: of(folder, row) for row in rows}
    there = [record for found in runs.values() for record in found]
    counts = next((r["audit"]["by_truth"] for r in there if r["audit"]), {})  # labels alone have no pseudo-labels
    classes = there[0]["scores"]["last"][there[0]["predictor"]]["classes"]
    names = sorted(classes, key=lambda n: -counts.get(n, {}).get("pixels", 0))

    def cell(found: Sequence[Record], name: str) -> str:
        def part(key: str) -> Value:
            return lambda r: r["scores"]["last"][r["predictor"]]["classes"][name][key]

        behind = " / ".join(over_seeds(found, part(key), 0).partition(" ")[0] for key in ("recall", "precision"))
        return f"{over_seeds(found, part('iou'))} ({behind})"

    return markdown(
        ["class", *(said(row, folder) for row in rows)],
        [[n, *(cell(runs[row], n) for row in rows)] for n in names],
    )


def conditions(folder: str, ours: str, *others: str) -> str:
    """A model under every condition of the study `gain`, and what it has over the others: mIoU (tail)."""

    def cell(told: Callable[[Value], str]) -> str:
        miou, tail = (told(value).partition(" (")[0] for value in (scored(), scored(group="tail")))
        return f"{miou} ({tail})" if miou.strip("–") else "–"

    lines = []
    for model in (*others, ours):
        runs = (of(folder, f"{model}, {condition}") for condition in CONDITIONS)
        lines.append([f"`{model}`", *(cell(partial(over_seeds, found)) for found in runs)])
    for other in others:
        pairs = [[of(folder, f"{model}, {condition}") for model in (ours, other)] for condition in CONDITIONS]
        lines.append([f"`{ours}` over `{other}`", *(cell(partial(over, *pair)) for pair in pairs)])
    return markdown(("mIoU (tail)", *CONDITIONS), lines)


def pseudo(folder: str, *rows: str) -> str:
    """By class at the end: the share of its true pixels kept right, and of what is kept under its name, the wrong."""
    runs = {row: of(folder, row) for row in rows}
    some = next(found[0] for found in runs.values() if found)
    names = sorted(some["audit"]["by_truth"], key=lambda n: -some["audit"]["by_truth"][n]["pixels"])

    def right(name: str) -> Value:
        return lambda r: _share(r["audit"]["by_truth"][name], "correct_kept", "pixels")

    def wrong(name: str) -> Value:
        return lambda r: _rest(_share(r["audit"]["by_prediction"][name], "correct_kept", "kept"))

    lines = [[n, *(over_seeds(runs[row], f(n)) or "none kept" for f in (right, wrong) for row in rows)] for n in names]
    heads = [f"{what}, {said(row, folder)}" for what in ("kept right", "wrong among kept") for row in rows]
    return markdown(["class", *heads], lines)


Case = tuple[float, float, float]
"""How much of a class one row calls so, how much the other, and what the other has over it."""


def banded(folder: str, ours: str, theirs: str) -> dict[str, list[Case]]:
    """Object classes of all seeds by how much of a class `theirs` calls so."""
    mine, base = ({r["seed"]: r for r in of(folder, row)} for row in (ours, theirs))
    found: dict[str, list[Case]] = {band: [] for _, band in BANDS}
    for seed in sorted(mine.keys() & base.keys()):
        for name in mine[seed]["audit"]["by_truth"].keys() - {BACKGROUND}:
            here, there = (_called(side[seed], name) for side in (mine, base))
            gain = class_iou(mine[seed], name) - class_iou(base[seed], name)
            found[next(band for end, band in BANDS if there < end)].append((there, here, gain))
    return found


def calling(folder: str, ours: str, theirs: str) -> str:
    """What `ours` does to the IoU of classes that `theirs` calls too seldom, or often enough."""
    lines = []
    for band, cases in banded(folder, ours, theirs).items():
        means = [summary([case[i] for case in cases]) if cases else None for i in range(3)]
        shares = [f"{told.mean:.2f}" if told else "" for told in means[:2]]
        ups = f"{sum(gain > 0 for *_, gain in cases)} of {len(cases)}"
        lines.append([band, *shares, f"{HUNDRED * means[2].mean:+.1f}" if means[2] else "", ups])
    heads = (f"{said(row, folder)} calls of them" for row in (theirs, ours))
    return markdown((f"true pixels that {said(theirs, folder)} calls so", *heads, "IoU", "classes that gain"), lines)


def bands(ours: str, theirs: str, *folders: str) -> str:
    """How many classes are called too seldom in runs of several lengths, and what they gain: is it the same in all?

    The last line has every length's classes gain what their kind gains in the first one.
    """
    found = [banded(folder, ours, theirs) for folder in folders]
    gains = [{band: [gain for *_, gain in cases] for band, cases in told.items()} for told in found]
    first = {band: summary(values).mean if values else 0.0 for band, values in gains[0].items()}

    def cells(values: Sequence[float], expected: Sequence[float] | None = None) -> list[str]:
        shown = values if expected is None else expected
        return [str(len(values)), f"{HUNDRED * summary(shown).mean:+.1f}" if shown else ""]

    lines = [[band, *(cell for told in gains for cell in cells(told[band]))] for _, band in BANDS]
    whole = [[gain for values in told.values() for gain in values] for told in gains]
    likely = [[first[band] for band, values in told.items() for _ in values] for told in gains]
    lines.append(["all", *(cell for values in whole for cell in cells(values))])
    both = zip(whole, likely, strict=True)
    lines.append(
        ["all, each gaining as in the first", *(cell for values, other in both for cell in cells(values, other))]
    )
    steps = [of(folder, ours)[0]["steps"] for folder in folders]
    heads = [head for step in steps for head in (f"classes, {step} steps", "IoU")]
    return markdown((f"true pixels that {said(theirs)} calls so", *heads), lines)


def measured_twice(folder: str, base: str) -> dict[str, list[list[dict[int, Record]]]]:
    """Of each part the runs with it and those without, by seed; twice, since the other part is off and on meanwhile."""
    named = {part: [[base if row == BASELINE else row for row in pair] for pair in EFFECTS[part]] for part in EFFECTS}
    runs = {row: {r["seed"]: r for r in of(folder, row)} for row in (base, WITH_OPR, WITH_ATC, FTC)}
    seeds = sorted(set.intersection(*({*found} for found in runs.values())))
    whole = {row: {seed: found[seed] for seed in seeds} for row, found in runs.items()}
    return {part: [[whole[row] for row in pair] for pair in pairs] for part, pairs in named.items()}


def effects(folder: str, base: str = BASELINE) -> str:
    """What each part brings, the mean of both times it is measured, seed by seed; and whether they agree by class."""
    lines = []
    for part, pairs in measured_twice(folder, base).items():
        gains = {}
        for group in (None, "head", "middle", "tail"):
            value = scored(group=group)
            gains[group] = main_effect([tuple([value(r) or 0.0 for r in side.values()] for side in p) for p in pairs])
        told = [summary(found) for found in gains.values()]
        cells = [f"{HUNDRED * t.mean:+.1f}" + ("" if t.std is None else f" ± {HUNDRED * t.std:.1f}") for t in told]
        by_seed = ", ".join(f"{HUNDRED * gain:+.1f}" for gain in gains[None])
        test = paired(gains[None], [0.0] * len(gains[None])).p
        agree = ranked(*([gain for *_, gain in class_gains(*pair)] for pair in pairs))
        lines.append([part, *cells, by_seed, "–" if test is None else f"{test:.2g}", agree])
    heads = ("part", "mIoU, last", "head", "middle", "tail", "by seed", "p", "one measurement with the other, by class")
    return markdown(heads, lines)


def class_gains(ours: dict[int, Record], theirs: dict[int, Record]) -> list[tuple[int, str, float]]:
    """What every object class of every seed has over the other run of that seed."""
    return [
        (seed, name, class_iou(ours[seed], name) - class_iou(theirs[seed], name)) for seed in ours for name in OBJECTS
    ]


def reasons(folder: str, base: str = BASELINE) -> str:
    """Which classes ATC helps: those that are called too seldom, or those of which labels tell the share wrongly?

    Each of the two measurements is compared with what the runs of the other one call, so that a run which happened to
    end low does not look like one that had much to gain.
    """
    plain, rebuilt = measured_twice(folder, base)["ATC"]
    columns = []
    for (ours, theirs), (_, others) in ((plain, rebuilt), (rebuilt, plain)):
        cases = class_gains(ours, theirs)
        gains = [gain for *_, gain in cases]
        called = [_called(others[seed], name) for seed, name, _ in cases]
        shares = [label_shares(ours[seed])[name] for seed, name, _ in cases]
        off = [abs(math.log(share)) for share in shares]
        plainly = [ranked(gains, what) for what in (called, shares, off)]
        columns.append([*plainly, held_equal(gains, called, shares), held_equal(gains, shares, called)])
    words = (
        "how much of it is called so without ATC",
        "its share of the labels over its true share",
        "how far that share is off, either way",
        "how much of it is called so, among equal shares",
        "its share over its true share, among equally called ones",
    )
    heads = ("what ATC brings a class, ranked with", "without OPR", "with OPR")
    return markdown(heads, [list(line) for line in zip(words, *columns, strict=True)])


def signals(folder: str, base: str = BASELINE) -> str:
    """What a run sees of itself while pseudo-labels teach it: does it tell which classes are overlooked, and gain?

    What ATC goes by is read off the runs with it, the rest off those with a fixed threshold; gains are those of the
    other measurement, as for the reasons.
    """
    plain, rebuilt = measured_twice(folder, base)["ATC"]
    sides = []
    for (ours, theirs), (with_atc, without) in ((plain, rebuilt), (rebuilt, plain)):
        cases = class_gains(ours, theirs)
        gains = [gain for *_, gain in cases]
        called = [_called(without[seed], name) for seed, name, _ in cases]
        found = {word: [read(with_atc[s], without[s], name) for s, name, _ in cases] for word, read in SIGNALS.items()}
        sides.append({word: (ranked(called, told), ranked(gains, told)) for word, told in found.items()})
    lines = [[word, *(cell for side in sides for cell in side[word])] for word in SIGNALS]
    words = ("how much is called so, with OPR", "what ATC brings, without", "called so, without", "ATC brings, with")
    return markdown(("what a run sees of a class, ranked with", *words), lines)


def over_run(record: Record, name: str, read: Callable[[Record, int], float | None]) -> float:
    """The mean of what the moments with pseudo-labels say of a class; 0 where it was never seen."""
    place = list(record["scores"]["last"][record["predictor"]]["classes"]).index(name)
    told = [read(moment, place) for moment in record["over_time"] if "seen" in moment]
    return mean(told) or 0.0


def _kept_at(moment: Record, place: int) -> float | None:
    return _share({key: moment[key][place] for key in ("kept", "seen")}, "kept", "seen")


Signal = Callable[[Record, Record, str], float]
"""Of the run with ATC, the one without, and a class."""
SIGNALS: dict[str, Signal] = {
    "accuracy on labels (M_diff)": lambda ours, _, name: over_run(ours, name, lambda m, at: m["accuracy"][at]),
    "how much more often it is seen than in labels (M_bias)": lambda ours, _, name: over_run(
        ours, name, lambda m, at: math.log(m["predicted"][at] / m["prior"][at])
    ),
    "the teacher's mean confidence": lambda _, theirs, name: over_run(theirs, name, lambda m, at: m["conf"][at]),
    "its share above the fixed threshold": lambda _, theirs, name: over_run(theirs, name, _kept_at),
}


def ranked(first: Sequence[float], second: Sequence[float]) -> str:
    """Rank correlation with its p: «+0.59 (p 0.0003)»."""
    told = spearmanr(first, second)
    return f"{told.statistic:+.2f} (p {told.pvalue:.2g})"


def held_equal(first: Sequence[float], second: Sequence[float], third: Sequence[float]) -> str:
    """Rank correlation of the first two that the third does not account for (partial); none where it is all of one."""
    ours, left, right = (
        float(spearmanr(*pair).statistic) for pair in ((first, second), (first, third), (second, third))
    )
    rest = (1 - left**2) * (1 - right**2)
    return f"{(ours - left * right) / math.sqrt(rest):+.2f}" if rest > SAME_ORDER else "–"


def label_shares(record: Record) -> dict[str, float]:
    """Of each class its share of the labelled pixels, over its share of all training pixels."""
    told = {c["name"]: c["pixels"] for c in _split(record["packed"], f"{record['method']}-{record['key']}")["classes"]}
    labels, everything = sum(told.values()), sum(TRAIN_PIXELS.values())
    return {name: (told[name] / labels) / (TRAIN_PIXELS[name] / everything) for name in OBJECTS}


def worth(folder: str, *rows: str) -> str:
    """At the end: mIoU of all pseudo-labels and of those kept; how many of the objects' pixels are kept."""

    def objects(part: str) -> Value:
        def read(record: Record) -> float:
            told = [c for name, c in record["audit"]["by_truth"].items() if name != BACKGROUND]
            return sum(float(c[part]) for c in told) / sum(float(c["pixels"]) for c in told)

        return read

    values: list[Value] = [lambda r: r["audit"]["raw_miou"], lambda r: r["audit"]["kept_miou"]]
    values += [objects("correct_kept"), objects("kept")]
    lines = [[said_of(f"{folder}/{row}"), *(over_seeds(of(folder, row), value) for value in values)] for row in rows]
    heads = ("mIoU of all", "mIoU of those kept", "object pixels kept right", "object pixels kept at all")
    return markdown(["run", *heads], lines)


def reach(*places: str) -> str:
    """By group at the end («FOLDER/ROW»): the share of what is called so that is kept, and of that, the wrong."""

    def share(group: str, part: str, whole: str) -> Value:
        def read(record: Record) -> float | None:
            told = [record["audit"]["by_prediction"][name] for name in GROUPS[group]]
            return _share({key: sum(c[key] for c in told) for key in (part, whole)}, part, whole)

        return read

    def wrong(group: str) -> Value:
        return lambda r: _rest(share(group, "correct_kept", "kept")(r))

    values = [share(group, "kept", "pixels") for group in GROUPS] + [wrong(group) for group in GROUPS]
    lines = []
    for place in places:
        found = of(*place.split("/"))
        cells = [over_seeds(found, value, 0) for value in values]
        lines.append([said_of(place), str(found[0]["steps"]), str(len(found)), *cells])
    heads = [*(f"kept, {group}" for group in GROUPS), *(f"wrong among kept, {group}" for group in GROUPS)]
    return markdown(("run", "steps", "seeds", *heads), lines)


def moments(folder: str, row: str, key: str = "dropped") -> str:
    """By class over the run, first seed: the share of what is called so that is dropped, or another statistic."""
    record = of(folder, row)[0]
    names = list(record["scores"]["last"][record["predictor"]]["classes"])
    told = [moment for moment in record["over_time"] if "seen" in moment]

    def cell(moment: Record, place: int) -> str:
        if key != "dropped":
            return f"{moment[key][place]:.2f}"
        seen = moment["seen"][place]
        return f"{HUNDRED * (1 - moment['kept'][place] / seen):.0f}" if seen else "–"

    lines = [[name, *(cell(moment, place) for moment in told)] for place, name in enumerate(names)]
    return markdown(["class", *(str(moment["step"]) for moment in told)], lines)


def _called(record: Record, name: str) -> float:
    """Pixels that bear a class's name for every pixel that is one, among unlabelled frames."""
    called, true = (record["audit"][side][name]["pixels"] for side in ("by_prediction", "by_truth"))
    return float(called) / float(true)


def class_iou(record: Record, name: str) -> float:
    """A class's IoU at the end, of the network that answers."""
    return float(record["scores"]["last"][record["predictor"]]["classes"][name]["iou"])


def _share(counts: Record, part: str, whole: str) -> float | None:
    return counts[part] / counts[whole] if counts[whole] else None


def _rest(share: float | None) -> float | None:
    return None if share is None else 1 - share


KINDS: dict[str, Callable[..., str]] = {
    "scores": scores,
    "gaps": gaps,
    "chance": chance,
    "classes": by_class,
    "conditions": conditions,
    "drawn": drawn,
    "pseudo": pseudo,
    "bands": bands,
    "calling": calling,
    "worth": worth,
    "reach": reach,
    "moments": moments,
    "lengths": lengths,
    "effects": effects,
    "reasons": reasons,
    "signals": signals,
}

if __name__ == "__main__":
    sys.exit(rewrite(PAGES, KINDS, __doc__))
