"""What runs amount to, in a sentence or two."""

from __future__ import annotations

from collections.abc import Sequence

from ftcseg.report.page import points
from ftcseg.report.run_files import SUPERVISED, Run, Score, miou_in

SMALL = 2.0
"""Points of mIoU below which one run says little: on FLSMD the gap between two methods moves by as much from seed to
seed (docs/results/flsmd.md, standard deviations of 0.4 to 2.3)."""

_SETTLED = (None, "done", "started")  # scores are written once training has ended, a moment before the status


def verdict(runs: Sequence[Run]) -> str:
    """The answer: whether unlabelled data helped, or what one run reached, or why nothing can be said."""
    if len(runs) == 1:
        return _alone(runs[0])
    hindrance = why_not_comparable(runs)
    if hindrance:
        return hindrance
    scored = [(run, run.last) for run in runs]
    known = [(run, score) for run, score in scored if score is not None and score.miou is not None]
    silent = [run.name for run, score in scored if score is None or score.miou is None]
    tail = f" No score yet: {', '.join(silent)}." if silent else ""
    if not known:
        told = "".join(_logged(run, f"the log of {run.name}") for run in runs)
        return f"None of these runs has a final score yet{told}."
    ranked = sorted(known, key=lambda pair: -rounded(pair[1].miou))
    base = next((pair for pair in ranked if pair[0].method == SUPERVISED), None)
    others = [pair for pair in ranked if pair[0].method != SUPERVISED]
    if base is None or not others:
        return _ranking(ranked, labelled_only=base is not None) + tail
    return " ".join([_against(others[0], base), *_rest(others[1:], base[1]), *_caution(runs, others, base)]) + tail


def why_not_comparable(runs: Sequence[Run]) -> str | None:
    """Why scores of these runs do not belong in one table; None where they do."""
    unknown = [run.name for run in runs if run.split_hash is None]
    if unknown:
        return f"Whether these runs can be compared is unknown: {', '.join(unknown)} without a split.json."
    if len({run.split_hash for run in runs}) > 1:
        told = ", ".join(f"{run.name} on {str(run.split_hash)[:8]}" for run in runs)
        return f"These runs cannot be compared: they learned from different splits ({told})."
    judged = {run.name: judged_on(run) for run in runs if run.results}
    if len(set(judged.values())) > 1:
        told = ", ".join(f"{name} on {where}" for name, where in judged.items())
        return f"These runs cannot be compared: they were judged on different images ({told})."
    return None


def judged_on(run: Run) -> str:
    """Which images the scores are from, such as "300 val images of flsmd"."""
    images, part, dataset = (run.results.get(key) for key in ("images", "part", "dataset"))
    return " ".join(
        str(word) for word in (images, part, "images", "of" if dataset else None, dataset) if word is not None
    )


def rounded(share: float | None) -> float:
    """A share in points as it is shown, so that differences on the page add up; an unknown one is 0."""
    return round(100 * share, 1) if share is not None else 0.0


def difference(new: float | None, old: float | None) -> str | None:
    """The difference of two shares in points with its sign, as shown: "+3.2", "−0.4", "±0.0"."""
    if new is None or old is None:
        return None
    points_apart = rounded(new) - rounded(old)
    sign = "±" if abs(points_apart) < 0.05 else "+" if points_apart > 0 else "−"
    return f"{sign}{abs(points_apart):.1f}"


def _alone(run: Run) -> str:
    last, best = run.last, run.score("best")
    if last is None or last.miou is None:
        return f"{run.name} has no final score yet{_logged(run, 'its log')}."
    text = f"{run.name} reached {points(last.miou)} mIoU{_by_group(last)} with its last checkpoint"
    if best is not None:
        step, chosen = run.results.get("best_step"), run.results.get("chosen_by")
        told = [f"step {step}" if step is not None else "", f"chosen by {chosen}" if chosen else ""]
        inside = f" ({', '.join(filter(None, told))})" if any(told) else ""
        text += f", {points(best.miou)} with its best{inside}"
    return ". ".join([text, *_unfinished([run])]) + "."


def _logged(run: Run, whose: str) -> str:
    """What the log says where scores.json does not."""
    known = [(entry["step"], miou) for entry in run.log if (miou := miou_in(entry)) is not None]
    return f"; {whose} has {points(known[-1][1])} mIoU at step {known[-1][0]}" if known else ""


def _by_group(score: Score) -> str:
    told = [f"{g} {points(score.groups.get(g))}" for g in ("head", "middle", "tail") if score.groups.get(g) is not None]
    return f" ({', '.join(told)})" if told else ""


def _against(pair: tuple[Run, Score], base: tuple[Run, Score]) -> str:
    """The first sentence: what unlabelled data did."""
    (run, new), (_, old) = pair, base
    gain = round(rounded(new.miou) - rounded(old.miou), 1)
    tail = difference(new.groups.get("tail"), old.groups.get("tail"))
    inside = f" ({tail} on tail classes)" if tail else ""
    did = "helped" if gain > 0 else "hurt"
    start = (
        f"Unlabelled data {did} by {abs(gain):.1f} mIoU{inside}" if gain else f"Unlabelled data did not help{inside}"
    )
    return f"{start}: {run.name} {points(new.miou)} against {points(old.miou)} labelled only."


def _rest(others: Sequence[tuple[Run, Score]], base: Score) -> list[str]:
    told = [f"{run.name} {points(score.miou)} ({difference(score.miou, base.miou)})" for run, score in others]
    return [f"Beside it {', '.join(told)}."] if told else []


def _caution(runs: Sequence[Run], others: Sequence[tuple[Run, Score]], base: tuple[Run, Score]) -> list[str]:
    apart = abs(rounded(others[0][1].miou) - rounded(base[1].miou))
    chance = ["One run each: a difference this small may be chance."] if apart < SMALL else []
    layers = [run.config.get("opr.layers") for run in (others[0][0], base[0])]
    if None not in layers and layers[0] != layers[1]:
        chance.append("The two networks also differ in OPR, so not all of it need come from the unlabelled images.")
    return chance + [f"{text}." for text in _unfinished(runs)]


def _unfinished(runs: Sequence[Run]) -> list[str]:
    """Runs that ended before their time."""
    return [
        f"{run.name} is not finished ({run.about['status']}), so that its numbers may still change"
        for run in runs
        if run.about.get("status") not in _SETTLED
    ]


def _ranking(ranked: Sequence[tuple[Run, Score]], *, labelled_only: bool) -> str:
    told = ", ".join(f"{run.name} {points(score.miou)}{_by_group(score)}" for run, score in ranked)
    why = "All of them learned from labels only" if labelled_only else "None of them learned from labels only"
    return f"mIoU: {told}. {why}, so that what unlabelled data did cannot be said."
