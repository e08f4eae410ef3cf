"""What the first users tripped on, each as a fact."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ftcseg import api
from ftcseg.data import describe
from ftcseg.data.doctor import examine_set
from ftcseg.errors import UsageError


@pytest.fixture(scope="module")
def sonar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return api.simulate(tmp_path_factory.mktemp("set") / "sonar", 60, workers=1)


def test_what_a_balance_drops_is_left_out_and_listed(sonar: Path) -> None:
    split = api.split(sonar, "8", balanced="image")
    everything = {*split.labeled, *split.unlabeled, *split.left_out}
    assert len(everything) == 48  # four fifths of 60
    assert split.left_out
    assert not {*split.labeled, *split.unlabeled} & set(split.left_out)


def test_a_percentage_is_of_the_images_with_masks(sonar: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    for folder in ("images", "masks"):
        (half / folder).mkdir(parents=True)
    for i, image in enumerate(sorted((sonar / "images" / "train").iterdir())):
        (half / "images" / image.name).write_bytes(image.read_bytes())
        if i < 20:
            (half / "masks" / image.name).write_bytes((sonar / "masks" / "train" / image.name).read_bytes())
    split = api.split(half, "50%", by_sequence=True)
    assert split.options["asked"] == 10  # half of 20, not of 48


def test_a_level_without_a_balance_is_refused(sonar: Path) -> None:
    said = _run("split", str(sonar), "--labels", "8", "--level", "pixel")
    assert said.returncode == 2
    assert "--balanced" in said.stderr


def test_one_jpeg_mask_does_not_spoil_the_classes(sonar: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    (folder / "images").mkdir(parents=True)
    (folder / "masks").mkdir()
    ids = np.zeros((40, 40), dtype=np.uint8)
    ids[10:20, 10:20] = 2
    ids[25:30, 25:30] = 1
    for name in "abc":
        Image.fromarray(ids * 60).save(folder / "images" / f"{name}.png")
        Image.fromarray(ids).save(folder / "masks" / f"{name}.png")
    Image.fromarray(ids * 60).save(folder / "images" / "d.png")
    Image.fromarray(ids * 100).save(folder / "masks" / "d.jpg", quality=50)
    found = examine_set(folder)
    assert [c.id for c in found.classes] == [0, 1, 2]
    assert "jpeg-mask" in {f.kind for f in found.findings}


def test_a_class_called_background_is_background_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "dataset.yaml"
    file.write_text("ftcseg: 1\nclasses: {0: background, 1: rope}\n")
    assert describe.load(file).classes[0].background
    file.write_text("ftcseg: 1\nclasses: {0: {name: background, background: false}, 1: rope}\n")
    assert not describe.load(file).classes[0].background


def test_a_corrected_description_is_not_overwritten(sonar: Path, tmp_path: Path) -> None:
    file = tmp_path / "dataset.yaml"
    api.doctor(sonar, write=file)
    api.doctor(sonar, write=file)  # the same again is no harm
    file.write_text(file.read_text().replace("wall", "quay"))
    with pytest.raises(UsageError, match="says something else"):
        api.doctor(sonar, write=file)
    assert "quay" in file.read_text()


def test_a_closed_pipe_is_no_failure(sonar: Path) -> None:
    program, folder = shlex.quote(sys.executable), shlex.quote(str(sonar))
    line = f"{program} -m ftcseg doctor {folder} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    said = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout.strip() == "0"
    assert "Traceback" not in said.stderr


def test_without_a_root_the_advice_can_be_followed() -> None:
    said = _run("doctor", "flsmd", without=("FTCSEG_DATA",))
    assert said.returncode == 2
    assert "datasets get flsmd --root FOLDER" in said.stderr


def test_json_says_what_was_asked_and_what_was_left_out(sonar: Path, tmp_path: Path) -> None:
    api.split(sonar, "8", balanced="image", out=tmp_path / "split")
    data = json.loads((tmp_path / "split" / "split.json").read_text())
    assert data["images"]["left_out"] == len(data["left_out"]) > 0


def _run(*words: str, without: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    import os

    environment = {k: v for k, v in os.environ.items() if k not in without}
    command = [sys.executable, "-m", "ftcseg", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
