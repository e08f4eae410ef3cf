"""The named sets: a literal table of fact sheets, where they lie on this machine, and which one a folder is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ftcseg.data.sets import acdc_driving, cityscapes, flsmd, fssg, suim, voc, voc_lt
from ftcseg.data.sets.sheet import Sheet
from ftcseg.errors import UsageError, unknown_name

SETS: dict[str, Sheet] = {
    "flsmd": flsmd.SHEET,
    "fssg": fssg.SHEET,
    "suim": suim.SHEET,
    "acdc-driving": acdc_driving.SHEET,
    "voc": voc.SHEET,
    "voc-lt": voc_lt.SHEET,
    "cityscapes": cityscapes.SHEET,
}


def sheet_named(name: str) -> Sheet:
    """The sheet of that name; an unknown name is an error that lists the nearest ones."""
    if name not in SETS:
        raise unknown_name("set", name, SETS)
    return SETS[name]


def data_root(root: Path | None = None) -> Path | None:
    """Where sets are looked for: `root` if given, else FTCSEG_DATA, else nowhere."""
    chosen = os.environ.get("FTCSEG_DATA")
    return root or (Path(chosen).expanduser() if chosen else None)


def find(sheet: Sheet, root: Path) -> Path | None:
    """The set's folder below the root, or the root where it is the set itself; None where neither is."""
    for folder in (root / name for name in sheet.folders):
        if folder.is_dir() and _is_set(folder, sheet):
            return folder
    named_like_it = any(root.resolve().name == Path(name).name for name in sheet.folders)
    is_root = root.is_dir() and (bool(sheet.marks) or named_like_it) and _is_set(root, sheet)
    return root if is_root else None


def locate(name: str, root: Path | None = None) -> Path:
    """The folder of a named set; where it is absent, an error that says where it was looked for and how to get it."""
    sheet = sheet_named(name)
    base = data_root(root)
    found = find(sheet, base) if base else None
    if found is not None:
        return found
    places = ", ".join(sheet.folders[:3])
    missing = (
        f"{sheet.name} is not in {base} (looked for {places} and for the set itself)."
        if base
        else f"To find {sheet.name}, name the folder your sets are in: --root FOLDER, or set FTCSEG_DATA."
    )
    where = "" if base else " --root FOLDER"
    command = f"Run «ftcseg datasets get {sheet.name}{where}», or by hand: " if sheet.download else "To get it: "
    raise UsageError(f"{missing} {command}{sheet.obtain}")


def recognise(images: Iterable[str], masks: Iterable[str] = ()) -> Sheet | None:
    """The set whose files are named like these, None for a folder of somebody's own."""
    images, masks = list(images), list(masks)
    return next((sheet for sheet in SETS.values() if sheet.looks_like(images, masks)), None)


def _is_set(folder: Path, sheet: Sheet) -> bool:
    return not sheet.marks or any((folder / mark).exists() for mark in sheet.marks)
