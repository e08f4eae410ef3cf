"""Intervals on the page of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ftcseg.cli.eval import print_scores
from ftcseg.report.run_files import read_runs
from ftcseg.report.run_tables import intervals

OVER_IMAGES = {
    "units": 40, "share": 0.95, "draws": 2000, "warning": "", "miou": [0.38, 0.44], "groups": {"tail": [0.1, 0.3]},
    "classes": [[0.9, 0.95], [0.1, 0.3], None],
}  # fmt: skip
OVER_SEQUENCES = {
    **OVER_IMAGES,
    "units": 6,
    "warning": "With 6 sequences the interval is too narrow.",
    "miou": [0.3, 0.5],
}


def _run(folder: Path, told: object) -> Path:
    folder.mkdir()
    classes = [{"id": i, "iou": iou} for i, iou in enumerate((0.93, 0.2, None))]
    last: dict[str, Any] = {"miou": 0.41, "groups": {"tail": 0.2}, "classes": classes}
    last |= {} if told is None else {"intervals": told}
    names = {"classes": ["water", "<rope>", "hook"], "groups": ["background", "tail", "tail"]}
    (folder / "scores.json").write_text(json.dumps({"checkpoints": {"last": {"teacher": last}}, **names}))
    return folder


def _shown(*folders: Path) -> str:
    return intervals(read_runs(folders))


def test_every_class_has_its_interval_over_images_and_over_sequences(tmp_path: Path) -> None:
    page = _shown(_run(tmp_path / "a", {"images": OVER_IMAGES, "sequences": OVER_SEQUENCES}))
    assert "over 40 images" in page
    assert "over 6 sequences" in page
    assert '<td class="n">41.0</td><td class="n">38.0 to 44.0</td><td class="n">30.0 to 50.0</td>' in page
    assert '<b>tail classes</b></td><td class="n">20.0</td><td class="n">10.0 to 30.0</td>' in page
    assert "&lt;rope&gt;" in page
    assert '<td class="n">n/a</td><td class="n">n/a</td><td class="n">n/a</td>' in page  # the hook is nowhere
    assert "95 % interval" in page
    assert "sequences is the honest one" in page
    assert "With 6 sequences the interval is too narrow." in page


def test_without_sequences_nothing_is_said_of_them(tmp_path: Path) -> None:
    page = _shown(_run(tmp_path / "a", {"images": OVER_IMAGES}))
    assert "38.0 to 44.0" in page
    assert "sequences" not in page


def test_runs_without_intervals_show_none(tmp_path: Path) -> None:
    old, new = _run(tmp_path / "old", None), _run(tmp_path / "new", {"images": OVER_IMAGES})
    assert _shown(old) == ""
    assert "Intervals of new" in _shown(old, new)
    assert "Intervals of old" not in _shown(old, new)


@pytest.mark.parametrize("told", [{"images": 3}, {"images": {"miou": [1], "classes": "x", "units": None}}, [], "x"])
def test_intervals_that_are_none_break_no_page(tmp_path: Path, told: object) -> None:
    assert _shown(_run(tmp_path / "a", told)) == ""


def test_ends_that_are_none_are_not_available(tmp_path: Path) -> None:
    odd = {**OVER_IMAGES, "miou": [0.3], "groups": {"tail": "x"}, "classes": [[0.1, float("nan")], [True, "x"]]}
    page = _shown(_run(tmp_path / "a", {"images": odd}))
    assert page.count('<td class="n">n/a</td></tr>') == 5  # mIoU, tail and three classes


def test_the_command_tells_the_interval_of_the_miou(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, Any] = {"dataset": "x", "part": "val", "images": 40, "classes": [], "groups": {}, "miou": 0.41}
    found |= {"pixel_accuracy": None, "ece": None, "checkpoints": {}}
    print_scores(found)
    assert "interval" not in capsys.readouterr().out
    print_scores({**found, "intervals": {"images": OVER_IMAGES, "sequences": OVER_SEQUENCES}})
    said = " ".join(capsys.readouterr().out.split())
    assert "38.00 to 44.00 over 40 images, 30.00 to 50.00 over 6 sequences (95 % interval)" in said
    assert "With 6 sequences the interval is too narrow." in said
    print_scores({**found, "intervals": {"images": {**OVER_IMAGES, "miou": None, "warning": "One image."}}})
    assert capsys.readouterr().out.endswith("One image.\n")
