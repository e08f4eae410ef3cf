"""Copy a study's answer into docs/results, without links to runs that are not kept there.

python scripts/keep_answer.py studies/ablation docs/results/ablation
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

KEPT = ("index.html", "table.md", "table.tex", "study.json")
_LINK = re.compile(r'<a href="\.\./runs/[^"]*">(.*?)</a>', re.DOTALL)


def main(source: str, target: str) -> None:
    """Replace what the target holds by the answer in the source."""
    answer, kept = Path(source), Path(target)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for name in KEPT:
        text = (answer / name).read_text(encoding="utf-8")
        (kept / name).write_text(_LINK.sub(r"\1", text), encoding="utf-8")
    if (answer / "figures").is_dir():
        shutil.copytree(answer / "figures", kept / "figures")


if __name__ == "__main__":
    main(*sys.argv[1:])
