"""Curves of runs: scores, thresholds and kept pseudo-labels of each class, losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ftcseg.report.charts import (
    SMALL,
    WIDE,
    Form,
    Line,
    Point,
    line_chart,
    line_legend,
    panel,
    panels,
    short,
    thinned,
    ticks,
)
from ftcseg.report.page import escape, figure, folded, note, points, table
from ftcseg.report.run_files import Facts, Run, at, mapping, mappings, miou_in, number, numbers, tail_miou_in

MAX_PANELS = 40
"""Classes with a panel of their own; of more, those with the fewest labelled pixels."""
_POINTS, _SMALL_POINTS = 240, 100
_LEAST_SPAN = 0.02  # of an axis of scores, lest a wobble look like a rise
_WIDTH, _SMALL_WIDTH = "min(24rem, 100%)", "10rem"


def curves(runs: Sequence[Run]) -> str:
    """Everything that was logged over the steps."""
    parts = [
        ("mIoU", _scores(runs)),
        ("Threshold of each class", _per_class(runs, _tau, _fixed, _plain)),
        (
            "Share of pseudo-labels kept, by the class they name",
            _per_class(runs, _kept_share, points, _hundredths, (0, 1)),
        ),
        ("Losses and rates", _losses(runs)),
    ]
    shown = [f"<h3>{title}</h3>\n{part}" for title, part in parts if part]
    if not shown:
        return note("No curves: no run holds a metrics.jsonl or a pseudo.jsonl.")
    return line_legend([run.name for run in runs]) + "\n".join(shown) + _last_thresholds(runs)


def _scores(runs: Sequence[Run]) -> str:
    """The mIoU of all and of tail classes, of the network a user gets; the best step ringed."""
    charts = []
    for caption, read in (("all classes", miou_in), ("tail classes", tail_miou_in)):
        lines = []
        for place, run in enumerate(runs):
            line = [(_step(e), read(e)) for e in run.log if mapping(e.get("scores"))]
            lines.append(Line(place, thinned(line, _POINTS), number(run.results.get("best_step"))))
        values = _values(lines)
        if values:
            room = max(0.0, _LEAST_SPAN - (max(values) - min(values))) / 2
            scale = ticks(max(0.0, min(values) - room), max(values) + room, WIDE.ticks)
            chart = line_chart(lines, scale, _hundredths, f"mIoU of {caption}")
            charts.append(panel(caption, chart, _last_values(lines, points)))
    if not charts:
        return ""
    return panels(charts, _WIDTH, "roomy") + note("Across: steps. A ring marks the best checkpoint.")


def _per_class(
    runs: Sequence[Run],
    read: Callable[[Facts, int], float | None],
    form: Form,
    axis: Form,
    bounds: tuple[float, float] | None = None,
) -> str:
    """A panel for each class, a line for each run that logged it; all panels on one scale."""
    names, groups = max(((run.classes, run.groups) for run in runs), key=lambda known: len(known[0]))
    chosen = _shown_classes(runs, len(names))
    logs = [
        (i, run.pseudo)
        for i, run in enumerate(runs)
        if run.learns_unlabeled and any(read(e, c) is not None for e in run.pseudo for c in chosen)
    ]
    rows = [
        [Line(i, thinned([(_step(e), read(e, class_id)) for e in log], _SMALL_POINTS)) for i, log in logs]
        for class_id in chosen
    ]
    values = _values([line for lines in rows for line in lines])
    if not values:
        return ""
    scale = ticks(*(bounds or (min(values), max(values))), SMALL.ticks)
    cells = []
    for class_id, lines in zip(chosen, rows, strict=True):
        chart = line_chart(lines, scale, axis, names[class_id], SMALL)
        cells.append(panel(names[class_id], chart, _last_values(lines, form), groups[class_id] or ""))
    left = len(names) - len(chosen)
    return panels(cells, _SMALL_WIDTH) + (note(f"{left} classes with more labels are left out.") if left else "")


def _shown_classes(runs: Sequence[Run], count: int) -> list[int]:
    """Class ids in their order, the rarest where there are too many."""
    pixels = {c.get("id"): number(c.get("pixels")) or 0 for run in runs for c in mappings(run.split.get("classes"))}
    return sorted(sorted(range(count), key=lambda c: pixels.get(c, 0))[:MAX_PANELS])


def _losses(runs: Sequence[Run]) -> str:
    """A panel for each part of the loss, the gradient, the learning rates and the share kept over all classes."""
    logs = [[(_step(entry), _rates(entry)) for entry in run.log] for run in runs]
    cells = []
    for caption in dict.fromkeys(key for log in logs for _, rates in log for key in rates):
        lines = []
        for place, log in enumerate(logs):
            line: list[Point] = [(step, rates[caption]) for step, rates in log if rates.get(caption) is not None]
            lines += [Line(place, thinned(line, _SMALL_POINTS))] if line else []
        if values := _values(lines):
            chart = line_chart(lines, ticks(min(0, *values), max(values), SMALL.ticks), _plain, caption, SMALL)
            cells.append(panel(caption, chart, _last_values(lines, figure)))
    return panels(cells, _SMALL_WIDTH) if cells else ""


def _rates(entry: Facts) -> dict[str, float | None]:
    """What one line of the log says, by the caption of its panel."""
    rates = mapping(entry.get("lr")) or {"": entry.get("lr")}
    found = {
        "loss" if name == "loss" else f"loss: {name}": number(value)
        for name, value in mapping(entry.get("losses")).items()
    }
    found |= {"gradient norm": number(entry.get("gradient_norm")), "kept, all classes": number(entry.get("kept"))}
    return found | {f"learning rate {name}".strip(): number(value) for name, value in rates.items()}


def _last_thresholds(runs: Sequence[Run]) -> str:
    """What set the thresholds, at the last step of each run that logs it."""
    shown = []
    for run in filter(lambda run: run.learns_unlabeled, runs):
        entry = next((e for e in reversed(run.pseudo) if numbers(mapping(e.get("facts")).get("tau"))), None)
        if entry is None:
            continue
        facts = mapping(entry.get("facts"))
        clamped = [numbers(mapping(e.get("facts")).get("tau_clamped")) for e in run.pseudo]
        rows = [
            (
                escape(name),
                *(figure(at(numbers(facts.get(key)), i)) for key in ("tau", "m_diff", "m_bias")),
                points(_mean([at(flags, i) for flags in clamped])),
                figure(at(numbers(entry.get("conf")), i)),
                points(_kept_share(entry, i)),
            )
            for i, name in enumerate(run.classes)
        ]
        head = ("class", "threshold", "difficulty", "bias", "clamped, % of log", "mean confidence", "kept %")
        title = f"What set the thresholds of {run.name} at step {_step(entry):.0f}"
        shown.append(folded(title, table(head, rows, numbers=range(1, len(head)))))
    return "".join(shown)


def _values(lines: Sequence[Line]) -> list[float]:
    return [y for line in lines for _, y in line.points if y is not None]


def _last_values(lines: Sequence[Line], form: Form) -> list[tuple[int, str]]:
    return [(line.style, "n/a" if line.last is None else form(line.last)) for line in lines]


def _plain(value: float) -> str:
    """A number for the narrow room beside an axis: 0.05, 2e-4, 15k."""
    if 0 < abs(value) < 0.001:
        mantissa, exponent = f"{value:e}".split("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return short(value)


def _fixed(value: float) -> str:
    return f"{value:.3f}"


def _hundredths(share: float) -> str:
    return f"{100 * share:g}"


def _step(entry: Facts) -> float:
    return number(entry.get("step")) or 0


def _tau(entry: Facts, class_id: int) -> float | None:
    return at(numbers(mapping(entry.get("facts")).get("tau")), class_id)


def _kept_share(entry: Facts, class_id: int) -> float | None:
    """Kept of seen; None where the class was not seen at all."""
    kept, seen = at(numbers(entry.get("kept")), class_id), at(numbers(entry.get("seen")), class_id)
    return kept / seen if kept is not None and seen else None


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
