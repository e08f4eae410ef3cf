"""Trees of files for the tests of readers. Readers never open a picture, so most files may be empty."""

from __future__ import annotations

from pathlib import Path

from ftcseg.types import Finding, Found, MaskFile, Record


def tree(root: Path, *names: str) -> Path:
    """Empty files of these names below the root."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def write(root: Path, name: str, *lines: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def masks(found: Found) -> dict[str, str | None]:
    """Image -> the file of its mask."""
    return {r.image: r.mask.path if isinstance(r.mask, MaskFile) else None for r in found.records}


def parts(found: Found) -> dict[str, str]:
    return {r.image: r.part for r in found.records}


def finding(found: Found, kind: str) -> Finding:
    """The only finding of this kind."""
    (one,) = (f for f in found.findings if f.kind == kind)
    return one


def kinds(found: Found) -> set[str]:
    return {f.kind for f in found.findings}


def labelled(image: str, mask: str, part: str = "train") -> Record:
    return Record(image, MaskFile(mask), part)  # type: ignore[arg-type]
