"""Copy a study's answer into docs/results, without links to runs, and without files too large for a repository.

.venv/bin/python scripts/keep_answer.py studies/ablation docs/results/ablation
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

from large_files import LIMIT
from PIL import Image

KEPT = ("index.html", "table.md", "table.tex", "study.json")
_LINK = re.compile(r'<a href="\.\./runs/[^"]*">(.*?)</a>', re.DOTALL)


def main(source: str, target: str) -> None:
    """Replace what the target holds by the answer in the source."""
    answer, kept = Path(source), Path(target)
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for name in KEPT:
        text = (answer / name).read_text(encoding="utf-8")
        if name == "study.json":
            text = json.dumps(json.loads(text), separators=(",", ":"))
        _keep(kept / name, _LINK.sub(r"\1", text))
    for picture in sorted((answer / "figures").glob("*.png")):
        (kept / "figures").mkdir(exist_ok=True)
        _keep_picture(picture, kept)


def _keep(path: Path, text: str) -> None:
    if len(text.encode()) <= LIMIT:
        path.write_text(text, encoding="utf-8")
    else:
        print(f"{path} is left out: it has {len(text.encode()):,} bytes.")


def _keep_picture(picture: Path, kept: Path) -> None:
    """A picture as large as may be, and its drawing where that is small enough; else the text links to the picture."""
    copy, svg = kept / "figures" / picture.name, picture.with_suffix(".svg")
    image: Image.Image = Image.open(picture)
    while True:
        image.save(copy, optimize=True)
        if copy.stat().st_size <= LIMIT:
            break
        image = image.resize((image.width * 3 // 4, image.height * 3 // 4), Image.Resampling.LANCZOS)
    if svg.stat().st_size <= LIMIT:
        shutil.copy(svg, kept / "figures" / svg.name)
    else:
        table = kept / "table.md"
        table.write_text(
            table.read_text(encoding="utf-8").replace(f"(figures/{svg.name})", f"(figures/{picture.name})")
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
