"""Begin a run where another one stood in its burn-in, since both have gone the same way so far.

    .venv/bin/python scripts/same_start.py DONOR RUN

Until its burn-in ends a method learns from labels alone, and those that share a network do so alike, to the bit. DONOR
is a run folder, or a copy of one, whose last checkpoint lies within the burn-in. RUN was begun by a command of its own
and stopped after its first lines; these lines must be the donor's to the last digit. Then it takes networks, optimiser
and lines of the donor, keeps thresholds of its own, which have seen nothing yet, and goes on with --resume, or with the
study that began it, as if it had come so far by itself (tests/e2e/test_same_start.py).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ftcseg.files import read_json, read_yaml, write_json, write_text
from ftcseg.train import checkpoint
from ftcseg.train.keeper import BEST, FOLDER, RESUMABLE
from ftcseg.train.listeners import METRICS_FILE, PSEUDO_FILE
from ftcseg.training import CONFIG, RUN

OF_OPR = ("open_gates", "change", "overlap")
"""Facts of the features, which the donor has seen; all others are the threshold's own."""

Json = dict[str, Any]


def lines(file: Path) -> list[Json]:
    """The lines of a run's file; none where it has no such file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []


def trained(run: Path) -> list[Json]:
    """What a run wrote of its training, without what depends on the machine's mood."""
    told = [line for line in lines(run / METRICS_FILE) if line["kind"] == "train"]
    return [{key: value for key, value in line.items() if key != "timing"} for line in told]


def refuse_strangers(donor: Path, run: Path, step: int) -> None:
    """Exit unless the donor is still in its burn-in, and the run has come the same way as far as it came."""
    for folder in (donor, run):
        burn_in = read_yaml(folder / CONFIG)["config"]["teaching"]["burn_in"]
        if step > burn_in:
            raise SystemExit(f"{donor} stands at step {step}, and the burn-in of {folder} ends at {burn_in}.")
    ours, theirs = trained(run), trained(donor)
    if not ours or ours != theirs[: len(ours)]:
        raise SystemExit(f"{run} has no line yet, or others than {donor}: it does not go the same way.")


def lay(donor: Path, run: Path) -> int:
    """Write the donor's place into the run; the step it stands at then."""
    fresh = checkpoint.read(run / FOLDER, "last_good")
    last = checkpoint.read(donor / FOLDER, "last")
    step = int(last.state["clock"]["step"])
    if fresh.state["clock"]["step"] != 0:
        raise SystemExit(f"{run} has gone on for too long: its thresholds at the beginning are no longer kept.")
    refuse_strangers(donor, run, step)
    own = f"{read_json(run / RUN)['parts']['thresholds']}."
    with fresh.tensors("model") as model:
        begun = {name: model[name] for name in model}
    for name in (*RESUMABLE, BEST):
        if not checkpoint.exists(donor / FOLDER, name):
            continue
        given = checkpoint.read(donor / FOLDER, name)
        with given.tensors("model") as model, given.tensors("optim") as optim, given.tensors("chance") as chance:
            nets = {key: model[key] for key in model if not key.startswith(own)}
            if nets.keys() != {key for key in begun if not key.startswith(own)}:
                raise SystemExit(f"{run} has other networks than {donor}.")
            parts = {"model": begun | nets, "optim": dict(optim), "chance": dict(chance)}
            checkpoint.write(run / FOLDER, name, parts, {**given.state, "identity": fresh.state["identity"]})
    lay_lines(donor, run, step)
    return step


def lay_lines(donor: Path, run: Path, step: int) -> None:
    """The donor's lines up to its place, with the facts of the run's own thresholds, and the time they took."""
    metrics = [line for line in lines(donor / METRICS_FILE) if line["step"] <= step]
    watched = {line["step"]: line["facts"] for line in lines(donor / PSEUDO_FILE)}
    own = {key: value for line in lines(run / PSEUDO_FILE)[:1] for key, value in line["facts"].items()}
    steps = [line["step"] for line in metrics if line["kind"] == "train"]
    seen = [own | {key: watched[at][key] for key in OF_OPR if key in watched.get(at, {})} for at in steps]
    pseudo = [{"step": at, "facts": facts} for at, facts in zip(steps, seen, strict=True) if facts]
    for name, told in ((METRICS_FILE, metrics), (PSEUDO_FILE, pseudo)):
        write_text(run / name, "".join(json.dumps(line) + "\n" for line in told))
    seconds = max(line["timing"]["seconds"] for line in metrics if line["kind"] == "train")
    write_json(run / RUN, {**read_json(run / RUN), "steps": step, "seconds": round(seconds, 1)})


def main() -> None:
    """Lay one run's burn-in into another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("donor", type=Path)
    parser.add_argument("run", type=Path)
    asked = parser.parse_args()
    print(f"{asked.run} goes on from step {lay(asked.donor, asked.run)}")


if __name__ == "__main__":
    main()
