"""The model at certain steps, kept for good and never gone on from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_training import Kit, Toy, after, assert_same_run, tensors_in

from ftcseg.config.load import Draft, as_mapping, draft_for
from ftcseg.config.schema import RunConfig
from ftcseg.errors import UsageError
from ftcseg.files import read_yaml, to_yaml, write_text
from ftcseg.train import checkpoint
from ftcseg.training import _identity
from ftcseg.types import Clock


def keeping(folder: Path, *steps: int, **choices: Any) -> Kit:
    kit = Kit(folder, **choices)
    kit.keeper.params = replace(kit.keeper.params, keep_at=steps)
    return kit


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir() if path.name.startswith("step-"))


def test_the_model_alone_is_kept_at_each_step_asked_for(tmp_path: Path) -> None:
    kit = keeping(tmp_path, 1, 5, 8, save_every=0, judge_every=3)
    seen: dict[int, dict[str, Tensor]] = {}
    real = kit.keeper.save

    def watched(clock: Clock, name: str = "last") -> None:
        seen[clock.step] = {f"model/{key}": value.clone() for key, value in kit.method.state_dict().items()}
        real(clock, name)

    kit.keeper.save = watched  # type: ignore[method-assign]
    kit.go()
    assert kept(tmp_path) == ["step-1", "step-5", "step-8"]
    for step in (1, 5, 8):
        files = sorted(path.name for path in (tmp_path / "checkpoints" / f"step-{step}").iterdir())
        assert files == ["model.safetensors", "state.json"]
        assert checkpoint.read(tmp_path / "checkpoints", f"step-{step}").state["clock"]["step"] == step
        found = tensors_in(tmp_path, f"step-{step}")
        assert found.keys() == seen[step].keys()
        assert all(torch.equal(found[key], seen[step][key]) for key in found)
    assert not torch.equal(
        tensors_in(tmp_path, "step-1")["model/student.head.weight"],
        tensors_in(tmp_path, "step-5")["model/student.head.weight"],
    )


def test_keeping_changes_nothing_of_the_run(tmp_path: Path) -> None:
    keeping(tmp_path / "keeping", 1, 5).go()
    Kit(tmp_path / "plain").go()
    assert_same_run(tmp_path / "keeping", tmp_path / "plain")
    assert kept(tmp_path / "plain") == []


@pytest.mark.parametrize("stopped", [2, 4, 5, 6])
def test_a_run_that_was_stopped_keeps_the_same_bits(stopped: int, tmp_path: Path) -> None:
    keeping(tmp_path / "straight", 2, 5).go()
    keeping(tmp_path / "stopped", 2, 5).go(after(stopped))
    keeping(tmp_path / "stopped", 2, 5).go()
    assert kept(tmp_path / "stopped") == kept(tmp_path / "straight") == ["step-2", "step-5"]
    for name in ("step-2", "step-5"):
        for file in ("model.safetensors", "state.json"):
            ours, theirs = (tmp_path / run / "checkpoints" / name / file for run in ("stopped", "straight"))
            assert ours.read_bytes() == theirs.read_bytes()


def test_what_is_kept_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = checkpoint.write

    def noted(folder: Path, name: str, *rest: Any) -> Path:
        written.append(name)
        return real(folder, name, *rest)

    monkeypatch.setattr(checkpoint, "write", noted)
    keeping(tmp_path, 3, save_every=1, judge_every=3).go(after(5))  # at step 3, best and last_good are written too
    keeping(tmp_path, 3, save_every=1, judge_every=3).go()
    assert written.count("step-3") == 1


def test_a_skipped_step_is_kept_one_step_later(tmp_path: Path) -> None:
    def bad(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        return loss * float("nan") if clock.step == 3 else loss  # the step that would lead to 4

    keeping(tmp_path, 4, save_every=0, judge_every=0, method=Toy(accident=bad)).go()
    state = json.loads((tmp_path / "checkpoints" / "step-4" / "state.json").read_text())
    assert state["clock"]["step"] == 5  # the state says where it is from


def test_after_a_roll_back_the_new_way_is_kept(tmp_path: Path) -> None:
    moments = iter([4, 5, 6])  # three bad steps in a row, once: back to 3
    due = [next(moments)]

    def bad(_method: Toy, clock: Clock, loss: Tensor) -> Tensor:
        if clock.step != due[0]:
            return loss
        due[0] = next(moments, -1)
        return loss * float("nan")

    kit = keeping(tmp_path, 4, save_every=0, judge_every=3, method=Toy(accident=bad))
    kit.go()
    assert "RolledBack" in kit.kinds()
    first = keeping(tmp_path / "first", 4, save_every=0, judge_every=3)
    first.go(after(4))
    key = "model/student.head.weight"
    assert not torch.equal(tensors_in(tmp_path, "step-4")[key], tensors_in(tmp_path / "first", "step-4")[key])


def test_shares_become_steps() -> None:
    assert RunConfig(steps=200, keep_at=(0.5, 0.1, 20, 1.0)).kept_steps == (20, 100, 200)
    assert RunConfig(steps=3, keep_at=(0.1,)).kept_steps == (1,)
    assert RunConfig().kept_steps == ()


@pytest.mark.parametrize("at", [0, -1, 201, 0.0, 1.5, -0.1])
def test_a_place_outside_of_the_run_is_told(at: float) -> None:
    with pytest.raises(UsageError, match="keep_at cannot hold"):
        RunConfig(steps=200, keep_at=(at,))


def test_a_place_that_is_no_number_is_told() -> None:
    with pytest.raises(UsageError, match="keep_at cannot be"):
        RunConfig(steps=200, keep_at=(float("nan"),))


def test_it_is_set_like_everything_else_and_survives_config_yaml(tmp_path: Path) -> None:
    config = draft_for("ftc", "cpu", ["steps=200", "keep_at=[0.1, 0.5, 1.0, 7]"]).build()
    assert config.kept_steps == (7, 20, 100, 200)
    write_text(tmp_path / "config.yaml", to_yaml(as_mapping(config)))
    draft = Draft()
    draft.add(read_yaml(tmp_path / "config.yaml"), "again")
    assert draft.build() == config


def test_a_run_is_the_same_run_whatever_is_kept_of_it() -> None:
    plain = draft_for("ftc", "cpu", ["steps=200"]).build()
    assert _identity(plain) == _identity(replace(plain, keep_at=(0.5,)))
    assert _identity(plain) != _identity(replace(plain, steps=201))
