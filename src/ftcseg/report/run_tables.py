"""The tables of a run: intervals, audit, prototypes, confusion, settings, how to do it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ftcseg.report.page import bar, escape, figure, folded, note, points, table
from ftcseg.report.run_files import Ends, Facts, Run, Score, at, mapping, mappings, number, numbers
from ftcseg.types import GROUPS

MAX_CONFUSION = 40
"""Classes of which the whole matrix is shown; of more, only the worst mix-ups."""
_MIX_UPS = 5
_OPR_ROWS = 8
_BY_USER = "set by the user"  # how config.yaml explains what came from the command line
_RATES = ("accuracy", "filtered", "correct_kept", "raw_accuracy")
_GROUP_WORDS = {"global": "all", **{str(g): g if g == "background" else f"{g} classes" for g in GROUPS}}
_STAGE_FACTS = (("open_gates", "open gates"), ("change", "change %"), ("overlap", "overlap"))
STYLE = """
.heat table { min-width: 0; font-size: .8rem; border-collapse: separate; border-spacing: 1px; }
.heat td, .heat th { border: 0; padding: .3em .35em; text-align: right; font-variant-numeric: tabular-nums; }
.heat th.col { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; font-weight: 400;
  max-height: 9rem; vertical-align: bottom; }
.heat th.row { font-weight: 400; white-space: nowrap; position: sticky; left: 0; background: Canvas; }
.heat td { min-width: 2.2em; border-radius: 2px; } .heat td.zero { opacity: .35; }
.heat td.hit { outline: 1px solid currentColor; outline-offset: -1px; font-weight: 600; }
.sides table { font-size: .9rem; } .sides .bar { font-size: .5rem; height: .6rem; }
.sides { display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
"""


def intervals(runs: Sequence[Run]) -> str:
    """Between which ends each score would lie had other images been drawn; nothing where no run tells."""
    known = [(run, run.last) for run in runs if run.last is not None and run.last.bounds]
    if not known:
        return ""
    shown = [(run, _interval_table(run, score)) for run, score in known]
    every = [bounds for _, score in known for bounds in score.bounds.values()]
    share = f"{100 * every[0].share:.0f} %"
    told = (
        f"{share} interval: how far a score would move had other images of the same kind been judged, by drawing them "
        "again with replacement. It knows nothing of other seeds: training again would move the score as well."
    )
    if any("sequences" in score.bounds for _, score in known):
        told += (
            " Neighbouring frames repeat each other, so of the two the interval over whole sequences is the honest one."
        )
    warned = "".join(note(text) for text in dict.fromkeys(bounds.warning for bounds in every if bounds.warning))
    if len(runs) == 1:
        return note(told) + warned + shown[0][1]
    return note(told) + warned + "".join(folded(f"Intervals of {run.name}", inside) for run, inside in shown)


def _interval_table(run: Run, score: Score) -> str:
    """mIoU, groups and classes, with the ends over images and over sequences side by side."""
    every = list(score.bounds.values())
    groups = [(group, word) for group, word in _GROUP_WORDS.items() if group in run.groups and group != "background"]
    rows = [("<b>mIoU</b>", points(score.miou), *(_between(b.miou) for b in every))]
    for group, word in groups:
        ends = [_between(b.groups.get(group)) for b in every]
        rows.append((f"<b>{word}</b>", points(score.groups.get(group)), *ends))
    for i, name in enumerate(run.classes):
        ends = [_between(b.ious[i] if i < len(b.ious) else None) for b in every]
        rows.append((_tagged(name, run.groups, i), points(at(score.ious, i)), *ends))
    head = ("class", "IoU", *(f"over {bounds.units} {word}" for word, bounds in score.bounds.items()))
    return table(head, rows, numbers=range(1, len(head)))


def _between(ends: Ends) -> str:
    return "n/a" if ends is None else f"{points(ends[0])} to {points(ends[1])}"


def audit(runs: Sequence[Run]) -> str:
    """Pseudo-labels against the truth that training never saw, per class and group."""
    cells = []
    for run in runs:
        if not run.audit:
            continue
        kept, raw = number(run.audit.get("kept_miou")), number(run.audit.get("raw_miou"))
        images = f" of {run.audit['images']} images" if run.audit.get("images") is not None else ""
        told = note(f"mIoU of the pseudo-labels{images}: {points(raw)} unfiltered, {points(kept)} of those kept.")
        by_prediction = folded("By what the pixels were called", _rates(run, mapping(run.audit.get("by_prediction"))))
        by_truth = _rates(run, mapping(run.audit.get("by_truth")))
        cells.append(f"<div><h3>{escape(run.name)}</h3>{told}{by_truth}{by_prediction}</div>")
    if not cells:
        return note("No audit: no run holds an audit.json. «ftcseg audit RUN» writes it.")
    told = (
        "Of the pixels that truly are of a class, in hundredths: how many the threshold dropped (filtered), how many "
        "of the kept are right (accuracy), and how many of all were kept and are right (correctly kept)."
    )
    return note(told) + f'<div class="sides">{"".join(cells)}</div>'


def _rates(run: Run, side: Facts) -> str:
    groups = mapping(side.get("micro"))
    rows = [_rate_row(f"<b>{word}</b>", mapping(groups.get(g))) for g, word in _GROUP_WORDS.items() if g in groups]
    rows += [
        _rate_row(_tagged(str(c.get("name")), run.groups, number(c.get("id"))), c)
        for c in mappings(side.get("classes"))
    ]
    head = ("class", "accuracy", "filtered", "unfiltered accuracy", "correctly kept", "")
    return table(head, rows, numbers=range(1, 5))


def _rate_row(name: str, facts: Facts) -> tuple[str, ...]:
    accuracy, filtered, kept, raw = (number(facts.get(rate)) for rate in _RATES)
    return name, points(accuracy), points(filtered), points(raw), points(kept), bar(kept or 0)


def _tagged(name: str, groups: Sequence[str | None], class_id: float | None) -> str:
    group = groups[int(class_id)] if class_id is not None and 0 <= class_id < len(groups) else None
    return escape(name) + (f' <span class="tag">{group}</span>' if group and group != "background" else "")


def opr(runs: Sequence[Run]) -> str:
    """Open gates, size of the correction and overlap of each stage, over time."""
    shown = []
    for run in runs:
        logged = [entry for entry in run.pseudo if numbers(mapping(entry.get("facts")).get("open_gates"))]
        if not logged:
            continue
        stages = max(len(numbers(mapping(entry["facts"]).get("open_gates"))) for entry in logged)
        head = ["step", *[word for _ in range(stages) for _, word in _STAGE_FACTS]]
        over = [("", 1), *((f"stage {s + 1}", len(_STAGE_FACTS)) for s in range(stages))]
        rows = [[f"{number(entry.get('step')) or 0:.0f}", *_stage_cells(entry, stages)] for entry in _spread(logged)]
        title = f"<h3>{escape(run.name)}</h3>" if len(runs) > 1 else ""
        shown.append(title + table(head, rows, numbers=range(len(head)), over=over))
    if not shown:
        return note("None of these runs logged prototypes.")
    told = (
        "Stages run from shallow to deep. Open gates: prototypes that look like foreground and may speak. Change: how "
        "far they move the features, in hundredths of their length. Overlap: 0 where all prototypes are orthogonal."
    )
    return note(told) + "".join(shown)


def _stage_cells(entry: Facts, stages: int) -> list[str]:
    facts = mapping(entry.get("facts"))
    cells = []
    for stage in range(stages):
        for key, _ in _STAGE_FACTS:
            value = at(numbers(facts.get(key)), stage)
            cells.append(points(value) if key == "change" else figure(value))
    return cells


def _spread(entries: Sequence[Facts]) -> list[Facts]:
    """Some entries evenly over time, the first and the last among them."""
    if len(entries) <= _OPR_ROWS:
        return list(entries)
    return [entries[round(i * (len(entries) - 1) / (_OPR_ROWS - 1))] for i in range(_OPR_ROWS)]


def confusion(runs: Sequence[Run]) -> str:
    """For every true class, which classes its pixels were given."""
    shown: list[str] = []
    for run in runs:
        counts = run.results.get("confusion")
        rows = [[value or 0 for value in numbers(row)] for row in counts] if isinstance(counts, list) else []
        names = run.classes
        if not rows or len(rows) != len(names) or any(len(row) != len(names) for row in rows):
            continue
        shares = [[value / total if (total := sum(row)) else None for value in row] for row in rows]
        matrix = _heat(names, shares) if len(names) <= MAX_CONFUSION else ""
        part = note(_mix_ups(names, shares)) + matrix
        if len(runs) > 1:
            part = folded(run.name, part, unfolded=not shown)
        shown.append(part)
    if not shown:
        return note("No confusion matrix: no run holds one in its scores.json.")
    told = "Rows are the truth, columns the answer; each row adds up to 100. Blue is right, orange wrong."
    return note(told) + "".join(shown)


def _mix_ups(names: Sequence[str], shares: Sequence[Sequence[float | None]]) -> str:
    wrong = [(v, i, j) for i, row in enumerate(shares) for j, v in enumerate(row) if v is not None and i != j and v > 0]
    worst = sorted(wrong, reverse=True)[:_MIX_UPS]
    told = ", ".join(f"{points(v)} % of {names[i]} are called {names[j]}" for v, i, j in worst)
    return f"Worst mix-ups: {told}." if told else "Nothing is mixed up."


def _heat(names: Sequence[str], shares: Sequence[Sequence[float | None]]) -> str:
    top = "".join(f'<th class="col">{escape(name)}</th>' for name in names)
    body = []
    for i, row in enumerate(shares):
        cells = "".join(_heat_cell(value, hit=i == j) for j, value in enumerate(row))
        body.append(f'<tr><th class="row">{escape(names[i])}</th>{cells}</tr>')
    return f'<div class="wide heat"><table><tr><th class="row"></th>{top}</tr>{"".join(body)}</table></div>'


def _heat_cell(share: float | None, *, hit: bool) -> str:
    if share is None:
        return '<td class="zero">n/a</td>'
    shown = f"{100 * share:.0f}"
    color = "0 114 178" if hit else "213 94 0"
    style = f' style="background:rgb({color} / {0.08 + 0.62 * share:.2f})"' if share >= 0.005 or hit else ""
    return f'<td class="{"hit" if hit else "zero" if shown == "0" else "miss"}"{style}>{shown}</td>'


def settings(runs: Sequence[Run]) -> str:
    """What differs between the runs, then every setting with its reason."""
    configured = [run for run in runs if run.config]
    if not configured:
        return note("No settings: no run holds a config.yaml.")
    parts = [_differing(configured)] if len(configured) > 1 else []
    for run in configured:
        reasoned = {key: value for key, value in run.config.items() if run.why.get(key)}
        plain = {key: value for key, value in run.config.items() if key not in reasoned}
        inside = _setting_table(reasoned, run.why) if reasoned else ""
        inside += folded(f"{len(plain)} more, as they come", _setting_table(plain)) if plain and reasoned else ""
        inside += _setting_table(plain) if plain and not reasoned else ""
        parts.append(folded(f"Every setting of {run.name}", inside) if len(configured) > 1 else inside)
    return "".join(parts)


def _setting_table(config: Mapping[str, Any], why: Facts | None = None) -> str:
    cells = [(f"<code>{escape(key)}</code>", f"<code>{escape(_value(v))}</code>") for key, v in config.items()]
    if why is None:
        return table(("setting", "value"), cells)
    reasons = [escape(str(why[key])) for key in config]
    return table(("setting", "value", "why"), [(*pair, why) for pair, why in zip(cells, reasons, strict=True)])


def _differing(runs: Sequence[Run]) -> str:
    keys = dict.fromkeys(key for run in runs for key in run.config)
    rows = []
    for key in keys:
        values = [_value(run.config[key]) if key in run.config else "n/a" for run in runs]
        if len(set(values)) > 1:
            rows.append((f"<code>{escape(key)}</code>", *(f"<code>{escape(v)}</code>" for v in values)))
    head = ("what differs", *(run.name for run in runs))
    return table(head, rows) if rows else note("The settings of these runs do not differ.")


def _value(value: object) -> str:
    """A setting as YAML would have it on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def reproduce(runs: Sequence[Run]) -> str:
    """Commands, split, versions, machine and time."""
    commands = "".join(f"<p><code>{escape(_command(run))}</code></p>" for run in runs)
    known = list(_conditions(runs))
    alike = [(escape(word), escape(values[0])) for word, values in known if len(set(values)) == 1]
    unlike = [[escape(word), *map(escape, values)] for word, values in known if len(set(values)) > 1]
    of_all = table(("", "all runs" if len(runs) > 1 else runs[0].name), alike) if alike else ""
    return commands + of_all + (table(("", *(run.name for run in runs)), unlike) if unlike else "")


def _command(run: Run) -> str:
    """The command as it was given where run.json has it; otherwise one that sets what the user had set."""
    told = run.about.get("command")
    if isinstance(told, list):
        return shlex.join(str(word) for word in told)
    if told:
        return str(told)
    dataset = str(run.about.get("dataset") or run.results.get("dataset") or run.split.get("dataset") or "DATASET")
    chosen = [(key, value) for key, value in run.config.items() if run.why.get(key) == _BY_USER]
    options = [word for key, value in chosen for word in ("--set", f"{key}={_value(value)}")]
    return shlex.join(["ftcseg", "train", dataset, "--method", run.method, *options])


def _conditions(runs: Sequence[Run]) -> Iterable[tuple[str, list[str]]]:
    def told(facts: Facts, key: str) -> str:
        return str(facts[key]) if facts.get(key) is not None else "n/a"

    def images(run: Run) -> str:
        return ", ".join(f"{count} {part}" for part, count in mapping(run.split.get("images")).items()) or "n/a"

    yield "folder", [str(run.folder) for run in runs]
    yield "method", [run.method for run in runs]
    yield "split hash", [run.split_hash or "n/a" for run in runs]
    yield "split seed", [told(run.split, "seed") for run in runs]
    yield "images", [images(run) for run in runs]
    yield "best checkpoint chosen by", [told(run.results, "chosen_by") for run in runs]
    for word, key in (("steps", "steps"), ("status", "status"), ("ftcseg", "version"), ("torch", "torch")):
        yield word, [told(run.about, key) for run in runs]
    yield "machine", [told(run.about, "machine") for run in runs]
    yield "time", [_duration(number(run.about.get("seconds"))) for run in runs]
    yield "images per second, mean", [figure(_mean(_timed(run, "images_per_second"))) for run in runs]
    yield "memory at most, MB", [figure(max(_timed(run, "resident_mb"), default=None), 5) for run in runs]
    yield "device memory at most, MB", [figure(max(_timed(run, "device_peak_mb"), default=None), 5) for run in runs]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "n/a"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _timed(run: Run, what: str) -> list[float]:
    """One measure of every interval that was timed."""
    values = (number(mapping(entry.get("timing")).get(what)) for entry in run.log)
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
