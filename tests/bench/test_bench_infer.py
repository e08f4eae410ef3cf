"""Every way of asking a network gives its answers; what is told of them is worked out by hand.

How long anything takes decides no test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from ftcseg.bench import infer, machine
from ftcseg.bench.infer import _alternate, _latency, _Taken, bench_infer
from ftcseg.cli import app
from ftcseg.errors import UsageError


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(folder))
        patch.setattr(machine, "SIDES", (16,))
        patch.setattr(machine, "SECONDS", 0.0)
        patch.setattr(infer, "available_cores", lambda: 1)
        patch.setattr(infer, "CALIBRATED_ON", 2)
        yield folder
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def record(cache: Path) -> dict[str, Any]:
    ways = ["onnx", "onnx-int8", "onnx-without-opr"]
    return bench_infer(encoder="tiny", size=(48, 64), images=2, rounds=2, ways=ways, memory=False)


def test_every_way_is_told_beside_eager(record: dict[str, Any]) -> None:
    ways = {way["name"]: way for way in record["ways"]}
    assert list(ways) == ["eager", "onnx", "onnx-int8", "onnx-without-opr"]
    assert all(way["works"] for way in ways.values())
    assert ways["onnx"]["agreement"] == 1.0
    assert ways["onnx"]["difference"] < 1e-3
    assert ways["eager"]["faster"]["median"] == 1.0
    assert ways["onnx-without-opr"]["than"] == "onnx"
    assert all(way["images_per_second"]["count"] == 2 for way in ways.values())
    assert all(way["latency"]["p99"] is None for way in ways.values()), "four calls have no tail"


def test_rows_of_two_records_can_be_compared(record: dict[str, Any]) -> None:
    names = [row["name"] for row in record["rows"]]
    assert "onnx: times as fast as eager" in names
    assert "eager: times as fast as eager" not in names
    assert record["asked"]["encoder"] == "tiny"
    assert record["size"] == [48, 64]


def test_a_way_that_does_not_work_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    real = infer.opened

    def broken(way: Any, folder: Path) -> Any:
        if way.format == "onnx":
            raise RuntimeError("no such processor\nat all")
        return real(way, folder)

    monkeypatch.setattr(infer, "opened", broken)
    found = bench_infer(encoder="tiny", size=(48, 64), images=1, rounds=1, ways=["onnx"], memory=False)
    assert found["ways"][1] == {"name": "onnx", "works": False, "reason": "RuntimeError: no such processor"}
    assert not [row for row in found["rows"] if row["name"].startswith("onnx")]


def test_ctrl_c_keeps_whole_rounds() -> None:
    calls = 0

    def answer(images: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 6:  # in the second round: two ways, two batches a round
            raise KeyboardInterrupt
        return images

    taken = _Taken()
    _alternate({"eager": answer, "onnx": answer}, [torch.zeros(1), torch.zeros(1)], 5, taken, lambda: None)
    assert taken.interrupted
    assert {name: len(rounds) for name, rounds in taken.rounds.items()} == {"eager": 1, "onnx": 1}
    assert {name: len(each) for name, each in taken.calls.items()} == {"eager": 2, "onnx": 2}


def test_percentiles_of_a_hundred_calls() -> None:
    found = _latency([float(i) for i in range(1, 102)])  # 1 to 101
    assert found == {"p50": 51.0, "p90": 91.0, "p99": 100.0}


@pytest.mark.parametrize("options", [{"images": 0}, {"batch": 0}, {"rounds": 0}, {"ways": ["onxx"]}])
def test_nonsense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        bench_infer(encoder="tiny", **options)


def test_the_command_prints_a_line_for_each_way(record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def told(model: str | None, **options: Any) -> dict[str, Any]:
        asked.update(options, model=model)
        return record

    monkeypatch.setattr(infer, "bench_infer", told)
    done = CliRunner().invoke(app, ["bench", "infer", "--encoder", "tiny", "--size", "32x48", "--way", "onnx"])
    assert done.exit_code == 0, done.output
    assert asked["ways"] == ["onnx"]
    assert asked["size"] == (32, 48)
    assert "onnx-int8" in done.output
    assert "times as long as onnx" in done.output
