"""dataset.yaml: what a set is, in a file a person can read and correct.

    ftcseg: 1
    name: harbour
    root: .                          # relative to this file
    layout: images-masks
    classes:
      0: {name: background, background: true}
      1: {name: rope, values: [38, 75], group: tail}
    masks:
      encoding: ids                  # ids | colors | bits | drawn
      ignore: [255]
      fit: refuse                    # refuse | crop-top | crop-center | crop-bottom | resize
    parts: {val: val.txt}            # lists of images, one a line
    limits: {pixels: 89478485}

`load` refuses an unknown key and names the nearest known one; `save` writes what doctor found.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from ftcseg.data.encoding import parse_color
from ftcseg.data.files_found import MAX_CLASSES, is_background
from ftcseg.data.images import MAX_PIXELS
from ftcseg.errors import DataError, LayoutError
from ftcseg.files import inside, read_text, read_yaml, to_yaml, write_text
from ftcseg.types import ClassInfo, ClassTable, CodingKind, Color, Fit, Group, MaskCoding, Part

VERSION = 1
_TOP = ("ftcseg", "name", "root", "layout", "manifest", "set", "classes", "masks", "parts", "limits")
_CLASS = ("name", "values", "colors", "background", "group", "prompts")
_MASKS = ("encoding", "ignore", "ignore_colors", "tolerance", "fit")


@dataclass(frozen=True, slots=True)
class Description:
    """Everything needed to read a set: where it is, how it is laid out, what its masks mean."""

    name: str
    root: Path
    layout: str
    classes: ClassTable
    coding: MaskCoding
    set_name: str | None = None
    """The named set it belongs to, whose official parts apply."""
    manifest: str | None = None
    """The list of records, for layouts that have one; relative to the root."""
    parts: Mapping[Part, str] = field(default_factory=dict)
    """Lists of images that make up a part, relative to the root."""
    max_pixels: int = MAX_PIXELS


def load(path: Path) -> Description:
    """Read a dataset.yaml; LayoutError names the key, the value and what would be right."""
    data = _mapping(read_yaml(path), path.name)
    _only(data, _TOP, path.name)
    if data.get("ftcseg") != VERSION:
        raise LayoutError(
            f"{path} says «ftcseg: {_shown(data.get('ftcseg'))}»; this version reads «ftcseg: {VERSION}».",
            remedy="Write it anew with «ftcseg doctor FOLDER --write dataset.yaml».",
        )
    root = _root(path, _text(data, "root", ".", path.name))
    masks = _mapping(data.get("masks", {}), "masks")
    kind: CodingKind = _one_of(masks.get("encoding", "ids"), get_args(CodingKind), "masks.encoding")
    classes = _classes(_mapping(data.get("classes", {}), "classes"))
    limits = _mapping(data.get("limits", {}), "limits")
    _only(limits, ("pixels",), "limits")
    return Description(
        name=_text(data, "name", root.name, path.name),
        root=root,
        layout=_text(data, "layout", "images-masks", path.name),
        classes=classes,
        coding=_coding(kind, classes, masks),
        set_name=_text(data, "set", "", path.name) or None,
        manifest=_text(data, "manifest", "", path.name) or None,
        parts=_parts(_mapping(data.get("parts", {}), "parts")),
        max_pixels=_whole(limits.get("pixels", MAX_PIXELS), "limits.pixels", least=1),
    )


def _root(path: Path, name: str) -> Path:
    try:
        root = (path.parent / name).resolve()
        if root.is_dir():
            return root
    except (OSError, ValueError):  # too long, or with a NUL in it
        pass
    raise LayoutError(f"{path}: root {name[:200]!r} is not a folder.", remedy="Correct «root» (relative to this file).")


def save(description: Description, path: Path) -> None:
    """Write a dataset.yaml that `load` reads back the same."""
    write_text(path, as_text(description, path.parent))


def as_text(description: Description, folder: Path) -> str:
    """The dataset.yaml of a description, for that folder."""
    head = "# What ftcseg knows of this set. Correct names, groups and «unknown» values here; every command reads it.\n"
    return head + to_yaml(as_mapping(description, folder))


def as_mapping(description: Description, relative_to: Path) -> dict[str, object]:
    """The description as plain values, in the order a reader wants them."""
    root = description.root.resolve()
    base = relative_to.resolve()
    coding = description.coding
    data: dict[str, object] = {
        "ftcseg": VERSION,
        "name": description.name,
        "root": _relative_root(root, base),
        "layout": description.layout,
    }
    if description.manifest is not None:
        data["manifest"] = description.manifest
    if description.set_name is not None:
        data["set"] = description.set_name
    data["classes"] = {c.id: _class_mapping(c) for c in description.classes}
    masks: dict[str, object] = {"encoding": coding.kind}
    if coding.ignore:
        masks["ignore"] = sorted(coding.ignore)
    if coding.ignore_colors:
        masks["ignore_colors"] = [hex_color(c) for c in sorted(coding.ignore_colors)]
    if coding.tolerance:
        masks["tolerance"] = coding.tolerance
    data["masks"] = masks | {"fit": coding.fit}
    if description.parts:
        data["parts"] = dict(description.parts)
    data["limits"] = {"pixels": description.max_pixels}
    return data


def hex_color(color: Color) -> str:
    """`(255, 0, 255)` as "#ff00ff"."""
    return "#{:02x}{:02x}{:02x}".format(*color)


def _relative_root(root: Path, base: Path) -> str:
    if root.is_relative_to(base):
        return root.relative_to(base).as_posix()
    return root.as_posix()


def _class_mapping(info: ClassInfo) -> dict[str, object]:
    data: dict[str, object] = {"name": info.name}
    if info.values:
        data["values"] = list(info.values)
    if info.colors:
        data["colors"] = [hex_color(c) for c in info.colors]
    if info.background or is_background(info.name):
        data["background"] = info.background
    if info.group is not None:
        data["group"] = info.group
    if info.prompts:
        data["prompts"] = list(info.prompts)
    return data


def with_tables(classes: ClassTable, coding: MaskCoding) -> ClassTable:
    """The classes, each carrying the values and colours that `coding` gives it, so that one table says it all."""
    values: dict[int, list[int]] = {}
    colors: dict[int, list[Color]] = {}
    for value, class_id in coding.values.items():
        values.setdefault(class_id, []).append(value)
    for color, class_id in coding.colors.items():
        colors.setdefault(class_id, []).append(color)
    return ClassTable(
        tuple(
            ClassInfo(
                c.id,
                c.name,
                tuple(sorted(values.get(c.id, []))) if values.get(c.id) != [c.id] else (),
                tuple(sorted(colors.get(c.id, []))) if coding.colors else c.colors,
                c.background,
                c.group,
                c.prompts,
            )
            for c in classes
        )
    )


def _coding(kind: CodingKind, classes: ClassTable, masks: Mapping[str, Any]) -> MaskCoding:
    _only(masks, _MASKS, "masks")
    values: dict[int, int] = {}
    colors: dict[Color, int] = {}
    for info in classes:
        for value in info.values or (info.id,):
            if values.setdefault(value, info.id) != info.id:
                other = classes[values[value]].name
                raise LayoutError(f"Value {value} belongs to both {other!r} and {info.name!r}.", remedy="Keep one.")
        for color in info.colors:
            if colors.setdefault(color, info.id) != info.id:
                other = classes[colors[color]].name
                raise LayoutError(
                    f"Colour {hex_color(color)} belongs to {other!r} and {info.name!r}.", remedy="Keep one."
                )
    if kind in ("colors", "bits") and len(colors) == 0:
        raise LayoutError(f"masks.encoding is {kind}, but no class has colors.", remedy="Add «colors: ['#rrggbb']».")
    ignore = frozenset(_whole(v, "masks.ignore") for v in _list(masks.get("ignore", []), "masks.ignore"))
    clash = ignore & values.keys()
    if clash and any(v in info.values for info in classes for v in clash):
        raise LayoutError(f"Value {min(clash)} is both a class and ignored.", remedy="Keep one.")
    ignored = frozenset(_color(v) for v in _list(masks.get("ignore_colors", []), "masks.ignore_colors"))
    if twice := sorted(ignored & colors.keys()):
        raise LayoutError(f"Colour {hex_color(twice[0])} is both a class and ignored.", remedy="Keep one.")
    return MaskCoding(
        kind,
        values={v: c for v, c in values.items() if v not in ignore} if kind in ("ids", "drawn") else {},
        colors=colors if kind in ("colors", "bits") else {},
        tolerance=_whole(masks.get("tolerance", 0), "masks.tolerance", least=0),
        ignore=ignore,
        ignore_colors=ignored,
        fit=_one_of(masks.get("fit", "refuse"), get_args(Fit), "masks.fit"),
    )


def _classes(data: Mapping[Any, Any]) -> ClassTable:
    if len(data) > MAX_CLASSES:
        raise LayoutError(f"classes has {len(data):,} entries.", remedy=f"At most {MAX_CLASSES:,} are possible.")
    infos = []
    for key in sorted(data, key=str):
        class_id = _whole(key, f"classes.{key}")
        entry = data[key] if isinstance(data[key], Mapping) else {"name": data[key]}
        where = f"classes.{key}"
        _only(entry, _CLASS, where)
        group: Group | None = entry.get("group")
        infos.append(
            ClassInfo(
                class_id,
                _text(entry, "name", f"class-{class_id}", where),
                tuple(_whole(v, f"{where}.values") for v in _list(entry.get("values", []), f"{where}.values")),
                tuple(_color(v) for v in _list(entry.get("colors", []), f"{where}.colors")),
                _yes_or_no(entry.get("background", is_background(str(entry.get("name", "")))), f"{where}.background"),
                None if group is None else _one_of(group, get_args(Group), f"{where}.group"),
                tuple(str(p) for p in _list(entry.get("prompts", []), f"{where}.prompts")),
            )
        )
    return ClassTable(tuple(sorted(infos, key=lambda c: c.id)))


def _parts(data: Mapping[str, Any]) -> dict[Part, str]:
    return {_one_of(part, get_args(Part), "parts"): str(name) for part, name in data.items()}


def _color(value: object) -> Color:
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        return parse_color(value)
    if isinstance(value, list) and len(value) == 3 and all(isinstance(v, int) and 0 <= v <= 255 for v in value):
        return value[0], value[1], value[2]
    raise LayoutError(f"{_shown(value)} is no colour.", remedy="Write '#rrggbb' or [r, g, b] with 0-255.")


def _mapping(value: object, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise LayoutError(f"{where} must hold «key: value» lines, not {type(value).__name__}.", remedy="Mend it.")
    return value


def _list(value: object, where: str) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, int | str):
        return [value]
    raise LayoutError(f"{where} must be a list, not {type(value).__name__}.", remedy="Write it as [a, b].")


def _whole(value: object, where: str, least: int | None = None) -> int:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[+-]?[0-9]{1,12}", text):
        raise LayoutError(f"{where}: {_shown(value)} is no whole number.", remedy="Write digits only.")
    if least is not None and int(text) < least:
        raise LayoutError(f"{where} is {text}.", remedy=f"Write {least} or more.")
    return int(text)


def _yes_or_no(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise LayoutError(f"{where} is {_shown(value)}.", remedy="Write true or false.")
    return value


def _shown(value: object) -> str:
    return reprlib.repr(value)  # short, whatever a stranger wrote


def _text(data: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise LayoutError(f"{where}: «{key}» is {_shown(value)}, which is no text.", remedy="Put it in quotes.")
    return str(value)


def _one_of(value: object, known: Iterable[str], where: str) -> Any:
    names = list(known)
    if value in names:
        return value
    near = difflib.get_close_matches(value if isinstance(value, str) else "", names, n=1)
    remedy = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(names)}."
    raise LayoutError(f"{where} is {_shown(value)}.", remedy=remedy)


def _only(data: Mapping[Any, Any], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in data:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1)
            remedy = f"Did you mean «{near[0]}»?" if near else f"Known: {', '.join(names)}."
            raise LayoutError(f"{where} has an unknown key «{key}».", remedy=remedy)


def part_lists(description: Description) -> dict[Part, list[str]]:
    """The images named in the description's part lists, each checked to lie inside the root."""
    lists: dict[Part, list[str]] = {}
    for part, name in description.parts.items():
        text = read_text(inside(description.root, name))
        lists[part] = [line.strip() for line in text.split("\n") if line.strip()]
        for line in lists[part]:
            try:
                inside(description.root, line)
            except DataError as error:
                raise LayoutError(f"{name}: {error.what}", remedy=error.remedy, kind=error.kind) from error
    return lists
