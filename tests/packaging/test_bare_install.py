"""Source archive and wheel: what they hold, and that the wheel works where no extra is installed.

The environment sees links to the core's packages and nothing else, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest
from distributions import CORE, ROOT, asked_for, closure, installed

SOURCE = ROOT / "src" / "ftcseg"
LARGEST = 250_000  # bytes; as scripts/large_files.py
EXTRAS = ("mlflow", "onnx", "openvino", "ray", "tensorboard", "video", "wandb")


def run(*words: str | Path, cwd: Path | None = None) -> str:
    command, own = [str(word) for word in words], {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=own, check=False)
    assert done.returncode == 0, f"{words}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sdist/, wheel/: what is published; unpacked/: what the first one holds, of which the second one is made."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder / "sdist", cwd=ROOT)
    (archive,) = (folder / "sdist").iterdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    (inside,) = (folder / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheel", cwd=inside)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = (built / "wheel").iterdir()
    assert re.fullmatch(r"ftcseg-[\d.]+-py3-none-any\.whl", found.name)
    return found


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of an environment that holds the wheel and sees the core's packages."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder / "env", symlinks=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    links = folder / "core"
    links.mkdir()
    for name, one in closure(asked_for()[CORE], installed()).items():
        assert one is not None, name
        link(one, links)
    (site / "core.pth").write_text(f"{links}\n", encoding="utf-8")
    python = folder / "env" / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-compile",
        wheel,
    )
    return python.parent


def link(one: Distribution, links: Path) -> None:
    """Every file or folder at the top of a distribution, under its name."""
    tops = {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (links / top).exists() and not top.endswith(".pth"):
            (links / top).symlink_to(Path(str(one.locate_file(top))))


@pytest.fixture(scope="module")
def seen(bare: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What bare_probe.py saw there."""
    probe = Path(__file__).with_name("bare_probe.py")
    printed = run(bare / "python", probe, tmp_path_factory.mktemp("probe"))
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info.file_size for info in archive.infolist()}
    own = {name for name in files if name.startswith("ftcseg/")}
    rest = {name.split("/", 1)[1] for name in files if name not in own}
    source = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert own == {f"ftcseg/{path.relative_to(SOURCE).as_posix()}" for path in source}
    assert rest == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert {"ftcseg/py.typed", "ftcseg/config/presets/cpu.yaml", "ftcseg/data/sets/flsmd_val.txt"} <= own
    assert max(files.values()) < LARGEST


def test_the_wheel_asks_for_what_the_project_asks_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        entry = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
    asked = metadata.get_all("Requires-Dist") or []
    assert len([line for line in asked if "extra ==" not in line]) == len(asked_for()[CORE])
    assert not [line for line in asked if "@" in line]  # from the index, never from an address
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert set(metadata.get_all("Provides-Extra") or []) == {*EXTRAS, "dev"}
    assert "ftcseg = ftcseg.cli:main" in entry


def test_the_source_archive_holds_what_is_needed_to_work_on_it(built: Path) -> None:
    (inside,) = (built / "unpacked").iterdir()
    names = {path.name for path in inside.iterdir()}
    assert {"src", "tests", "docs", "scripts", "Makefile", "LICENSE", "constraints.txt", "SECURITY.md"} <= names
    assert "requirements-hashed.txt" in names
    assert not names & {".venv", ".git", "runs", "build", ".mypy_cache"}
    files = [path for path in inside.rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in {".pyc", ".pt", ".pth", ".safetensors", ".onnx"}]
    assert not [path.name for path in files if path.stat().st_size > LARGEST]


def test_every_module_is_imported_without_any_extra(seen: dict[str, Any]) -> None:
    assert seen["there"] == []
    assert "/site-packages/ftcseg/" in seen["home"]  # the wheel's, not ours
    assert seen["light"]
    own = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(seen["modules"]) == len(own)


def test_it_trains_and_predicts(seen: dict[str, Any]) -> None:
    assert seen["made"] == 1


def test_who_asks_for_an_extra_is_told_its_name(seen: dict[str, Any]) -> None:
    assert sorted(seen["said"]) == sorted(EXTRAS)
    for extra in EXTRAS:
        assert f"pip install 'ftcseg[{extra}]'" in seen["said"][extra], extra


def test_the_command_is_there(bare: Path) -> None:
    assert "doctor" in run(bare / "ftcseg", "--help")
    assert "Usage: ftcseg doctor" in run(bare / "ftcseg", "doctor", "--help")
    assert "unimatch-v2" in run(bare / "ftcseg", "methods")
