"""The page doctor draws: frames with their masks first, then classes, then findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ftcseg.report.page import bar, escape, gallery, lead, page, section, swatch, table
from ftcseg.report.pictures import class_colors, data_url, overlay, visible
from ftcseg.types import ClassTable, Sample

SIDE = 360
"""Longest side of a picture on the page, in pixels."""


def dataset_page(facts: dict[str, Any], classes: ClassTable, samples: Sequence[Sample]) -> str:
    """HTML for `facts` (what doctor --json prints) and some samples of the set."""
    colors = class_colors([c.background for c in classes])
    hide = {c.id for c in classes if c.background}
    figures = []
    for sample in samples:
        picture = visible(sample.image)
        shown = [data_url(picture, SIDE)]
        if sample.labels is not None:
            shown.append(data_url(overlay(picture, sample.labels, colors, hide), SIDE))
        figures.append((shown, sample.id))
    errors = sum(f["severity"] == "error" for f in facts["findings"])
    verdict = f"{errors} findings keep it from being used as it is." if errors else "It can be used as it is."
    tail = ", ".join(facts["tail"]) or "none"
    text = (
        f"{facts['images']} images, {facts['labelled']} with masks ({facts['encoding']}, layout {facts['layout']}), "
        f"{len(facts['classes'])} classes; tail: {tail}. {verdict}"
    )
    body = [
        lead(text),
        section("Frames and their masks", gallery(figures)),
        section("Classes", _classes(facts, colors)),
        section("Findings", _findings(facts)),
    ]
    return page(f"Dataset: {facts['name']}", body, "Made by ftcseg doctor. Nothing in the set was changed.")


def _classes(facts: dict[str, Any], colors: list[tuple[int, int, int]]) -> str:
    most = max((c["pixel_share"] for c in facts["classes"] if c["group"] != "background"), default=0) or 1
    rows = [
        (
            str(c["id"]),
            swatch(colors[c["id"]]) + escape(c["name"]),
            c["group"],
            f"{c['pixel_share']:.3f}",
            "" if c["group"] == "background" else bar(c["pixel_share"] / most),
            str(c["images"]),
        )
        for c in facts["classes"]
    ]
    return table(("id", "class", "group", "pixels %", "", "images"), rows, numbers=(0, 3, 5))


def _findings(facts: dict[str, Any]) -> str:
    if not facts["findings"]:
        return "<p>Nothing to report.</p>"
    counts: Counter[str] = Counter()
    first: dict[str, dict[str, Any]] = {}
    for finding in facts["findings"]:
        counts[finding["kind"]] += finding["count"]
        first.setdefault(finding["kind"], finding)
    rows = [
        (
            f'<span class="{f["severity"]}">{escape(kind)}</span>',
            str(counts[kind]),
            escape(f["file"]),
            escape(f["detail"]),
            escape(f["remedy"]),
        )
        for kind, f in first.items()
    ]
    return table(("finding", "count", "such as", "what", "what to do"), rows, numbers=(1,))
