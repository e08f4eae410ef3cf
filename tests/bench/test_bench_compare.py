"""Records are compared by numbers worked out by hand; and what is counted, drawn and spread, too."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from typer.testing import CliRunner

from ftcseg.bench.bar import Segment, line, widths
from ftcseg.bench.compare import bench_compare, compared
from ftcseg.bench.flops import FlopCounter
from ftcseg.bench.spread import Spread, ratios
from ftcseg.cli import app
from ftcseg.errors import LayoutError, UsageError


def row(name: str, unit: str, better: str, median: float, **more: float) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "better": better,
        "median": median,
        "low": None,
        "high": None,
        "share": None,
    } | more


def record(*rows: dict[str, Any], rate: float = 100e9, **more: Any) -> dict[str, Any]:
    return {
        "ftcseg bench": 1,
        "kind": "step",
        "asked": {"method": "ftc", "seed": 0},
        "versions": {"torch": "2.10"},
        "machine": {"cpu": "a processor", "threads": 2},
        "matmul": {"flops_per_second": rate, "each_time": [rate], "side": 1024, "dtype": "float32"},
        "rows": list(rows),
        "interrupted": False,
        **more,
    }


TIME, RATE = row("step", "s", "lower", 1.0), row("images", "images/s", "higher", 8.0)


def test_a_loss_is_more_than_a_tenth_in_the_worse_direction() -> None:
    old = record(row("a", "s", "lower", 1.0), row("b", "s", "lower", 1.0), row("c", "images/s", "higher", 11.1))
    new = record(row("a", "s", "lower", 1.09), row("b", "s", "lower", 1.11), row("c", "images/s", "higher", 10.0))
    found = {change.name: (change.verdict, round(change.loss, 4)) for change in compared(old, new).changes}
    assert found == {"a": ("same", 0.09), "b": ("loss", 0.11), "c": ("loss", 0.11)}


def test_gains_are_told_as_well() -> None:
    new = record(row("step", "s", "lower", 0.8), row("images", "images/s", "higher", 10.0))
    found = compared(record(TIME, RATE), new)
    assert [(change.verdict, round(change.loss, 4)) for change in found.changes] == [("gain", -0.2), ("gain", -0.2)]
    assert found.losses == []


def test_times_are_brought_to_the_old_machines_speed() -> None:
    # A machine of twice the rate ought to take 0.5 s: 0.6 s are a fifth too much. Memory does not depend on it.
    old = record(TIME, RATE, row("memory", "bytes", "lower", 1000.0))
    new = record(
        row("step", "s", "lower", 0.6),
        row("images", "images/s", "higher", 13.0),
        row("memory", "bytes", "lower", 900.0),
        rate=200e9,
    )
    found = compared(old, new)
    fair = {change.name: (change.fair, change.verdict) for change in found.changes}
    assert fair == {"step": (1.2, "loss"), "images": (6.5, "loss"), "memory": (900.0, "gain")}
    assert found.rate == 2
    assert "100.0 and 200.0 GFLOP/s, a factor of 2.00" in found.notes[0]


def test_rates_that_differ_by_chance_change_nothing() -> None:
    found = compared(record(TIME), record(TIME, rate=102e9))
    assert (found.rate, found.changes[0].fair) == (1, 1.0)
    assert found.notes[0].endswith("Times stand as measured.")


def test_tiny_parts_are_told_and_never_flagged() -> None:
    old = record(row("guard", "s", "lower", 0.001, share=0.005), row("ema", "s", "lower", 0.001, share=0.005))
    new = record(row("guard", "s", "lower", 0.002, share=0.009), row("ema", "s", "lower", 0.020, share=0.02))
    assert [change.verdict for change in compared(old, new).changes] == ["not judged", "loss"]


def test_middle_halves_that_overlap_are_told() -> None:
    old = record(row("step", "s", "lower", 1.0, low=0.9, high=1.2))
    for low, expected in ((1.1, True), (1.3, False)):
        new = record(row("step", "s", "lower", 1.4, low=low, high=1.5))
        assert compared(old, new).changes[0].overlap is expected


def test_a_time_of_nothing_loses_nothing_and_becomes_endlessly_worse() -> None:
    none, some = record(row("load", "s", "lower", 0.0)), record(row("load", "s", "lower", 0.1))
    assert compared(none, none).changes[0].loss == 0
    assert compared(none, some).changes[0].loss == float("inf")


def test_what_differs_besides_is_said() -> None:
    new = record(TIME, row("memory", "bytes", "lower", 5.0), versions={"torch": "2.13"}, interrupted=True)
    notes = compared(record(TIME, RATE), new).notes
    assert notes[1:] == (
        "torch: 2.10 before, 2.13 now.",
        "A record was interrupted: it rests on fewer rounds than were asked for.",
        "Only in the old record: images.",
        "Only in the new record: memory.",
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"kind": "infer"}, "bench infer"),
        ({"asked": {"method": "cps", "seed": 0}}, "method: ftc and cps"),
        ({"rows": [row("another", "s", "lower", 1.0)]}, "no row in common"),
        ({"matmul": {"flops_per_second": 0.0}}, "Measure again"),
    ],
)
def test_unlike_records_are_not_compared(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        compared(record(TIME), record(TIME) | change)


@pytest.mark.parametrize("text", ["[]", "{}", '{"ftcseg bench": 2}', '{"ftcseg bench": 1}', "no"])
def test_a_file_that_is_no_record_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(LayoutError, match=r"odd\.json"):
        bench_compare(path, path)


def test_the_command_ends_with_1_after_a_loss(tmp_path: Path) -> None:
    worse = copy.deepcopy(record(TIME))
    worse["rows"][0]["median"] = 1.25
    for name, values in (("old", record(TIME)), ("new", worse)):
        (tmp_path / f"{name}.json").write_text(json.dumps(values))
    old, new = str(tmp_path / "old.json"), str(tmp_path / "new.json")
    for command in (["bench", "compare", old, new], ["bench", "--compare", old, new]):
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 1, said.output
        assert "+25.0%" in said.output
        assert "1 rows are worse by more than 10%." in said.output
    assert CliRunner().invoke(app, ["bench", "compare", new, old]).exit_code == 0
    assert CliRunner().invoke(app, ["bench", "compare", old, new, "--limit", "0.3"]).exit_code == 0
    told = json.loads(CliRunner().invoke(app, ["bench", "compare", old, new, "--json"]).output)
    assert (told["losses"], told["changes"][0]["loss"]) == (1, 0.25)


# ---------------------------------------------------------------- spreads, bars, operations


def test_a_spread_is_the_median_and_the_middle_half() -> None:
    spread = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.median, spread.low, spread.high, spread.count) == (3, 2, 4, 5)
    assert spread.under(12) == Spread(4, 3, 6, 5)
    assert Spread.of([7.0]) == Spread(7, 7, 7, 1)
    assert ratios([2.0, 9.0], [1.0, 3.0]).median == 2.5
    with pytest.raises(UsageError):
        Spread.of([])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.integers(1, 200))
def test_a_bar_is_as_long_as_its_line(shares: list[float], width: int) -> None:
    taken = widths(shares, width)
    assert len(taken) == len(shares)
    assert min(taken) >= 0
    assert sum(taken) == (width if sum(shares) else 0)


def test_names_stand_in_the_bar_as_far_as_they_go() -> None:
    segments = [Segment("load", 0.02, 0), Segment("student", 0.5, 1), Segment("ema", 0.48, 2)]
    assert "".join(text for _, text in line(segments, 20)) == "│student──│ema──────"
    assert "".join(text for _, text in line(segments[1:], 6)) == "│st│em"


def test_operations_of_grouped_convolutions_are_counted_once() -> None:
    conv = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
    with FlopCounter() as counted:
        out = conv(torch.zeros(2, 8, 5, 5, requires_grad=True))
        forward = counted.total
        out.sum().backward()
    assert forward == 2 * 2 * 25 * 8 * 9  # two for each of 9 weights, at 25 places, in 8 channels of 2 images
    assert counted.total == 3 * forward  # as much again for the gradient of the input, and of the weight


def test_operations_of_linear_layers_and_attention() -> None:
    linear = nn.Linear(6, 5)
    with FlopCounter() as counted:
        linear(torch.zeros(4, 6)).sum().backward()
    assert counted.total == 2 * 4 * 6 * 5 * 2  # forward and the gradient of the weight; the input wants none
    query = torch.zeros(1, 2, 7, 4)
    with FlopCounter() as counted, torch.no_grad():
        nn.functional.scaled_dot_product_attention(query, query, query)
    assert counted.total == 2 * (2 * 2 * 7 * 7 * 4)  # two products of 2 heads, 7 times 7 tokens, 4 wide
