"""What the page of a method says of it: box, file, readings, command, and which settings of a run have no effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ftcseg.methods import METHODS
from ftcseg.methods.base import Method
from ftcseg.nets.norms import still_statistics
from ftcseg.nets.segmenter import Segmenter
from ftcseg.types import Clock, SemiBatch
from tiny_methods import LATE, TOTAL, Variant, batch_for, nudge, with_valid

DOCS = Path(__file__).parents[2] / "docs"
NAMES = pytest.mark.parametrize("name", METHODS)
PAGES = {"crest-plus": "crest"}
OTHER = {
    "teaching.ema": {"ema": 0.5},
    "teaching.normaliser": {"normaliser": "hw"},
    "teaching.balance": {"balance": "class"},
    "teaching.norms": {"norms": "labeled"},
    "teaching.unsup_weight": {"unsup_weight": 0.5},
}
"""Settings that every method is given, each with another value than these tests have anyway."""
EARLY = Clock(step=10, total=TOTAL)
"""Within the first round of methods that have several; a teacher is warm by then."""


def page(name: str) -> str:
    return (DOCS / "methods" / f"{PAGES.get(name, name)}.md").read_text(encoding="utf-8")


@NAMES
def test_a_page_has_box_file_readings_and_command(name: str) -> None:
    text = page(name)
    file = type(Variant(name).build()).__module__.removeprefix("ftcseg.").replace(".", "/") + ".py"
    assert re.search(r"^# .*`" + name + "`", text, re.MULTILINE)
    assert re.search(r"^```\n.+?^```$", text, re.MULTILINE | re.DOTALL)
    assert re.search(r"^Our files?: \[`" + re.escape(file), text, re.MULTILINE)
    assert re.search(r"^## .*[Rr]eadings|^\| reading \|", text, re.MULTILINE)
    assert re.search(rf"^    ftcseg train .*--method {PAGES.get(name, name)}", text, re.MULTILINE)
    assert f"(methods/{PAGES.get(name, name)}.md)" in (DOCS / "index.md").read_text(encoding="utf-8")


@NAMES
def test_a_page_names_every_setting_that_has_no_effect(name: str) -> None:
    plan, usual = Variant(name).build().views, seen(name)
    idle = {setting for setting, other in OTHER.items() if same(usual, seen(name, **other))}
    idle |= set() if plan.cutmix else {"cutmix"}
    idle |= set() if plan.strong or plan.labeled_strong else {"photometric"}
    said = re.findall(r"^Without effect here:(.*?)(?:\. |\.$|; and |; nor )", page(name), re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([\w.]+)`", " ".join(said))) == idle


def seen(name: str, **teaching: object) -> list[Tensor]:
    """A step's loss and what it left behind, and then what an update leaves behind."""
    method = Variant(name, teaching=teaching).build()
    batch = half_padded(batch_for(method.views))
    open_eyes(method, batch.labeled.images)
    result = method.step(batch, LATE)
    assert result.pseudo is None or int((result.pseudo.kept > 0).sum()) > 1
    kept = [result.loss.detach(), *(buffer.clone() for buffer in method.buffers())]
    nudge(method)
    method.after_update(EARLY)
    return [*kept, *method.state_dict().values()]


def open_eyes(method: Method, images: Tensor) -> None:
    """Let networks that know nothing see several classes: who wins depends on how a pixel differs from the mean one."""
    for net in method.modules():
        if isinstance(net, Segmenter):
            bias = net.head.classifier.bias
            assert bias is not None
            with torch.no_grad(), still_statistics(net):
                net.head.classifier.weight.mul_(20)
                usual = net.embed(net.features(images)).mean((0, 2, 3))
                bias.copy_(-net.head.classifier.weight.flatten(1) @ usual)


def half_padded(batch: SemiBatch) -> SemiBatch:
    if batch.unlabeled is None:
        return batch
    valid = batch.unlabeled.valid.clone()
    valid[:, : valid.shape[1] // 2] = False
    return with_valid(batch, valid)


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
