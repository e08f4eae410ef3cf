"""What predictions cost, read off counts made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import cells_of, defaults_of

from ftcseg.errors import UsageError
from ftcseg.studies import cost
from ftcseg.studies.cost import AGAIN, ASKED, EMPTIED, NETWORKS, PLAIN, READINGS
from ftcseg.studies.plan import Bench
from ftcseg.studies.results import Evidence
from ftcseg.studies.rows import FTC, WITH_ATC

ASK = defaults_of("cost")
BASE = 24_794_987
OTHERS = 115_246_896
STAGE = 16_889_856  # 2·16·384·1369 and 16·384·11 for judging the prototypes


def _one(parameters: int, stages: int, seconds: list[float], macs: int = 56_828_926_464) -> dict[str, Any]:
    return {"parameters": parameters, "macs": macs + stages * STAGE, "others": OTHERS, "seconds": seconds}


def _evidence() -> Evidence:
    """The counts of methods.md 1.4, and three rounds in which the machine was busy in the second."""
    plain, opr = [0.5, 1.0, 0.5], [0.51, 1.04, 0.52]
    wide = 73_280_000_000
    found = {
        PLAIN: _one(BASE, 0, plain),
        ASKED: _one(BASE + 10_379, 1, opr),
        EMPTIED: _one(BASE, 0, plain),
        AGAIN: _one(BASE, 0, [0.505, 1.02, 0.5]),
        "probe, 1 stage": _one(BASE + 10_379, 1, opr),
        "probe, 2 stages (the paper's text)": _one(BASE + 2 * 10_379, 2, opr),
        "legacy, 1 stage": _one(BASE + 10_379, 1, opr),
        "prototypes alone, 1 stage": _one(BASE + 6_144, 1, opr),
        "prototypes pushed through the head, 1 stage": _one(BASE + 6_144, 1, opr),
        "wide head, 0 stages": _one(24_983_147, 0, opr, wide),
        "wide head, 1 stage (the released code)": _one(24_989_291, 1, opr, wide),
    }
    assert set(READINGS) < set(found)
    return Evidence([], {NETWORKS: {"shape": [1, 3, 518, 518], "machine": "a processor", "networks": found}})


def test_the_papers_row_is_one_stage_with_a_probe() -> None:
    answer = cost.read(ASK, _evidence())
    methods, readings = answer.tables
    # 56.8289 + 0.1152 = 56.944; a stage more is 56.961, two are 56.978
    assert cells_of(methods, FTC) == {
        "method": FTC,
        "parameters (M)": "24.81",
        "parameters (M) (paper)": "24.81",
        "products (G)": "56.85",
        "all (G)": "56.96",
        "FLOPs (G) (paper)": "56.96",
        "images/s, here": "1.92",
        "FPS, RTX 4090 (paper)": "120.93",
        "time / plain": "1.040 (1.030 to 1.040)",  # 1.02, 1.04, 1.04 of the same rounds
        "time / plain (paper)": "1.014",
    }
    assert cells_of(methods, WITH_ATC)["all (G)"] == "56.94"
    fits = [row[0] for row in readings.rows if row[-1] == "yes"]
    assert fits == ["probe, 1 stage", "legacy, 1 stage"]
    assert cells_of(readings, "probe, 2 stages (the paper's text)")["all (G)"] == "56.978"
    assert "24.79 M parameters and 56.83 G multiply-adds, 56.94 G with" in answer.finding[0]
    assert "(as the paper prints)" in answer.finding[0]
    assert "adds 0.010 M and 0.017 G" in answer.finding[0]
    assert answer.finding[1].endswith("is that of: probe, 1 stage, legacy, 1 stage.")
    # the plain network against itself: 1.01, 1.02, 1.00
    assert "takes 1.040 (1.030 to 1.040) times as long" in answer.finding[2]
    assert "against itself takes 1.010 (1.005 to 1.015); 1.014 in the paper." in answer.finding[2]
    told = " ".join(answer.remarks)
    assert "wide head makes 24.99 M and 73.41 G" in told
    assert "Two stages, as its text says, would be 24.82 M and 56.98 G" in told
    assert "56.88 G for M2 and 56.94 G for M4" in told


def test_another_network_explains_nothing_about_the_papers() -> None:
    evidence = _evidence()
    evidence.measured[NETWORKS]["networks"][PLAIN]["parameters"] = 1_000_000
    answer = cost.read(replace(ASK, options={**ASK.options, "encoder": "tiny"}), evidence)
    assert "not of tiny" in answer.remarks[-1]
    assert "the paper prints 24.79 M and 56.94 G" in answer.finding[0]


def test_nothing_measured_is_said() -> None:
    assert cost.read(ASK, Evidence([])).finding == ("Nothing has been measured yet.",)


def test_networks_are_built_counted_and_timed(tmp_path: Path) -> None:
    small = {**ASK.options, "encoder": "tiny", "size": "64", "classes": "3", "repeats": "2"}
    (measure,) = cost.measures(replace(ASK, options=small))
    found = measure.take(Bench((), "", None, tmp_path))["networks"]
    assert set(found) == {PLAIN, ASKED, AGAIN, EMPTIED, *READINGS}
    assert found[EMPTIED] == found[PLAIN]  # the same network is not timed as two
    assert all(len(one["seconds"]) == 2 for one in found.values())
    plain = found[PLAIN]
    # the deepest stage of the tiny encoder has 40 channels: 16 prototypes and a probe for 3 classes
    assert found["probe, 1 stage"]["parameters"] - plain["parameters"] == 16 * 40 + 3 * 40 + 3
    assert found["prototypes alone, 1 stage"]["parameters"] - plain["parameters"] == 16 * 40


def test_a_released_reading_keeps_its_wide_head_without_opr(tmp_path: Path) -> None:
    small = {**ASK.options, "encoder": "tiny", "size": "64", "classes": "3", "repeats": "1"}
    (measure,) = cost.measures(replace(ASK, ftc="ftc-released", options=small))
    found = measure.take(Bench((), "", None, tmp_path))["networks"]
    assert found[EMPTIED]["parameters"] == found["wide head, 0 stages"]["parameters"] != found[PLAIN]["parameters"]


def test_options_that_count_nothing_are_told() -> None:
    with pytest.raises(UsageError, match="repeats=0"):
        cost.measures(replace(ASK, options={**ASK.options, "repeats": "0"}))
