"""Look at a set once, whole: what it is, what its masks mean, what is wrong with it. Never edits user data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ftcseg.data.describe import Description, hex_color, with_tables
from ftcseg.data.encoding import encoding_name, guess, parse_color
from ftcseg.data.groups import class_groups
from ftcseg.data.images import MAX_PIXELS
from ftcseg.data.index import Source, open_source
from ftcseg.data.masks import decode, meant, read_stored, upright_shape
from ftcseg.data.scan import Facts, MaskFacts, Problem, scan
from ftcseg.data.sequences import Sequences, find_sequences, share_with_neighbour
from ftcseg.data.sets.sheet import Sheet
from ftcseg.errors import DataError, MaskError
from ftcseg.files import inside
from ftcseg.parallel import Progress, silent
from ftcseg.types import (
    IGNORE,
    PARTS,
    ClassFiles,
    ClassTable,
    Finding,
    Found,
    Group,
    MaskCoding,
    MaskFile,
    Record,
    Severity,
)

LEAK_SHARE = 0.1
"""Warn when more than this share of held-out frames has a neighbour in training."""
JPEGS = ("JPEG", "MPO")
"""Formats that change the values they store."""
_MOST_LISTED = 1000  # findings of one kind that are listed one by one


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """One row of the class table."""

    id: int
    name: str
    pixels: int
    pixel_share: float
    """In percent of all labelled pixels that are not «unknown»."""
    images: int
    group: Group


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything doctor found out."""

    description: Description
    records: list[Record]
    facts: list[Facts]
    pixels: list[dict[int, int] | None]
    """Per record: pixels of each class, None where there is no usable mask."""
    encoding: str
    classes: tuple[ClassSummary, ...]
    sequences: Sequences
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> list[Finding]:
        """Findings that keep the set from being used as it is."""
        return [f for f in self.findings if f.severity == "error"]


def examine_set(
    path: str | Path,
    *,
    root: Path | None = None,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> Examination:
    """Find the layout, decode every file once, work out the encoding, count classes, list what is wrong."""
    source = open_source(path, root)
    limit = max_pixels or (source.description.max_pixels if source.description else MAX_PIXELS)
    records = source.found.records
    numbered = source.reader_classes or source.found.classes
    facts = scan(
        source.root,
        records,
        numbering=numbered.names if numbered else (),
        max_pixels=limit,
        workers=workers,
        progress=progress,
    )
    coding, classes, findings = _coding_of(source.found, facts)
    if source.found.coding is not None:
        coding = replace(coding, fit=source.found.coding.fit)
    pixels, mask_findings = _class_pixels(source, facts, coding, limit)
    summary = _summary(classes, pixels)
    sequences = find_sequences([r.image for r in records], [f.image.thumb for f in facts])
    description = Description(
        name=source.name,
        root=source.root,
        layout=source.found.layout,
        classes=with_tables(classes, coding),
        coding=coding,
        set_name=source.sheet.name if source.sheet else None,
        manifest=source.description.manifest if source.description else None,
        parts=source.description.parts if source.description else {},
        max_pixels=limit,
    )
    everything = [
        *source.found.findings,
        *findings,
        *_capped([*_file_problems(records, facts), *mask_findings]),
        *_set_findings(records, facts, summary),
        *_known_defects(source),
        *_neighbour_findings(records, sequences),
    ]
    mask_facts = [f.mask for f in facts if f.mask is not None]
    order = {"error": 0, "warning": 1, "note": 2}
    return Examination(
        description,
        records,
        facts,
        pixels,
        encoding_name(mask_facts, coding),
        summary,
        sequences,
        tuple(sorted(everything, key=lambda f: order[f.severity])),
    )


def _coding_of(found: Found, facts: list[Facts]) -> tuple[MaskCoding, ClassTable, list[Finding]]:
    """What the layout, the named set or dataset.yaml says; else what the masks themselves suggest."""
    if found.coding is not None and found.classes is not None:
        return found.coding, found.classes, []
    readable = [
        (_mask_name(record), f.mask)
        for record, f in zip(found.records, facts, strict=True)
        if f.mask is not None and f.mask.problem is None
    ]
    if found.classes is not None and any(f.mode == "drawn" for _, f in readable):
        return MaskCoding("drawn", values={c.id: c.id for c in found.classes}), found.classes, []
    if not readable:
        return MaskCoding("ids"), found.classes or ClassTable(()), []
    # JPEG masks hold shades that no one meant; they are reported, and the others are believed.
    clean = [(name, mask) for name, mask in readable if mask.format not in JPEGS]
    guessed = guess(clean or readable)
    if found.classes is None:
        return guessed.coding, guessed.classes, list(guessed.findings)
    if guessed.coding.kind != "ids":
        return guessed.coding, guessed.classes, [*guessed.findings, _names_without_colors(found.classes)]
    return _with_names(found.classes, guessed.coding, list(guessed.findings))


def _with_names(
    names: ClassTable, coding: MaskCoding, findings: list[Finding]
) -> tuple[MaskCoding, ClassTable, list[Finding]]:
    """Names from the set's own list, for ids that fit it; values beyond the list are unknown and reported later."""
    kept = [f for f in findings if f.kind not in ("background-assumed", "value-gaps")]
    values = {value: c.id for c in names for value in c.values or (c.id,)}
    if dict(coding.values) == {0: 0, 255: 1}:
        if values == {0: 0, 1: 1}:  # two names without values of their own: for 0 and for 255
            return coding, names, kept
        kept = [f for f in kept if f.kind != "binary-masks"]
    return replace(coding, values=values, ignore=coding.ignore - values.keys()), names, kept


def _names_without_colors(names: ClassTable) -> Finding:
    return Finding(
        "class-names-ignored",
        "",
        f"The list of {len(names)} class names does not say which colour is whose; it is not used.",
        "Give each class its colour in a class_dict.csv (name,r,g,b), or name the colours in dataset.yaml.",
    )


def _mask_name(record: Record) -> str:
    if isinstance(record.mask, ClassFiles):
        return record.mask.paths[0][1]
    return record.mask.path if record.mask is not None else record.image


def _class_pixels(
    source: Source, facts: list[Facts], coding: MaskCoding, max_pixels: int
) -> tuple[list[dict[int, int] | None], list[Finding]]:
    pixels: list[dict[int, int] | None] = []
    findings: list[Finding] = []
    for record, seen in zip(source.found.records, facts, strict=True):
        counts = None
        if seen.mask is not None and seen.mask.problem is None:
            name = _mask_name(record)
            try:
                if seen.mask.values is None and coding.tolerance and isinstance(record.mask, MaskFile):
                    counts = _decoded_counts(inside(source.root, record.mask.path), coding, max_pixels)
                else:
                    counts = count_classes(seen.mask, coding, name.rsplit("/", 1)[-1])
            except DataError as error:
                findings.append(Finding(error.kind, name, error.what, error.remedy, severity="error"))
            findings += _placement(record, seen, coding, source.sheet)
        pixels.append(counts if seen.image.problem is None else None)  # a mask without its image teaches nothing
    return pixels, findings


def _decoded_counts(path: Path, coding: MaskCoding, max_pixels: int) -> dict[int, int]:
    """Pixels of each class in a mask of more shades than the scan remembers, all of them perhaps near a class."""
    ids, counts = np.unique(decode(read_stored(path, max_pixels), coding, path.name), return_counts=True)
    return {i: n for i, n in zip(ids.tolist(), counts.tolist(), strict=True) if i != IGNORE}


def count_classes(mask: MaskFacts, coding: MaskCoding, name: str) -> dict[int, int]:
    """Pixels of each class in a mask, from the histogram of its stored values."""
    stored = mask.corners if coding.kind == "bits" and mask.corners is not None else mask.values
    if stored is None:
        what = f"{name} holds too many different values to be a class mask."
        raise MaskError(what, remedy="Export it as PNG without anti-aliasing.", kind="too-many-values")
    if mask.corners is not None:
        values = np.array([[parse_color(v) for v in stored]], dtype=np.uint8)
    else:
        values = meant(np.array([[int(v) for v in stored]], dtype=np.int64), mask.mode, coding)
        if coding.kind in ("colors", "bits") and values.min() >= 0 and values.max() <= 255:
            values = values.astype(np.uint8)  # shades of grey, which are colours too
    weights = np.array([list(stored.values())], dtype=np.int64)
    counts: Counter[int] = Counter()
    for class_id, pixels in zip(decode(values, coding, name, weights)[0].tolist(), weights[0].tolist(), strict=True):
        if class_id != IGNORE:
            counts[class_id] += pixels
    return dict(counts)


def _placement(record: Record, seen: Facts, coding: MaskCoding, sheet: Sheet | None) -> Iterator[Finding]:
    """Masks that do not lie on their image, are JPEGs, or turn with it."""
    header, mask = seen.image.header, seen.mask
    if header is None or mask is None or not isinstance(record.mask, MaskFile):
        return
    name = record.mask.path
    upright = upright_shape(header)
    surplus = mask.height - upright[0]
    taller = surplus > 0 and mask.width == upright[1]
    known = taller and sheet is not None and PurePosixPath(record.image).stem in sheet.mask_rows
    fits = (mask.height, mask.width) in (upright, (header.height, header.width)) or known
    if not fits and coding.fit != "resize" and not (taller and coding.fit != "refuse"):
        yield Finding(
            "size-mismatch",
            name,
            f"The mask is {mask.width}x{mask.height}, its image {upright[1]}x{upright[0]}"
            + (f": {surplus} rows too many." if taller else "."),
            "«fit: crop-top» under masks in dataset.yaml crops from the top (keeps the first rows); crop-center and"
            " crop-bottom keep the others."
            if taller
            else "Export it at the image's size, or set «fit: resize» under masks in dataset.yaml.",
            severity="error",
        )
    if mask.format in JPEGS and not coding.tolerance and coding.kind != "bits":
        yield Finding(
            "jpeg-mask",
            name,
            "A JPEG mask: compression has changed its values near every edge.",
            "Export masks as PNG; or set «tolerance: N» under masks in dataset.yaml if there is no original.",
            severity="error",
        )
    if header.orientation != 1:
        yield Finding(
            "orientation",
            record.image,
            f"EXIF orientation {header.orientation} is applied to the image and to its mask alike.",
            "Look at it with --report; if the mask was drawn upright, save image and mask without EXIF.",
            severity="note",
        )


def _summary(classes: ClassTable, pixels: list[dict[int, int] | None]) -> tuple[ClassSummary, ...]:
    total: Counter[int] = Counter()
    images: Counter[int] = Counter()
    for counts in pixels:
        for class_id, count in (counts or {}).items():
            total[class_id] += count
            images[class_id] += count > 0
    everything = max(1, sum(total.values()))
    groups = class_groups(classes, total)
    return tuple(
        ClassSummary(c.id, c.name, total[c.id], 100 * total[c.id] / everything, images[c.id], groups[c.id])
        for c in classes
    )


def _file_problems(records: list[Record], facts: list[Facts]) -> list[Finding]:
    findings: list[Finding] = []
    for record, seen in zip(records, facts, strict=True):
        # A broken labelled file stops training; a broken unlabelled one is left out.
        severity: Severity = "error" if record.mask is not None else "warning"
        problems: list[tuple[str, Problem | None]] = [(record.image, seen.image.problem)]
        if seen.mask is not None:
            problems.append((_mask_name(record), seen.mask.problem))
        for name, problem in problems:
            if problem is not None and problem.kind != "image-needed":
                findings.append(Finding(problem.kind, name, problem.detail, problem.remedy, severity=severity))
    return findings


def _capped(findings: list[Finding]) -> list[Finding]:
    """At most _MOST_LISTED of a kind one by one; the rest as a count on the last of them."""
    seen: Counter[str] = Counter()
    kept: list[Finding] = []
    for finding in findings:
        seen[finding.kind] += 1
        if seen[finding.kind] <= _MOST_LISTED:
            kept.append(finding)
    last = {f.kind: i for i, f in enumerate(kept)}
    for kind, i in last.items():
        if seen[kind] > _MOST_LISTED:
            kept[i] = replace(kept[i], count=seen[kind] - _MOST_LISTED + 1)
    return kept


def _set_findings(records: list[Record], facts: list[Facts], classes: tuple[ClassSummary, ...]) -> Iterator[Finding]:
    labelled = sum(r.mask is not None for r in records)
    if labelled == 0:
        remedy = "Put masks in a masks/ folder beside images/, same file names; a few dozen are enough to start."
        yield Finding("no-masks", "", f"None of the {len(records)} images has a mask.", remedy, severity="error")
    elif len(classes) == 1:
        yield Finding(
            "one-class", "", "The masks hold a single class.", "There is nothing to tell apart.", severity="error"
        )
    for row in classes:
        if labelled and row.pixels == 0:
            remedy = "Label some, or drop it from dataset.yaml: a class without pixels cannot be learnt."
            yield Finding("class-absent", "", f"No mask holds class {row.id} ({row.name}).", remedy)
    depths = Counter((f.image.channels, f.image.dtype) for f in facts if f.image.problem is None)
    if len(depths) > 1:
        rare = min(depths, key=lambda d: depths[d])
        example = next(
            r.image for r, f in zip(records, facts, strict=True) if (f.image.channels, f.image.dtype) == rare
        )
        text = ", ".join(f"{n} of {c} x {d}" for (c, d), n in depths.most_common())
        yield Finding(
            "mixed-depth", example, f"Images differ in channels or depth: {text}.", "Make them alike if you can."
        )
    yield from _duplicates(records, facts)


def _duplicates(records: list[Record], facts: list[Facts]) -> Iterator[Finding]:
    groups: dict[str, list[Record]] = {}
    for record, seen in zip(records, facts, strict=True):
        if seen.image.problem is None and seen.image.digest:
            groups.setdefault(seen.image.digest, []).append(record)
    twins = [group for group in groups.values() if len(group) > 1]
    if twins:
        first = twins[0]
        across = sum(len({r.part for r in group}) > 1 for group in twins)
        detail = f"{sum(map(len, twins))} images are byte-identical to another, such as {first[1].image}"
        detail += f"; {across} times in different parts." if across else "."
        yield Finding("duplicate-images", first[0].image, detail, "Keep one of each.", count=len(twins))


def _known_defects(source: Source) -> Iterator[Finding]:
    for defect in source.sheet.defects if source.sheet else ():
        yield Finding(
            "known-defect", "", defect, "Nothing to do: it is taken care of or has to be lived with.", severity="note"
        )


def _neighbour_findings(records: list[Record], sequences: Sequences) -> Iterator[Finding]:
    if sequences.count == 0 or sequences.neighbours < LEAK_SHARE * len(records):
        return
    share = 100 * sequences.neighbours / len(records)
    example = next(name for name, size in Counter(sequences.of).most_common(1) if size > 1)
    yield Finding(
        "near-duplicates",
        example,
        f"{share:.0f} % of the frames have a near-duplicate; they form {sequences.count} sequences. A random split puts"
        " neighbours on both sides and flatters every score.",
        "Use «ftcseg split --by-sequence» to keep sequences whole, and compare both scores.",
    )
    held = [r.part != "train" for r in records]
    leak = share_with_neighbour(sequences, held)
    if any(held) and leak > LEAK_SHARE:
        yield Finding(
            "leaking-parts",
            next(r.image for r, h in zip(records, held, strict=True) if h),
            f"{100 * leak:.0f} % of the validation and test frames share a sequence with the training part.",
            "Scores on this official split partly measure memory; report a by-sequence split beside it.",
        )


def as_json(found: Examination) -> dict[str, Any]:
    """The examination as one plain object; what `ftcseg doctor --json` prints."""
    records, facts = found.records, found.facts
    labelled = sum(r.mask is not None for r in records)
    readable = [f.image for f in facts if f.image.problem is None and f.image.header is not None]
    sizes = Counter(upright_shape(image.header) for image in readable if image.header is not None)
    depth = Counter(f"{image.channels} x {image.dtype}" for image in readable)
    parts = Counter(r.part for r in records)
    coding = found.description.coding
    ignore: list[int | str] = [*sorted(coding.ignore), *(hex_color(c) for c in sorted(coding.ignore_colors))]
    return {
        "name": found.description.name,
        "set": found.description.set_name,
        "root": str(found.description.root),
        "images": len(records),
        "labelled": labelled,
        "unlabelled": len(records) - labelled,
        "parts": {part: parts[part] for part in PARTS if parts[part]},
        "layout": found.description.layout,
        "encoding": found.encoding,
        "ignore": ignore[0] if len(ignore) == 1 else (ignore or None),
        "sizes": [{"width": w, "height": h, "images": n} for (h, w), n in sizes.most_common()],
        "depth": [name for name, _ in depth.most_common()],
        "classes": [
            {
                "id": c.id,
                "name": c.name,
                "pixel_share": round(c.pixel_share, 4),
                "images": c.images,
                "group": c.group,
            }
            for c in found.classes
        ],
        "tail": [c.name for c in found.classes if c.group == "tail"],
        "sequences": {"count": found.sequences.count, "frames_with_neighbour": found.sequences.neighbours},
        "findings": [asdict(f) for f in found.findings],
    }
