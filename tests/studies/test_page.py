"""The page of a study's answer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ftcseg.studies import page as module
from ftcseg.studies.drawing import draw
from ftcseg.studies.figures import Bars, Pictures, Value
from ftcseg.studies.page import Story, study_page
from ftcseg.studies.tables import Answer, Table

STORY = Story(
    question="what helps",
    paper="ablation",
    command="ftcseg study ablation --only 'M1 <labels>'",
    facts=[("seeds", "0, 1"), ("splits", "abc, def")],
    runs=[("M1, seed 0", "../runs/a b/report.html"), ("M1, seed 1", None)],
    planned=4,
    missing=2,
    failures=("M2, seed 1: it <cannot>",),
)
TABLE = Table(
    "2% of the labels",
    ("row", "mIoU", "mIoU (paper)"),
    (("M1 <b>", "41.0", "35.61"), ("M2", "45.0", "58.75")),
    best=frozenset({(1, 1)}),
    second=frozenset({(0, 1)}),
    paper=frozenset({2}),
)
BARS = Bars(name="bars", title='"Bars" & <lines>', label="y", groups=("a",), series=(("s", (Value(1),)),))


def _page(answer: Answer, story: Story = STORY, figures: Path = Path("figures")) -> str:
    return study_page("ablation", answer, story, figures)


def test_the_finding_comes_first_in_large_letters_and_is_three_lines() -> None:
    text = _page(Answer(("One.", "Two, with `code`.", "Three.", "Four."), (TABLE,)))
    large = re.findall(r'<p class="finding">(.*?)</p>', text)
    assert large == ["One.", "Two, with <code>code</code>.", "Three."]
    assert text.index("Three.") < text.index("<p>Four.</p>") < text.index("<table")
    assert text.index("</h1>") < text.index("One.")


def test_tables_stress_the_best_and_tint_the_papers_columns() -> None:
    text = _page(Answer(("x",), (TABLE,)))
    assert '<td class="n"><b>45.0</b></td><td class="n paper">58.75</td>' in text
    assert '<td>M1 &lt;b&gt;</td><td class="n"><i>41.0</i></td>' in text
    assert '<th scope="col" class="n paper">mIoU (paper)</th>' in text
    assert text.count('class="n paper"') == 3


def test_whose_numbers_they_are_is_said_once_and_only_where_it_matters() -> None:
    assert _page(Answer(("x",), (TABLE, TABLE))).count("not distributed") == 1
    assert "not distributed" not in _page(Answer(("x",), (replace(TABLE, paper=frozenset()),)))


def test_the_page_tells_how_it_was_made() -> None:
    text = _page(Answer(("x",)))
    assert "<span>ftcseg study ablation</span> <span>--only &#x27;M1 &lt;labels&gt;&#x27;</span></code>" in text
    assert "2 of 4 finished, 1 failed" in text
    assert "M2, seed 1: it &lt;cannot&gt;" in text
    assert "abc, def" in text
    assert '<a href="../runs/a%20b/report.html">M1, seed 0</a>' in text
    assert "<li>M1, seed 1</li>" in text
    assert text.index("2 of 4 runs are missing") < text.index("How this was made")
    assert "are missing" not in _page(Answer(("x",)), replace(STORY, missing=0))


def test_figures_are_inside_the_page(tmp_path: Path) -> None:
    draw(BARS, tmp_path / "figures")
    text = _page(Answer(("x",), figures=(BARS,)), figures=tmp_path / "figures")
    assert 'src="data:image/svg+xml;base64,' in text
    assert 'alt="&quot;Bars&quot; &amp; &lt;lines&gt;"' in text
    assert '<a href="figures/bars.svg">SVG</a>, <a href="figures/bars.png">PNG</a>' in text


def test_a_grid_of_pictures_is_made_smaller_where_it_would_burst_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Pictures(name="grid", title="g", heads=("a",), rows=(("r", (tmp_path / "none.png",)),))
    draw(grid, tmp_path / "figures")
    answer = Answer(("x",), figures=(grid,))
    whole = _page(answer, figures=tmp_path / "figures")
    assert "data:image/png;base64," in whole
    monkeypatch.setattr(module, "GRID_LIMIT", 1500)
    small = _page(answer, figures=tmp_path / "figures")
    address = re.search(r'src="(data:image/[^"]+)"', small)
    assert address is not None
    assert len(address[1]) <= 1500
    assert len(small) < len(whole)


def test_nothing_on_the_page_runs_or_leaves_it() -> None:
    evil = "<script>alert(1)</script>"
    table = Table(evil, (evil, evil), ((evil, evil),))
    story = replace(STORY, question=evil, paper=evil, command=evil, facts=[(evil, evil)], failures=(evil,))
    story = replace(story, runs=[(evil, '"><script>')])
    text = study_page(evil, Answer((evil,), (table,), (evil,)), story, Path("figures"))
    assert "<script" not in text
    assert "default-src 'none'; img-src data:;" in text
    assert not re.search(r'(src|href)="(https?:|//|javascript:)', text)
