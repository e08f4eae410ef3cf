"""Settings: presets, overrides, what is derived from the run and why, and the way back from config.yaml."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.config.build import build_method, build_network, view_params
from ftcseg.config.load import (
    PRESETS,
    VARIANTS,
    Draft,
    as_mapping,
    draft_for,
    parse_override,
    preset,
)
from ftcseg.config.load import settings as leaves
from ftcseg.config.resolve import Facts, resolve
from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.data.describe import Description
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.files import read_yaml, to_yaml
from ftcseg.methods import METHODS, find_method
from ftcseg.methods.ftc import FTCSeg
from ftcseg.nets.segmenter import Segmenter
from ftcseg.teaching.thresholds.atc import ATC
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.teaching.thresholds.flexmatch import FlexThresholds
from ftcseg.teaching.thresholds.freematch import FreeThresholds
from ftcseg.types import ClassTable, MaskCoding, MaskFile, Record
from picture_sets import picture, save

SMALL = ["model.encoder=tiny", "model.weights=null", "model.head=fusion", "model.features=8"]
FACTS = Facts(frame=(320, 480), part="val", foreground=(1, 2))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def resolved(
    method: str = "ftc", *overrides: str, hardware: str = "cpu", facts: Facts = FACTS
) -> tuple[RunConfig, Draft]:
    draft = draft_for(method, hardware, overrides)
    return resolve(draft, facts), draft


# Presets


def test_every_preset_has_an_owner_and_every_variant_a_preset() -> None:
    assert {"cpu", "gpu", *VARIANTS} <= set(PRESETS) <= {"cpu", "gpu", *METHODS, *VARIANTS}
    assert set(VARIANTS.values()) <= set(METHODS)


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_every_preset_loads_and_stays_what_it_says(method: str, hardware: str) -> None:
    config, draft = resolved(method, hardware=hardware)
    assert config.method == VARIANTS.get(method, method)
    given = Draft()
    given.add(preset(method) if method in PRESETS else METHODS[method].preset, "")
    values = dict(leaves(config))
    for key in set(given.why) - {"method"}:
        said: Any = given.values
        for name in key.split("."):
            said = said[name]
        assert values[key] == said, key
        assert draft.why[key] == f"preset {method}"


@pytest.fixture
def labeled(tmp_path: Path) -> Dataset:
    """Two images with all three classes."""
    records = []
    for name in ("a.png", "b.png"):
        save(tmp_path / "images" / name, picture(1, 40, 60))
        save(tmp_path / "masks" / name, np.arange(60)[None].repeat(40, 0) // 20)
        records.append(Record(f"images/{name}", MaskFile(f"masks/{name}")))
    table = ClassTable.named("sea", "can", "rope")
    return Dataset(Description("two", tmp_path, "images-masks", table, MaskCoding("ids", {0: 0, 1: 1, 2: 2})), records)


@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_every_preset_builds(method: str, labeled: Dataset) -> None:
    config, _ = resolved(method, *SMALL, "data.short_side=40", facts=replace(FACTS, frame=(40, 60)))
    network = build_network(config, labeled.classes, 1)
    built = build_method(config, network, labeled, torch.tensor([1600.0, 1600.0, 1600.0]))
    file = {"crest-plus": "crest", "flexmatch": "fixmatch"}.get(config.method, config.method.replace("-", "_"))
    assert type(built).__module__ == f"ftcseg.methods.{file}"
    kinds = {"fixed": Fixed, "atc": ATC, "flexmatch": FlexThresholds, "freematch": FreeThresholds}
    assert type(built.labeler()[1]) is kinds[config.thresholds]
    for net in built.predictors().values():
        assert (cast("Segmenter", net).opr is not None) == (config.opr.layers > 0)
    assert view_params(config, network.spec).geometry.crop == (40, 60)
    assert view_params(config, network.spec).in_channels == network.spec.in_channels == 1


@pytest.mark.parametrize(
    ("rule", "kind"),
    [("fixed", Fixed), ("atc", ATC), ("flexmatch", FlexThresholds), ("freematch", FreeThresholds)],
)
def test_any_rule_goes_with_any_method(rule: str, kind: type, labeled: Dataset) -> None:
    for method in ("fixmatch", "ftc", "cps", "unimatch-v1"):
        config, _ = resolved(method, *SMALL, f"thresholds={rule}")
        built = build_method(config, build_network(config, labeled.classes, 1), labeled, torch.ones(3))
        assert type(built.labeler()[1]) is kind


def test_the_rules_have_settings_of_their_own() -> None:
    config, draft = resolved(
        "flexmatch", "flexmatch.status=rate", "freematch.quantile=0.8", "freematch.clip=[0, 0.95]", "steps=8784"
    )
    assert config.thresholds == "flexmatch"
    assert config.flexmatch.status == "rate"
    assert (config.freematch.quantile, config.freematch.clip) == (0.8, (0, 0.95))
    # A tenth of the paper's run: a memory of 100 steps instead of 1000.
    assert [config.flexmatch.momentum, config.freematch.momentum] == pytest.approx([0.99, 0.99])
    assert draft.why["flexmatch.momentum"].startswith("8784 steps instead of")
    with pytest.raises(UsageError, match="thresholds"):
        resolved("fixmatch", "thresholds=softmatch")
    with pytest.raises(UsageError, match="linear"):
        resolved("fixmatch", "flexmatch.mapping=straight")


def test_another_network_starts_its_prototypes_as_the_first_does(labeled: Dataset) -> None:
    config, _ = resolved("cps", *SMALL, "opr.layers=1", "opr.init=features", "opr.prior_correction=true")
    method = build_method(config, build_network(config, labeled.classes, 1), labeled, torch.tensor([6.0, 3.0, 1.0]))
    for net in method.predictors().values():
        stack = cast("Segmenter", net).opr
        assert stack is not None
        for _, stage in stack:
            assert stage.log_prior.exp().tolist() == pytest.approx([0.6, 0.3, 0.1])


def test_the_named_readings_differ_where_they_say() -> None:
    paper, released, ours = (resolved(name)[0] for name in ("ftc-paper", "ftc-released", "ftc"))
    assert [c.opr.layers for c in (paper, released, ours)] == [2, 1, 1]
    assert [c.opr.gate_head for c in (paper, released, ours)] == ["probe", "head_wide", "probe"]
    assert [c.atc.clip for c in (paper, released, ours)] == [None, (0.5, 0.98), (0.5, 0.99)]
    assert [c.atc.bias_clip for c in (paper, released, ours)] == [None, 0.1, 0.5]
    assert [c.teaching.normaliser for c in (paper, released, ours)] == ["hw", "valid", "valid"]
    assert [(c.atc.tau0, c.atc.lambda_d, c.atc.lambda_b) for c in (paper, released, ours)] == [
        *[(0.95, 0.1, 0.05)] * 2,
        (0.99, 1.0, 0.25),
    ]


def test_the_same_seed_builds_the_same_start(labeled: Dataset) -> None:
    def start(seed: int) -> torch.Tensor:
        config, _ = resolved("ftc", *SMALL, f"seed={seed}", "data.short_side=40")
        method = build_method(config, build_network(config, labeled.classes, 1), labeled, torch.ones(3))
        return torch.cat([p.detach().flatten() for p in method.parameters()])

    assert torch.equal(start(3), start(3))
    assert not torch.equal(start(3), start(4))


def test_prototypes_and_prior_come_from_the_labels(labeled: Dataset) -> None:
    config, _ = resolved("ftc", *SMALL, "data.short_side=40")
    method = build_method(config, build_network(config, labeled.classes, 1), labeled, torch.tensor([6.0, 3.0, 1.0]))
    assert isinstance(method, FTCSeg)
    assert method.pair.student.opr is not None
    for _, stage in method.pair.student.opr:
        assert stage.log_prior.exp().tolist() == pytest.approx([0.6, 0.3, 0.1])
        lengths = stage.prototypes.detach().norm(dim=1)
        assert lengths.tolist() == pytest.approx([float(lengths[0])] * len(lengths))  # a tenth of the mean feature's
        assert float(lengths[0]) != pytest.approx(1.0)
    assert isinstance(method.pair.thresholds, ATC)
    assert method.pair.thresholds.prior.tolist() == pytest.approx([0.6, 0.3, 0.1])
    assert method.pair.student.training  # looking at the labels left it as it was


@pytest.mark.parametrize("model", ["student", "teacher"])
def test_the_threshold_asks_whom_it_is_told_to(model: str, labeled: Dataset) -> None:
    config, _ = resolved("ftc", *SMALL, f"atc.acc_model={model}")
    method = build_method(config, build_network(config, labeled.classes, 1), labeled, torch.ones(3))
    assert method.pair.thresholds.asks_teacher == (model == "teacher")


def test_checkpointing_reaches_the_encoder_and_changes_neither_start_nor_spec(labeled: Dataset) -> None:
    images = torch.zeros(2, 1, 32, 32)
    built = []
    for checkpointing in ("false", "true"):
        config, _ = resolved("ftc", *SMALL, f"model.checkpointing={checkpointing}")
        network = build_network(config, labeled.classes, 1)
        kept: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t), lambda _: None):  # type: ignore[misc]
            network.net.train().features(images)
        built.append((network, len(kept)))
    (plain, many), (saving, few) = built
    assert saving.spec == plain.spec
    assert few < many / 2
    assert all(torch.equal(a, b) for a, b in zip(plain.net.parameters(), saving.net.parameters(), strict=True))


# Typos and types


@pytest.mark.parametrize(
    ("override", "typo", "nearest"),
    [
        ("teaching.emma=0.9", "teaching.emma", "teaching.ema"),
        ("opr.layer=2", "opr.layer", "opr.layers"),
        ("optm.lr=0.1", "optm", "optim.lr"),
        ("step=5", "step", "steps"),
        ("evaluation.evry=5", "evaluation.evry", "evaluation.every"),
    ],
)
def test_a_typo_names_the_nearest_setting(override: str, typo: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=rf"no setting {re.escape(typo)}\. Did you mean {re.escape(nearest)}\b"):
        draft_for("ftc", "cpu", [override]).build()


def test_a_word_like_no_other_gets_no_guess() -> None:
    with pytest.raises(UsageError, match=r"^There is no setting qqqq\.$"):
        draft_for("ftc", "cpu", ["qqqq=1"]).build()


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("steps=many", "steps"),
        ("steps=2.5", "steps"),
        ("thresholds=atcc", "thresholds"),
        ("teaching.norms=both", "teaching.norms"),
        ("teaching.ema=high", "teaching.ema"),
        ("model.mode=half", "model.mode"),
        ("data.crop=[64]", "data.crop"),
        ("data.crop=[64, 64, 3]", "data.crop"),
        ("data.crop=[a, b]", "data.crop"),
        ("data.part=holdout", "data.part"),
        ("opr.gate=ajar", "opr.gate"),
        ("opr.residual=perhaps", "opr.residual"),
        ("precision=8", "precision"),
    ],
)
def test_a_wrong_type_is_refused_with_its_key(override: str, key: str) -> None:
    with pytest.raises(UsageError, match=rf"^{re.escape(key)} cannot be "):
        draft_for("ftc", "cpu", [override]).build()


@pytest.mark.parametrize(
    ("key", "value", "least"),
    [
        ("steps", 0, 1),
        ("data.labeled_batch", 0, 1),
        ("data.unlabeled_batch", -1, 1),
        ("evaluation.audit_images", 0, 1),
        ("log_every", -1, 0),
        ("processes", 0, 1),
        ("seed", -1, 0),
    ],
)
def test_a_count_of_nothing_is_refused_with_its_key(key: str, value: int, least: int) -> None:
    with pytest.raises(UsageError, match=rf"^{key} cannot be {value}: it must be at least {least}\.$"):
        draft_for("ftc", "cpu", [f"{key}={value}"]).build()


def test_a_group_is_no_value_and_a_value_no_group() -> None:
    with pytest.raises(UsageError, match=r"opr holds settings of its own, such as opr\.layers"):
        draft_for("ftc", "cpu", ["opr=3"]).build()
    with pytest.raises(UsageError, match=r"no setting steps\.x"):
        draft_for("ftc", "cpu", ["steps.x=1"])


@pytest.mark.parametrize("text", ["opr.layers", "=2", ""])
def test_what_is_no_setting_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="Write key=value"):
        parse_override(text)


def test_a_broken_value_is_one_sentence() -> None:
    with pytest.raises(FtcsegError, match="is no value"):
        parse_override("data.crop=[1,")


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no method called 'ftc-papr'\. Did you mean ftc-paper"):
        draft_for("ftc-papr", "cpu", [])


# Overrides


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("opr.layers=2", "opr.layers", 2),
        ("model.weights=null", "model.weights", None),
        ("opr.residual=false", "opr.residual", False),
        ("data.crop=[64, 96]", "data.crop", [64, 96]),
        ("optim.lr=1.0e-4", "optim.lr", 1e-4),
        ("data.labels=2%", "data.labels", "2%"),
        (" seed = 7", "seed", 7),
        ("data.split=a=b", "data.split", "a=b"),
    ],
)
def test_overrides_are_plain_yaml(text: str, key: str, value: object) -> None:
    assert parse_override(text) == (key, value)


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("data.crop=[64, 96]", "data.crop", [64, 96]),
        ("optim.lr=1e-4", "optim.lr", 1e-4),  # YAML takes it for a word
        ("data.labels=30", "data.labels", 30),
        ("data.labels=2%", "data.labels", "2%"),
        ("model.mode=3", "model.mode", 3),
        ("model.weights=null", "model.weights", None),
        ("evaluation.audit=no", "evaluation.audit", False),
        ("atc.clip=null", "atc.clip", None),
    ],
)
def test_overrides_reach_the_configuration(override: str, key: str, value: object) -> None:
    config, draft = resolved("ftc", override)
    assert dict(leaves(config))[key] == value
    assert draft.why[key] == "set by the user"


def test_a_group_of_overrides_leaves_the_rest_of_the_group() -> None:
    config, draft = resolved("ftc", "opr={count: 5, layers: 2}")
    assert (config.opr.count, config.opr.layers) == (5, 2)
    assert config.opr.init == "features"  # as the preset says
    assert draft.why["opr.count"] == "set by the user"


def test_the_last_word_counts() -> None:
    assert resolved("ftc", "steps=5", "steps=7")[0].steps == 7


# What is derived


def test_a_short_run_remembers_a_share_of_itself() -> None:
    config, draft = resolved("ftc", "steps=8784")
    # A tenth of the paper's 87 840 steps: 1000 remembered steps become 100, 250 become 25 but at least 50.
    assert config.atc.momentum == pytest.approx(0.99)
    assert config.teaching.ema == pytest.approx(0.98)
    assert "8784 steps instead of the paper's 87840" in draft.why["atc.momentum"]
    assert (config.teaching.burn_in, config.teaching.ramp) == (4392, 878)  # half and a tenth
    assert (config.evaluation.every, config.save_every, config.log_every) == (1756, 439, 87)
    assert draft.why["teaching.burn_in"].startswith("a short run")


def test_a_run_of_the_papers_length_keeps_the_papers_values() -> None:
    config, _ = resolved("ftc", "steps=87840")
    assert (config.atc.momentum, config.teaching.ema) == (0.999, 0.996)
    assert (config.teaching.burn_in, config.teaching.ramp) == (0, 0)


def test_a_very_short_run_remembers_twenty_and_fifty_steps() -> None:
    config, _ = resolved("ftc", "steps=100")
    assert config.atc.momentum == pytest.approx(0.95)
    assert config.teaching.ema == pytest.approx(0.98)
    assert (config.evaluation.every, config.save_every, config.log_every) == (20, 5, 1)


def test_labels_alone_have_no_burn_in() -> None:
    config, _ = resolved("supervised", "steps=100")
    assert (config.teaching.burn_in, config.teaching.ramp) == (0, 0)


def test_crop_part_and_foreground_come_from_the_data() -> None:
    config, draft = resolved("ftc")
    assert config.data.crop == (160, 240)  # 320x480 at the preset's short side of 160
    assert draft.why["data.crop"] == "the frame 320x480 at short side 160"
    assert config.data.part == "val"
    assert config.opr.foreground == (1, 2)
    full, draft = resolved("ftc", "data.short_side=null")
    assert full.data.crop == (320, 480)
    assert draft.why["data.crop"] == "the frame"
    assert resolved("ftc", facts=replace(FACTS, part="test"))[0].data.part == "test"
    assert resolved("ftc", hardware="gpu")[0].data.crop == (518, 518)  # the preset's own


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("data.part", "test"),
        ("data.crop", [32, 48]),
        ("atc.momentum", 0.5),
        ("teaching.ema", 0.7),
        ("teaching.burn_in", 0),
        ("teaching.ramp", 3),
        ("opr.foreground", [2]),
        ("evaluation.every", 0),
        ("save_every", 0),
        ("log_every", 0),
    ],
)
def test_what_the_user_set_is_never_overridden(key: str, value: object) -> None:
    config, draft = resolved("ftc", f"{key}={value}", "steps=100")
    assert dict(leaves(config))[key] == value
    assert draft.why[key] == "set by the user"


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_everything_but_plain_defaults_has_a_reason(method: str, hardware: str) -> None:
    config, draft = resolved(method, "steps=100", hardware=hardware)
    defaults = dict(leaves(RunConfig())) | {"params": dict(leaves(find_method(config.method).params()))}
    assert {key for key, value in leaves(config) if value != defaults[key]} <= set(draft.why)
    assert all(draft.why.values())


@pytest.mark.parametrize("method", ["supervised", "fixmatch", "unimatch-v2"])
def test_baselines_have_no_opr(method: str) -> None:
    config, _ = resolved(method)
    assert config.opr.layers == 0  # though opr.foreground was chosen for them
    assert resolved(method, "opr.layers=1")[0].opr.layers == 1


# There and back


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_a_configuration_survives_the_way_through_its_file(method: str, hardware: str, tmp_path: Path) -> None:
    config, _ = resolved(method, "steps=777", "data.labels=30", "optim.lr=3.3e-7", hardware=hardware)
    (tmp_path / "config.yaml").write_text(to_yaml({"config": as_mapping(config)}))
    again = Draft()
    again.add(read_yaml(tmp_path / "config.yaml")["config"], "the run's own")
    assert again.build() == config
    assert as_mapping(again.build()) == as_mapping(config)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(1e-9, 1.0),
    st.one_of(st.none(), st.tuples(st.integers(1, 999), st.integers(1, 999))),
    st.booleans(),
    st.one_of(st.sampled_from(["full", "frozen"]), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(1, 99), st.sampled_from(["2%", "0.5%"])),
)
def test_any_values_do(lr: float, crop: tuple[int, int] | None, flag: bool, mode: Any, labels: Any) -> None:
    draft = draft_for("ftc", "cpu", [])
    for key, value in {"optim.lr": lr, "data.crop": crop, "opr.residual": flag, "model.mode": mode}.items():
        draft.set(key, list(value) if isinstance(value, tuple) else value, "")
    draft.set("data.labels", labels, "")
    again = Draft()
    again.add(as_mapping(draft.build()), "")
    assert again.build() == draft.build()
