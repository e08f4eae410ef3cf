"""A study's answer as text."""

from __future__ import annotations

from ftcseg.studies.statistics import summary
from ftcseg.studies.tables import Answer, Column, Table, latex, markdown, spoken, table_of

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
    for found in (_table([None, 0.5, None]), _table([0.1, 0.2], paper=True), _table([0.1, 0.2], best=None)):
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
    assert r"ftc|x & \textbf{44.0 $\pm$ 1.0} \\" in text
    assert r"cps & \textit{42.0} \\" in text
    assert r"% 10% of the labels" in text
    assert latex(Table("t", ("a_b & c%",), (("{x}",),))).count(r"a\_b \& c\%") == 1
