"""A study's answer as text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ftcseg.studies.figures import Bars
from ftcseg.studies.statistics import summary
from ftcseg.studies.tables import Answer, Column, Table, latex, markdown, numeric, spoken, table_of

TABLE = table_of(
    "10% of the labels",
    "method",
    ["supervised", "ftc|x", "cps"],
    [
        Column(
            heading="mIoU",
            values={"supervised": summary([0.416]), "ftc|x": summary([0.43, 0.44, 0.45]), "cps": summary([0.42])},
        )
    ],
)


def test_numbers_are_percentages_with_their_spread() -> None:
    assert spoken(summary([0.40, 0.42, 0.44])) == "42.0 ± 2.0"
    assert spoken(summary([0.4])) == "40.0"
    assert spoken(None) == "n/a"


def _table(values: list[float | None], **choices: object) -> Table:
    rows = [str(i) for i in range(len(values))]
    told = {row: None if v is None else summary([v]) for row, v in zip(rows, values, strict=True)}
    return table_of("t", "row", rows, [Column(heading="x", values=told, **choices)])  # type: ignore[arg-type]


def test_the_best_and_the_second_are_found_and_ties_share_a_place() -> None:
    found = _table([0.1, 0.3, 0.3, 0.2])
    assert (found.best, found.second) == ({(1, 1), (2, 1)}, {(3, 1)})
    found = _table([0.1, 0.3, None, 0.2], best="low")
    assert (found.best, found.second) == ({(0, 1)}, {(3, 1)})


def test_nothing_leads_alone_nor_in_the_papers_columns() -> None:
    for found in (
        _table([None, 0.5, None]),
        _table([0.0, 0.0]),
        _table([0.1, 0.2], paper=True),
        _table([0.1, 0.2], best=None),
    ):
        assert not found.best | found.second
    assert _table([0.1], paper=True).paper == {1}
    assert _table([None, 0.5]).rows == (("0", "n/a"), ("1", "50.0"))


def test_markdown_says_the_finding_first() -> None:
    page = markdown(Answer(("FTC is higher.",), (TABLE,), ("one seed",)), "Study: methods", ["made by hand"])
    assert page.splitlines()[:3] == ["# Study: methods", "", "FTC is higher."]
    assert "| ftc\\|x | **44.0 ± 1.0** |" in page
    assert "| cps | *42.0* |" in page
    assert page.endswith("- one seed\n- made by hand\n")


def test_latex_escapes_and_stresses() -> None:
    text = latex(TABLE)
    assert r"ftc\textbar{}x & \textbf{44.0 $\pm$ 1.0} \\" in text
    assert r"cps & \textit{42.0} \\" in text
    assert r"% 10% of the labels" in text
    assert latex(Table("t", ("a_b & c%",), (("{x}",),))).count(r"a\_b \& c\%") == 1


BESIDE = Table(
    "2%",
    ("row", "mIoU", "mIoU (paper)", "why"),
    (("a", "41.2 ± 0.7", "62.55", "no_such & thing"), ("b", "n/a", "–", "w" * 50)),
    paper=frozenset({2}),
)


def test_latex_sets_the_papers_columns_apart() -> None:
    lines = latex(BESIDE).splitlines()
    assert lines[1].startswith("% slanted heading")
    assert lines[2] == r"\begin{tabular}{lr|r|p{0.3\linewidth}}"  # words as long as a line get lines of their own
    assert r"row & mIoU & \emph{mIoU (paper)} & why \\ \hline" in lines
    assert not any("|" in line or "emph" in line for line in latex(TABLE).splitlines())


def test_markdown_says_whose_numbers_they_are_only_where_the_papers_stand() -> None:
    assert "not distributed" in markdown(Answer((), (BESIDE,)), "t")
    assert "not distributed" not in markdown(Answer((), (TABLE,)), "t")


def test_numbers_go_right_and_words_left() -> None:
    rows = (("1", "41.2 ± 0.7", "-3", "+1.5 %", "n/a", "3 of 4", "< 0.001", "1,200"), ("2", *["no test"] * 7))
    assert numeric(Table("t", tuple("abcdefgh"), rows)) == {1, 2, 3, 4, 6, 7}
    assert "| --- | ---: | ---: | --- |" in markdown(Answer((), (BESIDE,)), "t")


def test_figures_are_linked_where_they_are_drawn() -> None:
    figure = Bars(name="tail 2%", title="Tail [IoU]", label="", groups=(), series=())
    page = markdown(Answer((), figures=(figure,)), "t")
    assert "[![Tail \\[IoU\\]](figures/tail%202%25.png)](figures/tail%202%25.svg)" in page


_MARKS = re.compile(r"\\.", re.DOTALL)


@given(st.text(max_size=30))
def test_no_cell_can_leave_its_place_in_markdown(text: str) -> None:
    page = markdown(Answer((), (Table("t", ("h", text), (("r", text),)),)), "t")
    rows = [line for line in page.split("\n") if line.startswith("|")]
    assert [_MARKS.sub("", row).count("|") for row in rows] == [3, 3, 3]
    assert not set("`*<[]~") & set(_MARKS.sub("", rows[2]))


@given(st.text(max_size=30))
def test_no_cell_can_leave_its_place_in_latex(text: str) -> None:
    lines = latex(Table(text, ("h", text), (("r", text),))).split("\n")
    assert len(lines) == 8  # the last is empty
    assert lines[0].startswith("% ")
    inside = lines[4].removeprefix("r & ").removesuffix(r" \\")
    bare = re.sub(r"\\[a-z]+\{\}|\\[&%_#${}]|\$[^$]*\$|\{[\[*]\}", "", inside)
    assert not set("\\&%_#${}^~|<>") & set(bare)
