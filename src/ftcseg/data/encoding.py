"""Work out how masks are written from what they hold, and say it aloud.

Only used where neither the layout, nor a named set, nor dataset.yaml already says it. Every conclusion comes back as a
finding, so that nothing about a user's masks is decided in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ftcseg.data.masks import as_shades, spans, unpack_color
from ftcseg.data.scan import MaskFacts
from ftcseg.types import ClassInfo, ClassTable, Color, Finding, MaskCoding

MAX_CLASSES = 256
"""More different stored values than this in a whole set is no class mask but a picture of shades."""
NEAR_CORNER = 64
"""Colours of an impure pure-colour mask lie within this of 0 or 255 in every channel."""
FULL_CONTRAST = 200
MANY_SHADES = 24
RARE_SHADE = 0.01
"""A grey mask that reaches FULL_CONTRAST and holds more than MANY_SHADES values of under RARE_SHADE of its pixels each
is a picture with soft edges. Class masks of even 150 classes rarely hold so many rare ones at once."""
_IGNORE_CUSTOMS = (255, 65535, -1)  # what annotation tools write for «unknown», when it stands beside real ids
_MODE_NAMES = {
    "1": "bit1",
    "L;2": "grey2",
    "L;4": "grey4",
    "L": "grey8",
    "LA": "grey8",
    "P": "palette",
    "I;16": "grey16",
    "I;16B": "grey16",
    "I": "grey16",
    "RGB": "rgb",
    "RGBA": "rgb",
    "LA;16": "grey16",
    "1xbool": "bit1",
    "1xuint8": "grey8",
    "1xuint16": "grey16",
    "3xuint8": "rgb",
    "4xuint8": "rgb",
}


@dataclass(frozen=True, slots=True)
class Guess:
    """A coding with its classes, as inferred, and what to tell the user about it."""

    coding: MaskCoding
    classes: ClassTable
    findings: tuple[Finding, ...]


def encoding_name(facts: Sequence[MaskFacts], coding: MaskCoding) -> str:
    """The short name of an encoding: grey8, palette, bit1, grey16, rgb, binary255, npy, drawn-coco ..."""
    names = sorted({_name_of(f) for f in facts if f.problem is None})
    if coding.kind == "bits":
        return "rgb-threshold"
    if coding.kind == "colors":
        return "rgb"
    if coding.kind == "ids" and dict(coding.values) == {0: 0, 255: 1}:
        return "binary255"
    if coding.kind == "ids" and "rgb" in names:
        names = [f"{n}-grey" if n == "rgb" else n for n in names]
    return "+".join(names) or "none"


def _name_of(facts: MaskFacts) -> str:
    if facts.mode == "drawn":
        return "class-files" if facts.format == "class-files" else f"drawn-{facts.format}"
    return "npy" if facts.format == "npy" else _MODE_NAMES.get(facts.mode, facts.mode)


def guess(files: Sequence[tuple[str, MaskFacts]]) -> Guess:
    """The coding that explains every mask; `files` are (name, facts) of the masks that could be read."""
    shades = [name for name, facts in files if facts.values is None]
    colored = [(name, facts) for name, facts in files if facts.corners is not None]
    if colored and not all(_is_grey(value) for _, facts in colored for value in facts.values or {"#000001": 0}):
        return _guess_colors(files, shades)
    return _guess_ids(files, shades)


def _is_grey(value: str) -> bool:
    return not value.startswith("#") or value[1:3] == value[3:5] == value[5:7]


def _as_int(value: str) -> int:
    return int(value[1:3], 16) if value.startswith("#") else int(value)


def _guess_ids(files: Sequence[tuple[str, MaskFacts]], shades: list[str]) -> Guess:
    pixels: Counter[int] = Counter()
    example: dict[int, str] = {}
    for name, facts in files:
        for text, count in (facts.values or {}).items():
            pixels[_as_int(text)] += count
            example.setdefault(_as_int(text), name)
    found = sorted(pixels)
    soft = [name for name, facts in files if _has_soft_edges(facts)]
    if 2 * len(soft) >= sum(len(facts.values or ()) > 1 for _, facts in files):
        shades = shades or soft
    if shades or len(found) > MAX_CLASSES:
        return _shades(files, shades, len(found))
    if found in ([0, 255], [255]):
        return _binary(example[255])
    findings = _few_bits(files)
    ignore = [v for v in _IGNORE_CUSTOMS if v in pixels and len(found) > 1]
    for value in ignore:
        findings.append(_ignored(value, pixels[value], example[value]))
    kept = [v for v in found if v not in ignore]
    if kept and (kept[0] < 0 or len(kept) < (kept[-1] + 1) / 2):
        findings.append(_gaps(kept, example))
        classes = [ClassInfo(i, _class_name(i, v), values=(v,)) for i, v in enumerate(kept)]
    else:
        classes = [ClassInfo(v, _class_name(v, v)) for v in range(kept[-1] + 1 if kept else 0)]
    table, background = _with_background(classes, {c.id: pixels[_value(c)] for c in classes})
    findings += background
    values = {_value(c): c.id for c in classes}
    return Guess(MaskCoding("ids", values=values, ignore=frozenset(ignore)), table, tuple(findings))


def _few_bits(files: Sequence[tuple[str, MaskFacts]]) -> list[Finding]:
    few = [name for name, facts in files if _name_of(facts) in ("grey2", "grey4")]
    finding = Finding(
        "few-bits",
        few[0] if few else "",
        "Grey masks of 2 or 4 bits a pixel: their numbers, 0-3 or 0-15, are taken as class ids.",
        "If they are shades (a 15 of 4 bits is white, as a 255 of 8), save all masks with 8 bits a pixel.",
        count=len(few),
        severity="note",
    )
    return [finding] if few else []


def _has_soft_edges(facts: MaskFacts) -> bool:
    """Whether a grey mask holds the many rare shades of an anti-aliased, resized or JPEG one."""
    values = {_as_int(text): count for text, count in (facts.values or {}).items()}
    rare = sum(count < RARE_SHADE * facts.height * facts.width for count in values.values())
    return rare > MANY_SHADES and max(values) >= FULL_CONTRAST


def _value(info: ClassInfo) -> int:
    return info.values[0] if info.values else info.id


def _class_name(class_id: int, value: int) -> str:
    return f"class-{class_id}" if class_id == value else f"value-{value}"


def _with_background(classes: list[ClassInfo], pixels: dict[int, int]) -> tuple[ClassTable, list[Finding]]:
    """Class 0 is taken as background where it holds the most pixels; said aloud, and overridable."""
    if not classes or pixels[0] < max(pixels.values()) or len(classes) < 2:
        return ClassTable(tuple(classes)), []
    first = classes[0]
    named = ClassInfo(0, "background", first.values, first.colors, background=True)
    share = 100 * pixels[0] / max(1, sum(pixels.values()))
    finding = Finding(
        "background-assumed",
        "",
        f"Class 0 holds {share:.1f} % of the labelled pixels and is taken as background.",
        "If it is a class like the others, remove «background: true» from it in dataset.yaml.",
        severity="note",
    )
    return ClassTable((named, *classes[1:])), [finding]


def _binary(example: str) -> Guess:
    classes = ClassTable(
        (ClassInfo(0, "background", values=(0,), background=True), ClassInfo(1, "foreground", values=(255,)))
    )
    finding = Finding(
        "binary-masks",
        example,
        "Masks hold only 0 and 255: read as two classes, 0 = background and 255 = foreground.",
        "If 255 means «unknown», write «ignore: [255]» under masks in dataset.yaml and drop it from the class.",
        severity="note",
    )
    return Guess(MaskCoding("ids", values={0: 0, 255: 1}), classes, (finding,))


def _ignored(value: int, pixels: int, example: str) -> Finding:
    return Finding(
        "ignore-value",
        example,
        f"Value {value} ({pixels:,} pixels) is taken as «unknown» and left out of training and scores.",
        f"If {value} is a class, move it from «ignore» to «values» of that class in dataset.yaml.",
        severity="note",
    )


def _gaps(values: list[int], example: dict[int, str]) -> Finding:
    return Finding(
        "value-gaps",
        example[values[-1]],
        f"Masks hold the values {spans(values)}: numbered 0-{len(values) - 1} in that order.",
        "Check the order and give the classes their names in dataset.yaml.",
        severity="note",
    )


def _shades(files: Sequence[tuple[str, MaskFacts]], shades: list[str], distinct: int) -> Guess:
    worst = shades[0] if shades else files[0][0]
    finding = Finding(
        "too-many-values",
        worst,
        f"{distinct or 'Too many'} different values: shades of an anti-aliased, resized or JPEG picture, no class ids.",
        "Export masks as PNG without anti-aliasing; or list the true values under classes and set «tolerance: N».",
        count=max(1, len(shades)),
        severity="error",
    )
    return Guess(MaskCoding("ids"), ClassTable(()), (finding,))


def _guess_colors(files: Sequence[tuple[str, MaskFacts]], shades: list[str]) -> Guess:
    pixels: Counter[str] = Counter()
    corners: Counter[str] = Counter()
    for _, facts in files:
        if facts.corners is None:  # a grey picture among coloured ones; what is no shade of grey is reported later
            held = np.array([int(v) for v in facts.values or ()], dtype=np.int64)
            seen = zip(as_shades(held, facts.mode).tolist(), (facts.values or {}).values(), strict=True)
            pixels.update({f"#{v:02x}{v:02x}{v:02x}": n for v, n in seen if 0 <= v <= 255})
        else:
            pixels.update(facts.values or {})
            corners.update(facts.corners)
    if not shades and len(pixels) <= MAX_CLASSES and not _impure(pixels):
        return _color_table(pixels, "colors", ())
    if _impure(pixels) and len(corners) > 1:
        finding = Finding(
            "impure-colours",
            (shades or [files[0][0]])[0],
            f"Colours lie near {len(corners)} pure ones: each channel is cut at 128 before it is looked up.",
            "If the shades mean something, list them under «colors» in dataset.yaml with «encoding: colors».",
            severity="note",
        )
        return _color_table(corners, "bits", (finding,))
    top = ", ".join(color for color, _ in pixels.most_common(8))
    finding = Finding(
        "too-many-colours",
        (shades or [files[0][0]])[0],
        f"More than {MAX_CLASSES} colours; the commonest are {top}.",
        "List the class colours under «colors» in dataset.yaml and set «tolerance: N» under masks.",
        severity="error",
    )
    return Guess(MaskCoding("colors"), ClassTable(()), (finding,))


def _impure(pixels: Counter[str]) -> bool:
    """Whether every colour is near a corner of the colour cube, but not all are exactly there."""
    colors = [parse_color(c) for c in pixels]
    near = all(min(v, 255 - v) <= NEAR_CORNER for color in colors for v in color)
    return near and any(v not in (0, 255) for color in colors for v in color)


def parse_color(text: str) -> Color:
    """The (r, g, b) of "#rrggbb"."""
    return unpack_color(int(text.removeprefix("#"), 16))


def _color_table(pixels: Counter[str], kind: str, findings: tuple[Finding, ...]) -> Guess:
    colors = sorted(pixels)
    classes = [ClassInfo(i, f"color-{c[1:]}", colors=(parse_color(c),)) for i, c in enumerate(colors)]
    table, background = _with_background(classes, {i: pixels[c] for i, c in enumerate(colors)})
    lookup = {parse_color(c): i for i, c in enumerate(colors)}
    coding = MaskCoding("bits", colors=lookup) if kind == "bits" else MaskCoding("colors", colors=lookup)
    unnamed = Finding(
        "colours-unnamed",
        "",
        f"{len(colors)} colours became classes named after themselves.",
        "Give them their names under classes in dataset.yaml, or add a class_dict.csv (name,r,g,b).",
        severity="note",
    )
    return Guess(coding, table, (*findings, unnamed, *background))
