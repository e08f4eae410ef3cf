"""Whatever data are called, pages stay text: nothing runs, loads, links out or turns its writing around."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from defusedxml import ElementTree
from hostile_names import HALF, NAMES, SCRIPT, TEX, TURNED

from ftcseg.report.dataset_page import dataset_page
from ftcseg.report.run_page import write_run_page
from ftcseg.studies.drawing import draw
from ftcseg.studies.figures import Bars, Value
from ftcseg.studies.page import Story, study_page
from ftcseg.studies.tables import Answer, Table, latex, markdown
from ftcseg.types import ClassTable, Sample
from picture_sets import save

PLAIN_TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "p",
        "b",
        "i",
        "small",
        "code",
        "span",
        "div",
    ),
    *("ul", "li", "a", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "img", "details"),
    *("summary", "footer", "svg", "g", "path", "circle", "rect", "text", "defs", "pattern", "line"),
}
LINKS = {"src", "href", "srcset", "action", "data", "poster", "xlink:href", "background", "formaction"}
POWERFUL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Elements(HTMLParser):
    """Every element of a page, as a browser finds them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of which every word is an attack."""
    folder = tmp_path_factory.mktemp("hostile") / "run"
    classes = [{"id": i, "name": name, "iou": 0.5, "pixels": 9, "group": "head"} for i, name in enumerate(NAMES)]
    scores = {"miou": 0.5, "groups": {"head": 0.5, SCRIPT: 1.0}, "classes": classes, "pixel_accuracy": 0.5, "ece": 0.1}
    everywhere = dict.fromkeys(("title", "dataset", "method", "machine", "part", "status", "version", "torch"), SCRIPT)
    files: dict[str, Any] = {
        "run.json": {**everywhere, "command": list(NAMES), "seconds": 1.0},
        "split.json": {**everywhere, "hash": SCRIPT, "images": dict.fromkeys(("labeled", "unlabeled"), SCRIPT)},
        "scores.json": {
            **everywhere,
            "classes": list(NAMES),
            "groups": ["head"] * len(NAMES),
            "best_step": SCRIPT,
            "checkpoints": {"last": {name: scores for name in NAMES}, SCRIPT: {SCRIPT: scores}},
            "confusion": np.eye(len(NAMES), dtype=int).tolist(),
        },
        "pictures/index.json": [{"id": name, "input": "a.png", "truth": "../../a.png", "kept": name} for name in NAMES],
    }
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(value))
    save(folder / "pictures/a.png", np.zeros((4, 4)))
    (folder / "config.yaml").write_text(json.dumps({"config": {TEX: SCRIPT, "method": SCRIPT}, "why": {TEX: SCRIPT}}))
    lines = [{"step": 1, "losses": dict.fromkeys(NAMES, 1.0)}, {"step": 2, "scores": {SCRIPT: scores}}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def pages(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every kind of page, by kind."""
    place = tmp_path_factory.mktemp("pages")
    finding = {"severity": "error", "kind": SCRIPT, "file": TURNED, "detail": SCRIPT, "remedy": HALF, "count": 1}
    rows = [{"id": i, "name": n, "group": "head", "pixel_share": 0.1, "images": 1} for i, n in enumerate(NAMES)]
    facts = {"name": HALF, "images": 1, "labelled": 1, "encoding": SCRIPT, "layout": SCRIPT, "tail": list(NAMES)}
    sample = Sample(TURNED + SCRIPT, np.zeros((2, 2, 1), np.uint8), None)
    table = Table(SCRIPT, NAMES, (NAMES,))
    bars = Bars(name="bars", title=SCRIPT, label=TEX, groups=NAMES, series=((SCRIPT, (Value(1.0),) * len(NAMES)),))
    draw(bars, place)
    story = Story(
        question=SCRIPT, paper=HALF, command=SCRIPT, facts=[(name, name) for name in NAMES],
        runs=[(name, name) for name in NAMES], planned=2, missing=1, failures=NAMES,
    )  # fmt: skip
    written = write_run_page([run], place / "run.html")
    return {
        "run": written.read_text(encoding="utf-8"),
        "dataset": dataset_page(
            facts | {"findings": [finding], "classes": rows}, ClassTable.named(*map(str, range(len(NAMES)))), [sample]
        ),
        "study": study_page(HALF, Answer(NAMES, (table,), NAMES, (bars,)), story, place),
        "svg": (place / "bars.svg").read_text(encoding="utf-8"),
    }


KINDS = ("run", "dataset", "study")


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_holds_plain_elements_and_refers_to_nothing_outside(pages: dict[str, str], kind: str) -> None:
    seen = Elements(pages[kind])
    assert {tag for tag, _ in seen.found} <= PLAIN_TAGS
    assert SCRIPT in seen.text  # it is shown
    for tag, attributes in seen.found:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcdoc")], tag
        for name in LINKS & attributes.keys():
            address = attributes[name] or ""
            inside = address.startswith("data:image/") if tag == "img" else ":" not in address and address[:1] != "/"
            assert inside, (tag, address[:60])
    assert "@import" not in pages[kind]
    assert not re.search(r"url\((?!#)", pages[kind])  # hatches of the page itself


@pytest.mark.parametrize("kind", KINDS)
def test_its_policy_allows_its_own_style_and_pictures_alone(pages: dict[str, str], kind: str) -> None:
    (policy,) = [a["content"] for _, a in Elements(pages[kind]).found if "http-equiv" in a]
    sheet = pages[kind].partition("<style>")[2].partition("</style>")[0]
    digest = b64encode(sha256(sheet.encode()).digest()).decode()
    wanted = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policy == wanted
    assert pages[kind].index("Content-Security-Policy") < pages[kind].index("<style")


@pytest.mark.parametrize("kind", [*KINDS, "svg"])
def test_no_character_steers_what_is_around_it(pages: dict[str, str], kind: str) -> None:
    assert not POWERFUL.search(pages[kind])
    pages[kind].encode()  # no half characters
    if kind != "svg":
        assert r"tire\u202egnp.exe\u2066" in Elements(pages[kind]).text


def test_pictures_from_elsewhere_are_not_shown(pages: dict[str, str]) -> None:
    assert pages["run"].count("unreadable") == 16  # «truth» and «kept» of all eight
    assert pages["run"].count('alt="a.png"') == 8


def test_a_drawn_figure_is_plain_svg(pages: dict[str, str]) -> None:
    tree = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", pages["svg"]).encode())
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not tags & {"script", "foreignObject", "image", "a", "animate", "set", "iframe"}
    links = [v for e in tree.iter() for n, v in e.attrib.items() if n.rpartition("}")[2] == "href"]
    assert all(link.startswith("#") for link in links)
    assert not [name for e in tree.iter() for name in e.attrib if name.startswith("on")]


def test_tables_in_other_languages_stay_tables() -> None:
    table = Table(TEX, NAMES, (NAMES,))
    printed = latex(table)
    assert (
        r"50\%\_of \& \textbackslash{}input\{/etc/passwd\} \$x\textasciicircum{}2\$ \#1 \{\textasciitilde{}\}"
        in printed
    )
    assert not re.search(r"(?<!\\)\\input", printed.partition("\n")[2])
    assert printed.startswith("% 50%_of")  # a comment, of one line
    assert len(printed.split("\n")) == 8
    page = markdown(Answer((f"{SCRIPT} [x](javascript:alert(1))",), (table,)), SCRIPT)
    assert not re.search(r"(?<!\\)<(script|img)", page)
    assert not re.search(r"(?<!\\)\[", re.sub(r"^- .*", "", page, flags=re.M))
    assert not POWERFUL.search(printed + page)
