"""Whatever somebody sets, there are settings that a run can be built from, or an FtcsegError that names the setting."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.config.build import build_thresholds
from ftcseg.config.load import Draft, as_mapping, draft_for, draft_of_run
from ftcseg.config.load import settings as leaves
from ftcseg.config.resolve import Facts, resolve
from ftcseg.config.schema import RANGES, RunConfig
from ftcseg.errors import FtcsegError, LayoutError, UsageError
from ftcseg.files import to_yaml
from ftcseg.train.optim import schedule
from ftcseg.types import Clock
from ftcseg.views.geometry import GeometryParams, draw_window
from ftcseg.views.mix import draw_box
from ftcseg.views.photometric import draw_look

FACTS = Facts(frame=(40, 60), part="val", foreground=(1, 2), background=(0,), rarest=2)
KEYS = [key for key, _ in leaves(RunConfig())]
NASTY = [
    *("0", "-1", "1", "0.5", "-0.5", ".nan", ".inf", "-.inf", "1e400", "1e308", "-1e308", "1e-320", "1.0e+31"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 400,
        "null",
        "true",
        "",
        "''",
        "abc",
        "é",
        "\u2028",
        "\ud800",
    ),
    *("[]", "[1]", "[1, 2]", "[2, 1]", "[0, 0]", "[.nan, .nan]", "[-1, -1]", "[1, 2, 3]", "[[1, 2]]", "{}", "{a: 1}"),
    *(
        "{a: {b: 1}}",
        "2001-99-99",
        "2001-01-01",
        "!!python/object:os.system x",
        "&a [*a]",
        "[" * 300,
        "*a",
        "<<: 1",
        "=",
    ),
]

few = settings(deadline=None, derandomize=True)


def usable(overrides: list[str]) -> RunConfig:
    """The settings, after everything cheap that a run does with them was done with them."""
    draft = draft_for("ftc", "cpu", overrides)
    config = resolve(draft, FACTS)
    rng = np.random.default_rng(0)
    assert config.data.crop is not None
    geometry = GeometryParams(config.data.crop, config.data.short_side, config.data.scale, config.data.flip)
    window = draw_window(FACTS.frame, geometry, rng)
    assert min(window.size) >= 1
    draw_box(*FACTS.frame, config.cutmix, rng)
    assert all(math.isfinite(number) for number in (draw_look(config.photometric, rng).sigma, config.tau))
    assert bool(build_thresholds(config, torch.tensor([5.0, 3.0, 2.0])).tau().isfinite().all())
    assert 0 <= schedule(Clock(1, config.steps, 2), config.optim.power, config.optim.warmup) <= 1
    assert all(0 <= beta < 1 for beta in config.optim.betas)  # as torch's optimisers ask
    assert 0 < config.optim.lr < math.inf
    assert 0 <= config.optim.weight_decay < math.inf
    return config


@pytest.mark.parametrize("key", sorted({key.split(".")[0] for key in KEYS}))
def test_every_setting_refuses_what_it_cannot_be(key: str) -> None:
    """One nasty value for each setting, another one each time, so that all meet all over the settings."""
    mine = [name for name in KEYS if name.split(".")[0] == key]
    for place, name in enumerate(mine):
        for step in range(2):
            text = f"{name}={NASTY[(7 * place + 11 * step + len(key)) % len(NASTY)]}"
            try:
                usable([text])
            except FtcsegError:
                continue


@settings(few, max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from([*KEYS, "params", "params.x", "data", "a.b", "", "."]), st.sampled_from(NASTY)),
        max_size=3,
    )
)
def test_any_settings_are_usable_or_refused(chosen: list[tuple[str, str]]) -> None:
    try:
        usable([f"{key}={value}" for key, value in chosen])
    except FtcsegError:
        return


@settings(few, max_examples=40)
@given(st.text(max_size=30))
def test_any_words_are_usable_or_refused(text: str) -> None:
    for words in (text, f"{text}=1", f"steps={text}", f"opr={{{text}}}"):
        try:
            draft_for("ftc", "cpu", [words]).build()
        except FtcsegError:
            continue


values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["ftc", "fixmatch"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["steps", "data", "opr", "params", "method", "seed"]) | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@settings(few, max_examples=40)
@given(values)
def test_any_document_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, written: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "config.yaml"
    try:
        file.write_text(to_yaml({"config": written}), encoding="utf-8")
    except UnicodeEncodeError:  # half a character: no file holds it
        return
    try:
        draft_of_run(file).build()
    except FtcsegError:
        return


def test_the_settings_of_a_run_come_back(tmp_path: Path) -> None:
    config = usable(["steps=7", "data.scale=[0.5, 1.5]", "opr.layers=2"])
    (tmp_path / "config.yaml").write_text(to_yaml({"config": as_mapping(config)}))
    assert draft_of_run(tmp_path / "config.yaml").build() == config
    for text in ("", "5", "[config]", "config: 5", "config: [1]"):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(LayoutError, match="no settings under «config»"):
            draft_of_run(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("optim.lr=.nan", "optim.lr cannot be nan: it must be a number of ordinary size"),
        ("tau=.inf", "tau cannot be inf"),
        ("atc.bias_clip=-1.0e+308", "atc.bias_clip cannot be -1e"),
        ("data.short_side=0", "data.short_side cannot be 0: it must be from 1 to 16384"),
        ("data.crop=[0, 5]", "data.crop cannot be .0, 5.: it must be from 1 to 200000"),
        ("data.scale=[2, 1]", "data.scale cannot be .2.0, 1.0.: the smaller number comes first"),
        ("data.scale=[0, 1]", "data.scale cannot be"),
        ("teaching.ema=1", "teaching.ema cannot be 1.0: it must be from 0 to less than 1"),
        ("optim.betas=[0.9, 1]", "optim.betas cannot be"),
        ("cutmix.area=[0, 9]", "cutmix.area cannot be"),
        ("model.features=-1", "model.features cannot be -1"),
        ("params=5", "params cannot be 5"),
        ("params=null", "params cannot be None"),
        ("method=5", "method cannot be 5"),
        (f"teaching.burn_in={10**30}", "teaching.burn_in cannot be 1000"),
        ("seed=-1", "seed cannot be -1: it must be at least 0"),
    ],
)
def test_what_once_came_through_is_named(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        usable([text])


def test_null_asks_for_the_frame() -> None:
    assert usable(["data.crop=null"]).data.crop == usable([]).data.crop


def test_every_range_holds_the_default() -> None:
    """The defaults are built at all, and every key of the table is a setting."""
    assert RANGES.keys() <= set(KEYS)
    assert Draft().build().optim == RunConfig().optim
