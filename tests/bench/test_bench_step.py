"""A timed step is training's own step: the same weights, all of its time accounted for, nothing left behind.

How long anything takes decides no test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from small_cases import SMALL, small_case

from ftcseg.bench import case as cases
from ftcseg.bench import fresh, machine, parts, scaling, step
from ftcseg.bench.case import Case, differing, from_json, parse_batch, placed
from ftcseg.bench.machine import RateMeter
from ftcseg.bench.parts import GROUPS, PARTS, Watch
from ftcseg.bench.plain_step import PlainStep, plain_layers
from ftcseg.bench.rig import Rig, Taken, prepared
from ftcseg.bench.step import OURS, Rounds, bench_step
from ftcseg.bench.words import findings, other_rows
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.types import Clock, StepResult


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all of these tests: the frames are looked at once."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's rate by matrices that are multiplied in no time."""
    monkeypatch.setattr(machine, "SIDES", (16, 32))
    monkeypatch.setattr(machine, "SECONDS", 0.0)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- the parts


def test_every_part_belongs_to_one_group() -> None:
    assert sorted(part for inside in GROUPS.values() for part in inside) == sorted(PARTS)


def test_a_moment_belongs_to_the_innermost_function(monkeypatch: pytest.MonkeyPatch) -> None:
    hands = iter([0.0, 1.0, 3.0, 6.0, 10.0, 15.0])
    monkeypatch.setattr(parts, "now", lambda _: next(hands))
    watch = Watch(torch.device("cpu"))
    inner = watch.wrapped(lambda: None, "losses")
    outer = watch.wrapped(lambda _: inner(), lambda who: who)
    watch.begin()  # 0
    outer("mixing")  # entered at 1, inner from 3 to 6, left at 10
    watch.end()  # 15
    spent = {name: seconds for name, seconds in watch.seconds.items() if seconds}
    assert spent == {"other": 1 + 5, "mixing": 2 + 4, "losses": 3}
    outer("mixing")  # nobody watches any more
    assert sum(watch.seconds.values()) == 15


WORKED = ("augment", "student", "losses", "backward", "optimiser", "logging", "guard")
"""What every method does in every step."""
TAUGHT = ("teacher", "thresholds", "mixing")
KINDS = {
    "supervised": ("ema",),
    "ftc": (*TAUGHT, "ema"),
    "cps": TAUGHT,
    "unimatch-v1": TAUGHT,
    "ael": (*TAUGHT, "ema"),
    "crest-plus": (*TAUGHT, "ema"),
}
"""One method of every kind, and what it does besides."""


@pytest.mark.parametrize("method", KINDS)
def test_the_parts_of_every_kind_of_method_sum_up_to_the_step(method: str, sonar12: Path) -> None:
    with Rig(small_case(sonar12, method)) as rig:
        rig.step()
        taken = rig.step(watch=True)
    assert taken.parts is not None
    assert taken.parts.keys() == PARTS.keys()
    assert sum(taken.parts.values()) == pytest.approx(taken.seconds, rel=0.02)
    assert [part for part in (*WORKED, *KINDS[method]) if taken.parts[part] <= 0] == []
    assert method != "supervised" or taken.parts["teacher"] == 0


def test_a_watched_step_moves_the_same_weights_and_leaves_no_wrapper(sonar12: Path) -> None:
    told = small_case(sonar12)
    with Rig(told) as bare:
        for _ in range(2):
            bare.step()
        expected = {name: tensor.clone() for name, tensor in bare.method.state_dict().items()}
    with Rig(told) as rig:
        owners = parts._methods(rig)
        before = {(owner, name): vars(owner)[name] for owner, name in owners}
        mentions = parts._mentions()
        for _ in range(2):
            rig.step(watch=True)
        found = rig.method.state_dict()
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
    assert all(vars(owner)[name] is function for (owner, name), function in before.items())
    assert parts._mentions() == mentions
    assert {label for *_, label in mentions} == {"ema", "thresholds", "losses"}


def test_an_error_in_a_watched_step_leaves_no_wrapper(sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Rig(small_case(sonar12)) as rig:
        step_of = type(rig.method).step
        monkeypatch.setattr(rig, "emit", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rig.step(watch=True)
        assert type(rig.method).step is step_of


def test_steps_are_taken_late_in_a_run_and_one_after_the_other(sonar12: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Rig(small_case(sonar12)) as rig:
        clocks: list[Clock] = []
        heard = rig._journal
        monkeypatch.setattr(rig, "_journal", lambda e: (clocks.append(e.clock), heard(e)))
        for _ in range(2):
            rig.step()
        assert [clock.step for clock in clocks] == [3001, 3002]  # 4000 steps: room for 1000 after three quarters
        assert not rig.method.pair.burns_in(clocks[0])
        assert rig.images == 4


def test_a_set_without_unlabelled_images_is_refused(sonar12: Path) -> None:
    told = small_case(sonar12)
    with pytest.raises(UsageError, match=r"data\.labels=10%"):
        prepared(replace(told, settings=("model.features=8",)))


# ---------------------------------------------------------------- the plain step


@pytest.mark.parametrize(
    "settings",
    [
        # thresholds that an untrained network reaches: the bias term may lift them to 0.11 at the most
        ("teaching.norms=labeled", "atc.tau0=0.01", "atc.clip=null", "atc.bias_clip=0.1"),
        ("teaching.balance=class", "atc.tau0=0.01", "atc.clip=null", "atc.bias_clip=0.1"),
        ("teaching.norms=joint", "thresholds=fixed", "tau=0.13"),
        ("teaching.normaliser=kept", "thresholds=fixed", "tau=0.13"),
    ],
)
def test_the_plain_step_learns_the_same(settings: tuple[str, ...], sonar12: Path) -> None:
    told = small_case(sonar12, "ftc", *settings)
    said: list[StepResult] = []
    teachers, gradients = [], []
    for one in (told, replace(told, plain=True)):
        with Rig(one) as rig:
            batch = rig.maker[rig.clock.step]
            result = rig.method.step(batch, rig.clock)
            rig.optim.backward(result.loss)
            gradients.append([p.grad.clone() for p in rig.method.parameters() if p.grad is not None])
            said.append(result)
            rig.optim.step(rig.clock)
            rig.method.after_update(rig.clock)
            (teacher,) = rig.method.teachers()
            teachers.append([t.clone() for t in teacher.parameters()])
    real, plain = said
    assert real.parts["unsup"] > 0
    for name, part in real.parts.items():
        assert plain.parts[name].item() == pytest.approx(part.item(), rel=1e-4), name
    assert plain.loss.item() == pytest.approx(real.loss.item(), rel=1e-4)
    assert real.pseudo.kept.tolist() == plain.pseudo.kept.tolist()
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    for ours, theirs in zip(*teachers, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_plain_attention_answers_as_the_fast_one() -> None:
    from torch.nn import functional

    fast = functional.scaled_dot_product_attention
    asked = torch.randn(3, 2, 4, 7, 8, generator=torch.Generator().manual_seed(0)).unbind()
    with plain_layers():
        slow = functional.scaled_dot_product_attention(*asked)
    assert torch.allclose(slow, fast(*asked), atol=1e-6)
    assert functional.scaled_dot_product_attention is fast


def test_only_two_methods_have_a_plain_step(sonar12: Path) -> None:
    with pytest.raises(UsageError, match="ftc"):
        PlainStep.of(prepared(small_case(sonar12, "supervised")).method)


# ---------------------------------------------------------------- the whole measurement


@pytest.fixture(scope="module")
def measured(sonar12: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "SIDES", (16,))
        patch.setattr(machine, "SECONDS", 0.0)
        patch.setattr(step, "TRIES", {**step.TRIES, "odd": step.Try("cannot be", ("model.encoder=nothing",))})
        folder, ticks = tmp_path_factory.mktemp("bench"), []
        found = bench_step(
            encoder="tiny",
            size=(32, 48),
            batch="2+2",
            settings=SMALL,
            dataset=sonar12,
            steps=2,
            warm_up=1,
            against=["plain"],
            tries=["frozen", "odd"],
            memory=False,
            save=folder / "record.json",
            report=folder / "page.html",
            progress=lambda done, total: ticks.append((done, total)),
        )
    return {"record": found, "folder": folder, "ticks": ticks}


def test_a_record_holds_what_it_depends_on(measured: dict[str, Any]) -> None:
    record = measured["record"]
    assert json.loads((measured["folder"] / "record.json").read_text()) == record
    assert measured["ticks"] == [(1, 2), (2, 2)]
    assert record["versions"]["torch"] == torch.__version__
    assert record["machine"]["threads"] == 1
    assert record["matmul"]["flops_per_second"] > 0
    assert len(record["matmul"]["each_time"]) == 1 + record["steps"]  # before, and in every round
    assert (record["asked"]["seed"], record["asked"]["others"]) == (0, ["plain", "try frozen", "try odd"])
    assert "root" not in record["asked"]


def test_the_numbers_of_a_step_agree_with_each_other(measured: dict[str, Any]) -> None:
    found = measured["record"]["step"]
    assert sum(part["share"] for part in found["parts"].values()) == pytest.approx(1, rel=0.02)
    assert sum(found["groups"].values()) == pytest.approx(1 + found["unaccounted"])
    assert found["images_per_second"]["median"] == pytest.approx(4 / found["seconds"]["median"])
    assert found["of_matmul"] * measured["record"]["matmul"]["flops_per_second"] == pytest.approx(
        found["flops"] / found["seconds"]["median"]
    )
    computing = sum(found["parts"][part]["share"] for part in ("teacher", "student", "backward"))
    assert found["compute_of_matmul"] == pytest.approx(found["of_matmul"] / computing)
    assert found["memory"] is None


def test_what_does_not_work_is_told_with_its_reason(measured: dict[str, Any]) -> None:
    record = measured["record"]
    assert (record["against"]["name"], record["against"]["works"]) == ("plain", True)
    frozen, odd = record["tries"]
    assert frozen["time"]["count"] == 2
    assert odd == {"name": "try odd", "works": False, "reason": odd["reason"]}
    assert odd["reason"].startswith("UsageError: There is no encoder called 'nothing'.")
    assert [row[0] for row in other_rows(record)] == ["plain", "try frozen", "try odd"]
    assert {row["name"] for row in record["rows"]} >= {"step", "time, ours over plain", "time, frozen over ours"}


def test_the_page_shows_every_part_and_runs_nothing(measured: dict[str, Any]) -> None:
    text = (measured["folder"] / "page.html").read_text()
    assert all(f"<title>{part}: " in text for part in PARTS)
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert findings(measured["record"])[0].startswith("A step takes ")


class Scripted:
    """In a rig's place: so many seconds a step, then Ctrl-C."""

    def __init__(self, *seconds: float) -> None:
        self.left = list(seconds)

    def step(self, *, watch: bool = False) -> Taken:
        if not self.left:
            raise KeyboardInterrupt
        seconds = self.left.pop(0)
        return Taken(seconds, {**dict.fromkeys(PARTS, 0.0), "student": seconds} if watch else None)


def test_ctrl_c_keeps_the_rounds_that_are_whole() -> None:
    rounds, meter = Rounds(), Mock()
    step._alternate({OURS: Scripted(1, 2, 3, 4, 5), "other": Scripted(10, 20, 30)}, rounds, 9, meter, lambda _: None)
    assert meter.take.call_count == 2  # once a round
    assert rounds.interrupted
    assert rounds.alone == {OURS: [1, 3], "other": [10, 20]}  # the third round had no watched step of ours
    assert [taken.seconds for taken in rounds.watched] == [2, 4]
    with pytest.raises(KeyboardInterrupt):
        step._alternate({OURS: Scripted(1)}, Rounds(), 9, Mock(), lambda _: None)


def test_ratios_of_against_are_ours_over_it_and_of_options_it_over_ours() -> None:
    rounds = Rounds(alone={OURS: [2.0, 4.0], "plain": [4.0, 8.0], "try bf16": [1.0, 2.0]})
    held = {OURS: {"above": 60, "peak": 100}, "plain": {"above": 80, "peak": 125}, "try bf16": {"problem": "no"}}
    plain, half = (step._other(name, rounds, held) for name in ("plain", "try bf16"))
    assert (plain["time"]["median"], plain["memory"]) == (0.5, {"above": 0.75, "whole": 0.8})
    assert (half["time"]["median"], half["memory"], half["held"]) == (0.5, None, {"problem": "no"})


# ---------------------------------------------------------------- cases


def test_a_case_survives_the_way_to_another_process() -> None:
    told = Case(method="cps", size=(32, 48), settings=("threads=1",), plain=True)
    assert from_json(json.loads(json.dumps(told.as_json()))) == told


def test_against_names_a_method_settings_or_the_plain_step() -> None:
    told = differing(Case(settings=("threads=1",)), ["unimatch-v2", "opr.layers=0", "plain"])
    assert (told.method, told.settings, told.plain) == ("unimatch-v2", ("threads=1", "opr.layers=0"), True)
    with pytest.raises(UsageError, match="nothing to compare with"):
        differing(Case(), ["unimatch-v9"])


@pytest.mark.parametrize("text", ["4", "4+", "0+4", "4+4+4", "a+b"])
def test_a_batch_is_two_numbers(text: str) -> None:
    assert parse_batch("3+5") == (3, 5)
    with pytest.raises(UsageError, match="such as 4\\+4"):
        parse_batch(text)


def test_dinov2_gets_the_papers_head() -> None:
    assert "model.head=dpt" in Case(encoder="dinov2-small").overrides()
    assert not any("model.head" in told for told in Case(encoder="efficientnet-lite0").overrides())


def test_simulated_frames_are_made_once_and_may_have_absent_classes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "FRAMES", 5)
    told = placed(Case(size=(32, 48), classes=15))
    assert told.dataset is not None
    assert Path(told.dataset).is_relative_to(cache)
    assert told.as_json()["dataset"] is None
    monkeypatch.setattr(cases, "_simulate", None)
    assert placed(Case(size=(32, 48), classes=15)) == told
    from ftcseg.data.dataset import open_dataset

    assert open_dataset(told.dataset).classes.names[-3:] == ["absent 12", "absent 13", "absent 14"]


# ---------------------------------------------------------------- elsewhere, and curves


def test_peak_memory_is_no_less_than_what_is_held_between_steps(sonar12: Path) -> None:
    found = fresh.peak_memory(small_case(sonar12), {"steps": 1})
    assert found["peak"] >= found["idle"] * 0.99 > 0
    assert found["above"] == found["peak"] - found["before"]
    most, _ = fresh._peak_of(lambda: torch.ones(2**24).sum(), torch.device("cpu"))
    assert most >= 2**26  # 64 MiB were there, if only for a moment


def test_an_errand_that_fails_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str], sonar12: Path) -> None:
    asked = {"errand": "steps", "case": small_case(sonar12, "nosuch").as_json(), "told": {"steps": 1, "warm_up": 1}}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    with pytest.raises(SystemExit) as left:
        fresh.main(str(tmp_path / "asked.json"), str(tmp_path / "found.json"))
    assert left.value.code == FtcsegError.exit_code
    assert "There is no method called 'nosuch'" in capsys.readouterr().err
    assert not (tmp_path / "found.json").exists()


def test_a_curve_over_images_lists_looks_and_makes_batches(cache: Path) -> None:
    told, before = ("model.features=8", "threads=1"), {*cache.rglob("scan-*")}
    record = scaling.bench_scaling("images", at=[100], encoder="tiny", batch="2+2", steps=2, settings=told)
    (point,) = record["points"]
    assert list(point["seconds"]) == [scaling.INDEX, scaling.LOOK, scaling.AGAIN, scaling.BATCH]
    assert point["seconds"][scaling.BATCH]["count"] == 2
    assert {*cache.rglob("scan-*")} == before  # what it remembered went with the set
    drawn = scaling.figure(record)
    assert [(name, [at for at, _ in places]) for name, places in drawn.series][-1] == (scaling.BATCH, [100])


def test_ctrl_c_keeps_the_points_of_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(_case: Case, at: int, _length: tuple[int, int]) -> tuple[dict[str, Any], int]:
        if at == 3:
            raise KeyboardInterrupt
        return {scaling.STEP: scaling.Spread.of([at, 3 * at])}, 8

    monkeypatch.setattr(scaling, "CURVES", {"side": scaling.Curve("", (1, 2, 3), measure)})
    record = scaling.bench_scaling("side")
    assert record["interrupted"]
    assert [(point["at"], point["seconds"][scaling.STEP]["median"]) for point in record["points"]] == [(1, 2), (2, 4)]
    rates = {row["name"]: row["median"] for row in record["rows"] if row["unit"] == "images/s"}
    assert rates == {"side 1: images a second": 4, "side 2: images a second": 2}


def test_a_method_without_prototypes_has_no_such_curve(sonar12: Path) -> None:
    with pytest.raises(UsageError, match="has no prototypes"):
        scaling._over_prototypes(small_case(sonar12, "unimatch-v2"), 4, (1, 1))


def test_the_rate_is_the_median_of_the_times_it_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = RateMeter(torch.device("cpu"))
    taken = iter([{16: [1.0, 2.0, 9.0], 32: [4.0, 5.0, 6.0]}, {32: [7.0, 8.0, 9.0]}])
    for rates in taken:
        monkeypatch.setattr(meter, "_rates", rates.__getitem__)
        meter.take()
    assert (meter.side, meter.rate) == (32, 6.5)  # of 5 and 8
    assert meter.as_json()["each_time"] == [5, 8]


def test_a_rate_that_moves_is_told_and_one_odd_look_is_not(measured: dict[str, Any]) -> None:
    record = measured["record"]
    steady, moving = ({**record, "matmul": {**record["matmul"], "each_time": rates}} for rates in (
        [100.0, 100.0, 101.0, 102.0, 30.0],  # the middle half: 100 to 101
        [100.0, 90.0, 115.0, 120.0, 80.0],  # 90 to 115
    ))  # fmt: skip
    assert not [line for line in findings(steady) if "matrix-multiply rate moved" in line]
    assert [line for line in findings(moving) if "matrix-multiply rate moved" in line]
