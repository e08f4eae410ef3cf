"""A study's answer as text."""

from __future__ import annotations

from ftcseg.studies.statistics import summary
from ftcseg.studies.tables import Answer, Table, latex, leaders, markdown, spoken

TABLE = Table(
    "10% of the labels",
    ("method", "mIoU"),
    (("supervised", "41.6"), ("ftc|x", "44.0 ± 1.0"), ("cps", "42.0")),
    *leaders([[0.416, 0.44, 0.42]]),
)


def test_numbers_are_percentages_with_their_spread() -> None:
    assert spoken(summary([0.40, 0.42, 0.44])) == "42.0 ± 2.0"
    assert spoken(summary([0.4])) == "40.0"
    assert spoken(None) == "n/a"


def test_the_best_and_the_second_are_found_and_ties_share_a_place() -> None:
    best, second = leaders([[0.1, 0.3, 0.3, 0.2], [None, 0.5, None, None], [None, None, None, None]])
    assert best == {(1, 1), (2, 1), (1, 2)}
    assert second == {(3, 1)}


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
