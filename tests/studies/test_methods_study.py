"""Every method beside labels alone, read off runs made by hand."""

from __future__ import annotations

from made_results import cells_of, evidence_of

from ftcseg.studies import methods
from ftcseg.studies.plan import Ask

ASK = Ask(seeds=(0, 1), only=("supervised", "fixmatch", "cps", "ftc"))


def test_gains_are_over_the_seeds_both_have() -> None:
    scores = {"supervised": [0.2, 0.4], "fixmatch": [None, 0.38], "cps": [0.25, None], "ftc": [0.21, 0.43]}
    answer = methods.read(ASK, evidence_of(methods.plan(ASK), scores))
    table = answer.tables[0]
    # by their means: fixmatch has only the seed on which everybody is good
    assert [row[0] for row in table.rows] == ["fixmatch", "ftc", "supervised", "cps"]
    gains = [cells_of(table, row)["over labels alone"] for row in ("fixmatch", "cps", "ftc", "supervised")]
    assert gains == ["-2.0", "+5.0", "+2.0", "–"]
    assert answer.finding == (
        "With 10% of the labels, 2 of 3 methods end above labels alone (30.0 mIoU); the highest is cps, "
        "+5.0 over the seeds both have (one seed allows no test).",
    )
    assert answer.remarks == (
        "Below labels alone with 10% of the labels: fixmatch -2.0.",
        "Means are over the runs a row has, gaps over those both have. "
        "Rows that lack some: fixmatch 1 of 2, cps 1 of 2.",
    )


def test_a_seed_nobody_has_yet_makes_nothing_uneven() -> None:
    scores = {"supervised": [0.2, None], "fixmatch": [0.3, None], "cps": [0.3, None], "ftc": [0.3, None]}
    assert methods.read(ASK, evidence_of(methods.plan(ASK), scores)).remarks == ()


def test_many_settings_are_one_sentence_and_the_rest_remarks() -> None:
    ask = Ask(labels=("1%", "2%", "5%", "10%"), only=("supervised", "cps", "ftc"))
    scores = {"supervised": [0.2] * 4, "cps": [0.3, 0.3, 0.3, 0.1], "ftc": [0.25, 0.25, 0.35, 0.3]}
    answer = methods.read(ask, evidence_of(methods.plan(ask), scores))
    # ahead: cps 3 of 4, ftc 4 of 4; first: cps twice, ftc twice, and cps came first
    assert answer.finding == (
        "Over 4 settings, methods end above labels alone in 7 of 8 comparisons; cps gains most in 2 of the settings.",
    )
    assert answer.remarks[0].startswith("With 1% of the labels, 2 of 2 methods")
    assert answer.remarks[4:] == ("Below labels alone with 10% of the labels: cps -10.0.",)
    assert len(answer.tables) == 4


def test_without_labels_alone_there_is_nothing_to_compare() -> None:
    answer = methods.read(ASK, evidence_of(methods.plan(ASK), {"ftc": [0.2, 0.4]}))
    assert answer.finding == ("With 10% of the labels there is nothing to compare yet.",)
    assert cells_of(answer.tables[0], "ftc")["over labels alone"] == "n/a"
