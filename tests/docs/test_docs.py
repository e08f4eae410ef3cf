"""The documents are run: what they show is what the program prints, and what they name exists.

```console    each line «$ ftcseg ...» is run in a folder that holds the sets below, and must print what is shown
              under it. «...» stands for lines left out; numbers and bars may differ, words may not. Nothing shown,
              nothing compared. A command ends with 0 unless «$ echo $?» follows and says otherwise.
```python     is run in the same folder.
```yaml       that begins with «ftcseg: 1» must be a dataset.yaml that loads.
<!-- needs flsmd -->  above a block: it is run only where the real set is, as data/flsmd.
Everything else (```sh, ```text, ...) is for reading only.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from ftcseg import api
from ftcseg.cli import COMMANDS, main
from ftcseg.data import describe
from ftcseg.data.index import LAYOUTS
from ftcseg.data.sets import SETS
from ftcseg.errors import DataError

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ftcseg"
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference"

LABELLED, FRAMES = 20, 60
CLASSES = ("background", "wall", "tire", "bottle", "chain", "can", "hook", "propeller")
_FENCE = re.compile(r"(?:<!-- needs (\w+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    needs: str | None
    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: match.start()].count("\n") + 1, match[1], match[2], match[3])
        for match in _FENCE.finditer(text)
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_played(block: Block) -> bool:
    """Whether something is run or loaded wherever the documents are tested."""
    described = block.kind == "yaml" and block.text.startswith("ftcseg: 1")
    return not block.needs and (block.kind in ("console", "python") or described)


PLAYED = [page for page in PAGES if any(map(is_played, blocks(page)))]


# ---------------------------------------------------------------- the sets that the pages speak of


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sonar/ as simulate writes it; frames/, somebody's own; harbour/, described and with two faulty masks."""
    folder = tmp_path_factory.mktemp("docs")
    sonar = api.simulate(folder / "sonar", FRAMES, seed=0, workers=1)
    images = sorted((sonar / "images").rglob("*.png"), key=lambda path: path.name)
    for number, image in enumerate(images, 1):
        _copy(image, folder / "frames" / "images" / f"mission-{number:04d}.png")
        if number <= LABELLED:
            mask = sonar / "masks" / image.relative_to(sonar / "images")
            _copy(mask, folder / "frames" / "masks" / f"mission-{number:04d}.png")
    shutil.copytree(folder / "frames", folder / "harbour")
    cut = folder / "frames" / "images" / "mission-0041.png"
    cut.write_bytes(cut.read_bytes()[:900])
    _spoil(folder / "harbour")
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _spoil(harbour: Path) -> None:
    strange = harbour / "masks" / "mission-0003.png"
    stored = np.array(Image.open(strange))
    stored[:20, :11] = 38
    Image.fromarray(stored).save(strange)
    tall = harbour / "masks" / "mission-0004.png"
    stored = np.array(Image.open(tall))
    Image.fromarray(np.pad(stored, ((0, 26), (0, 0)))).save(tall)
    classes: dict[int, object] = {i: {"name": name} for i, name in enumerate(CLASSES)}
    text = {"ftcseg": 1, "name": "harbour", "classes": classes | {0: {"name": CLASSES[0], "background": True}}}
    (harbour / "dataset.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")


@pytest.fixture
def here(sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with copies of the sets, in which a page is played through."""
    for name in ("sonar", "frames", "harbour"):
        shutil.copytree(sets / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FTCSEG_DATA", raising=False)
    return tmp_path


# ---------------------------------------------------------------- running


@dataclass(frozen=True)
class Step:
    """A command, what is shown under it, and the exit code it is to end with."""

    command: str
    shown: list[str]
    code: int


def steps(block: Block) -> Iterator[Step]:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        command, _, shown = part.partition("\n")
        if command != "echo $?":
            code = int(after.split("\n")[1]) if after.startswith("echo $?") else 0
            yield Step(command, shown.splitlines(), code)


def run(command: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run one command line in this process, as `ftcseg` would."""
    monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def normal(line: str) -> str:
    """A line without what may differ: numbers, hashes, bars and the width of columns."""
    line = re.sub(r"\b[0-9a-f]{16}\b", "HASH", line)
    line = re.sub(r"[█▏▎▍▌▋▊▉]+", "", line)
    line = re.sub(r"\d[\d,.]*", "0", line)
    return " ".join(line.split())


def is_printed(shown: list[str], printed: list[str]) -> bool:
    """Whether the shown lines are the printed ones, «...» standing for any number of them."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(is_printed(shown[1:], printed[skip:]) for skip in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and is_printed(shown[1:], printed[1:])


def play(block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"{name_of(block.page)}:{block.line}"
    for step in steps(block):
        assert step.command.startswith("ftcseg "), f"{where}: only ftcseg is run, not {step.command!r}"
        code = run(step.command, monkeypatch)
        captured = capsys.readouterr()
        printed = captured.out + captured.err
        assert code == step.code, f"{where}: {step.command!r} ended with {code}:\n{printed}"
        shown, lines = (list(filter(None, map(normal, some))) for some in (step.shown, printed.splitlines()))
        assert not shown or is_printed(shown, lines), f"{where}: {step.command!r} prints something else:\n{printed}"


@pytest.mark.parametrize("page", PLAYED, ids=name_of)
def test_the_page_shows_what_the_program_does(
    page: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ftcseg.parallel.available_cores", lambda: 1)
    names: dict[str, object] = {}
    for block in filter(is_played, blocks(page)):
        if block.kind == "console":
            play(block, monkeypatch, capsys)
        elif block.kind == "python":
            exec(compile(block.text, f"{name_of(page)}:{block.line}", "exec"), names)  # our own pages
        else:
            (here / "page.yaml").write_text(block.text, encoding="utf-8")
            describe.load(here / "page.yaml")


@pytest.mark.real_data
def test_what_needs_flsmd(
    real_data: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "data").symlink_to(real_data, target_is_directory=True)
    for page in PAGES:
        for block in blocks(page):
            if block.needs == "flsmd":
                shutil.rmtree(here / "splits", ignore_errors=True)
                play(block, monkeypatch, capsys)


def test_blocks_ask_for_known_things() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.needs in (None, "flsmd"), f"{name_of(page)}:{block.line} needs {block.needs}"


# ---------------------------------------------------------------- names and links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        if target.startswith(("https:", "http:", "mailto:")):
            continue
        file = (page.parent / target).resolve()
        assert file.is_relative_to(ROOT), f"{name_of(page)} links outside: {target}"
        assert file.exists(), f"{name_of(page)} links to {target}, which is not there"
        if anchor:
            assert anchor[1:] in anchors(file), (
                f"{name_of(page)} links to {target}{anchor}, a heading that is not there"
            )


def anchors(page: Path) -> set[str]:
    """Headings as a web page calls them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_linked() -> None:
    linked = {
        (page.parent / target).resolve() for page in PAGES for target, _ in _LINK.findall(page.read_text("utf-8"))
    }
    alone = [name_of(page) for page in PAGES if page not in linked and page.name != "README.md"]
    assert not alone


def test_every_command_is_in_the_readme() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("## Commands")[1]
    for name in (*COMMANDS, "bench step", "bench scaling", "bench compare", "datasets", "datasets get"):
        assert re.search(rf"^\| .*`ftcseg {name}\b", table, re.MULTILINE), f"README.md does not name {name}"


def test_the_map_names_what_exists() -> None:
    (drawn,) = (b.text for b in blocks(ROOT / "CONTRIBUTING.md") if b.text.startswith("src/ftcseg/\n"))
    folders: list[str] = []
    for line in drawn.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        for name in re.match(r"(?: ?[\w/]+(?:\.py|/)(?=\s|$))+", line.strip())[0].split():  # type: ignore[index]
            folders = [*folders[:depth], name]
            assert (ROOT / "".join(folders)).exists(), f"CONTRIBUTING.md: there is no {''.join(folders)}"


def test_every_layout_and_every_set_is_named() -> None:
    layouts = (REFERENCE / "layouts.md").read_text(encoding="utf-8")
    sets = (ROOT / "docs" / "how-to" / "named-sets.md").read_text(encoding="utf-8")
    assert [name for name in LAYOUTS if f"`{name}`" not in layouts] == []
    assert [name for name in SETS if f"`{name}`" not in sets] == []


def test_every_key_of_dataset_yaml_is_named() -> None:
    text = (REFERENCE / "dataset-yaml.md").read_text(encoding="utf-8")
    keys = [*describe._TOP, *describe._CLASS, *describe._MASKS, "pixels"]
    assert [key for key in keys if f"`{key}`" not in text] == []


def kinds() -> dict[str, str]:
    """Every kind of finding and of data error that the source spells out, and one place where it does."""
    found: dict[str, str] = {}
    for path in [*sorted((SOURCE / "data").rglob("*.py")), SOURCE / "files.py", SOURCE / "errors.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for kind in _kinds_of(node):
                found.setdefault(kind, f"{path.name}:{getattr(node, 'lineno', 0)}")
    return found


def _kinds_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        told = node.args[:1] if name in ("Finding", "Problem") else []
        told += [word.value for word in node.keywords if word.arg == "kind" and name.endswith("Error")]
        yield from (arg.value for arg in told if isinstance(arg, ast.Constant) and isinstance(arg.value, str))
    if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
        for line in node.body:
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and line.targets[0].id == "kind":  # type: ignore[attr-defined]
                yield str(line.value.value)


def test_the_kinds_are_found() -> None:
    assert {"near-duplicates", "unknown-value", "unsafe-path", "archive-link", DataError.kind} <= kinds().keys()


def test_every_kind_of_finding_is_explained() -> None:
    text = (REFERENCE / "doctor-json.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))
    unexplained = {kind: place for kind, place in kinds().items() if kind not in explained}
    assert unexplained == {}, "add a row to docs/reference/doctor-json.md"
