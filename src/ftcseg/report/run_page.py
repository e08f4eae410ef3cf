"""The page about one run or several: the verdict, pictures, classes, curves, then everything that was counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ftcseg.errors import DataError, UsageError
from ftcseg.files import inside, write_text
from ftcseg.report import charts
from ftcseg.report.page import escape, figure, folded, lead, note, page, points, section, swatch, table
from ftcseg.report.pictures import IGNORE_COLOR, class_colors, file_url
from ftcseg.report.run_curves import curves
from ftcseg.report.run_files import Run, Score, read_runs
from ftcseg.report.run_tables import STYLE as TABLE_STYLE
from ftcseg.report.run_tables import audit, confusion, intervals, opr, reproduce, settings
from ftcseg.report.verdict import difference, judged_on, verdict, why_not_comparable

MAX_PICTURES = 24
PICTURE_SIDE = 320
PICTURE_LIMIT = 60_000
"""Characters of one picture's address: 24 of them are less than 1.5 MB."""
_SHARED = ("input", "truth")
_OWN = ("prediction", "kept")
_WORDS = {"prediction": "prediction", "kept": "kept pseudo-labels"}
_GROUP_TITLES = (("head", "Head"), ("middle", "Middle"), ("tail", "Tail"), ("background", "Background"))
_STYLE = """
.strip { display: grid; grid-template-columns: repeat(var(--n), 1fr); gap: .5rem; margin: .25rem 0 1.25rem; }
.strip img { width: 100%; display: block; border-radius: 3px; background: #000; }
.strip .none { background: none; aspect-ratio: 3 / 2; border: 1px dashed var(--line); border-radius: 3px; display: grid;
  place-content: center; opacity: .7; }
.strip figcaption { font-size: .8rem; line-height: 1.3; padding-top: .2rem; }
.strip .sample { width: 1.8em; }
h3.id { font: .85rem ui-monospace, monospace; opacity: .8; margin: 0; overflow-wrap: anywhere; }
.colors { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; margin: 0 0 1rem; }
p.lead { font-size: 1.25rem; line-height: 1.4; }
@media (max-width: 40rem) { .strip { grid-template-columns: 1fr 1fr; } }
"""


def run_page(runs: Sequence[Path]) -> str:
    """HTML about these run folders, in the order given."""
    if not runs:
        raise UsageError("A report needs at least one run folder.")
    if len(runs) > charts.MAX_LINES:
        raise UsageError(f"A page tells at most {charts.MAX_LINES} runs apart; these are {len(runs)}.")
    read = read_runs(runs)
    body = [
        lead(verdict(read)),
        note(_circumstances(read)),
        _summary(read),
        section("Pictures", _pictures(read)),
        section("IoU of each class", _class_bars(read), intervals(read)),
        section("Over time", curves(read)),
        section("What the pseudo-labels were worth", audit(read)),
        section("Prototypes (OPR)", opr(read)),
        section("What is taken for what", confusion(read)),
        section("Settings", settings(read)),
        section("To do it again", reproduce(read)),
        *_missing(read),
    ]
    dataset = next((str(r.results["dataset"]) for r in read if r.results.get("dataset")), None)
    title = ", ".join(run.name for run in read) + (f" on {dataset}" if dataset else "")
    footer = "Made by ftcseg report from the files of the run; open it anywhere, it needs no network."
    return page(title, body, footer, charts.STYLE + TABLE_STYLE + _STYLE)


def write_run_page(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page; by default as report.html into the first run's folder."""
    text = run_page(runs)
    file = out or runs[0] / "report.html"
    if file.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"The page is HTML; {file} does not end in .html.")
    try:
        write_text(file, text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Choose another --out.") from error
    return file


def _circumstances(runs: Sequence[Run]) -> str:
    """What the numbers are of: images, network, split."""
    first = next((run for run in runs if run.last is not None), None)
    if first is None or first.last is None:
        return "mIoU and IoU are in hundredths."
    told = f"Scores in hundredths, from {judged_on(first)}, of the {first.last.predictor} at the last step."
    images = first.split.get("images")
    if why_not_comparable(runs) is None and isinstance(images, dict):
        told += f" Trained on {images.get('labeled', 'n/a')} labelled and {images.get('unlabeled', 'n/a')} unlabelled"
        told += f" images (split {str(first.split_hash)[:8]})."
    return told


def _summary(runs: Sequence[Run]) -> str:
    """All runs in one small table, then every network of every checkpoint, folded."""
    rows = []
    for place, run in enumerate(runs):
        last, best = run.last, run.score("best")
        groups = [points(last.groups.get(g) if last else None) for g, _ in _GROUP_TITLES]
        step = run.results.get("best_step")
        at = f" <small>step {escape(str(step))}</small>" if step is not None and best is not None else ""
        name = charts.line_key(place) + escape(run.name) if len(runs) > 1 else escape(run.name)
        score = f"<b>{points(last.miou if last else None)}</b>"
        rows.append((name, score, *groups, points(best.miou if best else None) + at))
    head = ("run", "mIoU", *(word.lower() for _, word in _GROUP_TITLES), "best mIoU")
    all_scores = [(run, score) for run in runs for score in run.scores]
    shown = table(head, rows, numbers=range(1, len(head)))
    return shown + (folded("Every checkpoint and network", _every_score(all_scores)) if all_scores else "")


def _every_score(scores: Sequence[tuple[Run, Score]]) -> str:
    rows = [
        (
            escape(run.name),
            escape(s.checkpoint),
            escape(s.predictor),
            *(points(v) for v in (s.miou, s.groups.get("head"), s.groups.get("tail"), s.pixel_accuracy)),
            figure(s.ece),
            difference(s.miou, run.last.miou) or "n/a" if run.last else "n/a",
        )
        for run, s in scores
    ]
    head = ("run", "checkpoint", "network", "mIoU", "head", "tail", "pixel accuracy", "ECE", "to the run's score")
    return table(head, rows, numbers=range(3, len(head)))


def _pictures(runs: Sequence[Run]) -> str:
    """The same images of every run: input, truth, then what each run made of them."""
    kinds = {
        run.name: [k for k in _OWN if (k != "kept" or run.learns_unlabeled) and any(e.get(k) for e in run.pictures)]
        for run in runs
    }
    columns = len(_SHARED) + sum(len(own) for own in kinds.values())
    entries = [{str(entry.get("id")): entry for entry in run.pictures} for run in runs]
    order = dict.fromkeys(key for known in entries for key in known)
    ranked = sorted(order, key=lambda key: -sum(key in known for known in entries))
    strips = []
    for key in ranked[: max(1, MAX_PICTURES // columns)]:
        holder = next(i for i, known in enumerate(entries) if key in known)
        cells = [_picture(runs[holder], entries[holder][key].get(kind), kind) for kind in _SHARED]
        for place, run in enumerate(runs):
            caption = (charts.line_key(place) + escape(run.name) + ": ") if len(runs) > 1 else ""
            own = entries[place].get(key, {})
            cells += [_picture(run, own.get(kind), caption + _WORDS[kind]) for kind in kinds[run.name]]
        width = columns if columns <= 8 else 6
        strips.append(f'<h3 class="id">{escape(key)}</h3><div class="strip" style="--n:{width}">{"".join(cells)}</div>')
    if not strips:
        return note("No pictures: no run holds a pictures/index.json.")
    return _color_key(runs) + "".join(strips)


def _picture(run: Run, name: object, caption: str) -> str:
    """One picture under its caption (ready-made), or a box that says there is none."""
    shown = '<div class="none">no picture</div>'
    if isinstance(name, str):
        try:
            address = file_url(inside(run.folder / "pictures", name), PICTURE_SIDE, PICTURE_LIMIT)
            shown = f'<img src="{address}" alt="{escape(name)}">'
        except DataError:
            shown = '<div class="none">unreadable</div>'
    return f"<figure>{shown}<figcaption>{caption}</figcaption></figure>"


def _color_key(runs: Sequence[Run]) -> str:
    """Which colour is which class; left out where nobody says which class is background."""
    run = next((r for r in runs if r.classes and any(r.groups)), None)
    if run is None:
        return ""
    colors = class_colors([group == "background" for group in run.groups])
    keys = [f"<span>{swatch(c)}{escape(name)}</span>" for c, name in zip(colors, run.classes, strict=True)]
    dropped = f"<span>{swatch(IGNORE_COLOR)}left out, or nobody knows</span>"
    return f'<div class="colors">{"".join(keys)}{dropped}</div>'


def _class_bars(runs: Sequence[Run]) -> str:
    """Bars of every class, the groups side by side."""
    scored = next((run for run in runs if run.last is not None and run.last.ious), None)
    if scored is None:
        return note("No scores: no run holds a scores.json with classes.")
    names, groups = scored.classes, scored.groups
    every = [run.last.ious if run.last else () for run in runs]
    high = max((value for ious in every for value in ious if value is not None), default=1.0) or 1.0
    blocks: list[tuple[str | None, str]] = [(group, word) for group, word in _GROUP_TITLES if group in groups]
    if None in groups:
        blocks.append((None, "Classes without a group" if blocks else "All classes"))
    cells = []
    for group, word in blocks:
        members = [i for i, own in enumerate(groups) if own == group]
        rows = [(names[i], [ious[i] if i < len(ious) else None for ious in every]) for i in members]
        chart = charts.bars(rows, high, points, f"IoU of {word.lower()}")
        means = [run.last.groups.get(group) if run.last and group else None for run in runs]
        told = [(i, points(mean)) for i, mean in enumerate(means)] if group else []
        cells.append(charts.panel(word, chart, told))
    legend = charts.bar_legend([run.name for run in runs])
    return charts.hatches() + legend + charts.panels(cells, "14rem", "roomy bars")


def _missing(runs: Sequence[Run]) -> list[str]:
    told = [(escape(run.name), escape(problem)) for run in runs for problem in run.problems]
    return [section("What is missing or went wrong", table(("run", "what"), told))] if told else []
