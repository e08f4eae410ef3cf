"""Keep what is worth keeping of a study's finished runs: one small JSON file each.

    .venv/bin/python scripts/flsmd_records.py STUDIES docs/results/flsmd
    .venv/bin/python scripts/flsmd_records.py STUDIES docs/results/flsmd --only ablation gain
    .venv/bin/python scripts/flsmd_records.py STUDIES docs/results/flsmd --again
    .venv/bin/python scripts/flsmd_records.py STUDIES docs/results/flsmd --back

STUDIES is the folder that `ftcseg study --out` was given. A record holds the run's settings and split, its scores by
class (last and best, teacher and student), its pseudo-labels by class at the end, and its thresholds, kept shares and
prototypes at ten moments. Records are written again only where they changed; none is ever removed. A run that was laid
back has its record already, and gets another one where a further study shares it under a name of its own.

Beside them, finished/ holds what `ftcseg study` asks of a finished run, packed: --back lays these folders into STUDIES,
on whatever machine, and the study goes on with the runs that are missing. Networks are not kept. With --again the runs
are such as are kept already, trained on another machine as well: they go into folders of their own.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from ftcseg.data.archives import unpack
from ftcseg.files import read_json

DIGITS, MOMENTS = 5, 10
RUNS, KEPT, PACKED = "runs", "finished", ".tar.xz"
AGAIN = "again-"
"""Begins the names of folders with the same runs, seeds and all, as another machine trained them."""
ASKED = (
    *("audit.json", "counts.safetensors", "labeled.txt", "scores.json"),
    *("split.json", "test.txt", "unlabeled.txt", "val.txt"),
)
"""What a study reads of a finished run, beside run.json, of which only this is kept:"""
NOTED = ("status", "steps", "seconds")
PER_CLASS = ("iou", "recall", "precision")
OVER_TIME = ("tau", "accuracy", "prior", "predicted", "open_gates", "change", "overlap")

Json = dict[str, Any]


def rounded(value: Any) -> Any:
    """The same with fewer digits, however deep."""
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return {key: rounded(one) for key, one in value.items()} if isinstance(value, dict) else value


def score(told: Json) -> Json:
    """A predictor's score by group and class."""
    classes = {c["name"]: {key: c[key] for key in PER_CLASS} for c in told["classes"]}
    return {"miou": told["miou"], "ece": told["ece"], "groups": told["groups"], "classes": classes}


def audited(told: Json | None) -> Json | None:
    """Pixels by class: as they are and as they are called, kept and right."""
    if told is None:
        return None
    sides = {side: {c["name"]: c["counts"] for c in told[side]["classes"]} for side in ("by_truth", "by_prediction")}
    return {"images": told["images"], "kept_miou": told["kept_miou"], "raw_miou": told["raw_miou"], **sides}


def over_time(file: Path) -> list[Json]:
    """Some moments of a run: shares kept by predicted class, thresholds, prototypes."""
    if not file.is_file():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    stride = max(1, len(lines) // MOMENTS)
    moments = []
    for line in lines[stride - 1 :: stride]:
        told = {"step": line["step"], **{key: line["facts"][key] for key in OVER_TIME if key in line["facts"]}}
        moments.append(told | {key: line[key] for key in ("seen", "kept", "conf") if key in line})
    return moments


def record(study: str, result: Json, run: Path) -> Json:
    """All that is kept of one run."""
    scores = read_json(run / "scores.json")
    split = read_json(run / "split.json")
    told = {key: result[key] for key in ("row", "method", "dataset", "labels", "seed", "steps", "settings", "key")}
    points = {
        when: {who: score(one) for who, one in scores["checkpoints"][when].items() if "classes" in one}
        for when in ("last", "best")
    }
    facts = {
        "study": study,
        "split": split["hash"][:16],
        "parts": split["parts_hash"][:16],
        "images": scores["images"],
        "labelled": split["images"]["labeled"],
        "unlabelled": split["images"]["unlabeled"],
        "seconds": result["seconds"],
        "predictor": scores["predictor"],
        "best_step": scores["best_step"],
        "scores": points,
        "audit": audited(result["audit"]),
        "over_time": over_time(run / "pseudo.jsonl"),
    }
    return dict(rounded(told | facts))


def shared(study: str, result: Json, out: Path, prefix: str) -> Json:
    """The record of a run that was kept already, under the name that this study has for it."""
    found = out.glob(f"*/*-{result['key'][:6]}.json")
    # The same key is in both kinds of folder where two machines trained a run; their scores differ.
    kept = next((file for file in found if file.parent.name.startswith(AGAIN) == bool(prefix)), None)
    if kept is None:
        raise SystemExit(f"{out} has no record of {result['method']}-{result['key']}, which {study} shares.")
    return dict(read_json(kept)) | {"study": study, "row": result["row"]}


def name_of(told: Json) -> str:
    """A file name that says what the run was; the key keeps apart what would be called alike."""
    words = f"{told['row']}-{told['labels']}-seed{told['seed']}-{told['key'][:6]}".lower()
    return "".join(letter if letter.isalnum() or letter in "-+." else "-" for letter in words) + ".json"


def folder_of(studies: Path, told: Json) -> Path:
    """Where a study trained the run of a result."""
    return studies / RUNS / f"{told['method']}-{told['key']}"


def pack(run: Path, target: Path) -> None:
    """What a study asks of a finished run as one file, the same bytes for the same run."""
    noted = read_json(run / "run.json")
    texts = {name: (run / name).read_bytes() for name in ASKED if (run / name).is_file()}
    texts["run.json"] = json.dumps({key: noted[key] for key in NOTED}).encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as archive:
        for name, text in sorted(texts.items()):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))


def lay_back(packed: Path, studies: Path) -> None:
    """The folders of packed runs, where a study looks for them; what is there stays."""
    for file in sorted(packed.glob(f"*{PACKED}")):
        target = studies / RUNS / file.name.removesuffix(PACKED)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            unpack(file, target)
            print(target)


def keep(studies: Path, out: Path, only: list[str] | None, prefix: str = "") -> None:
    """Write the records and packed runs that are new."""
    for file in sorted(studies.glob("*/study.json")):
        study = file.parent.name
        if only and study not in only:
            continue
        for result in read_json(file)["results"]:
            run = folder_of(studies, result)
            if (run / "metrics.jsonl").is_file():
                told = record(study, result, run)
                pack(run, out / f"{prefix}{KEPT}" / f"{run.name}{PACKED}")
            else:  # laid back: its record was kept where it was trained
                told = shared(study, result, out, prefix)
            target = out / f"{prefix}{study}" / name_of(told)
            text = json.dumps(told, separators=(",", ":")) + "\n"
            if not target.is_file() or target.read_text(encoding="utf-8") != text:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
                print(f"{target} {100 * told['scores']['last'][told['predictor']]['miou']:.1f}")


def main() -> None:
    """Write what is new, or lay back what was kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", help="studies to look at; all without it")
    parser.add_argument("--back", action="store_true", help="lay packed runs into STUDIES instead")
    parser.add_argument("--again", action="store_true", help="these runs are kept already, from another machine")
    asked = parser.parse_args()
    if asked.back:
        lay_back(asked.out / KEPT, asked.studies)
    else:
        keep(asked.studies, asked.out, asked.only, AGAIN if asked.again else "")


if __name__ == "__main__":
    main()
