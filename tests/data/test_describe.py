"""dataset.yaml: written, read back, and mended by the error it raises."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ftcseg.data.describe import Description, load, part_lists, save, with_tables
from ftcseg.data.images import MAX_PIXELS
from ftcseg.errors import FtcsegError, LayoutError, UsageError
from ftcseg.types import ClassInfo, ClassTable, MaskCoding

PLAIN = """
ftcseg: 1
name: harbour
root: .
layout: images-masks
classes:
  0: {name: background, background: true}
  1: {name: rope, values: [38, 75], group: tail, prompts: [a rope, a line]}
  2: chain
masks: {encoding: ids, ignore: [255], tolerance: 2, fit: crop-top}
parts: {val: val.txt}
limits: {pixels: 1000}
"""


def described(tmp_path: Path, text: str) -> Description:
    (tmp_path / "dataset.yaml").write_text(text, encoding="utf-8")
    return load(tmp_path / "dataset.yaml")


def refused(tmp_path: Path, old: str, new: str) -> str:
    """The error of PLAIN with one thing changed."""
    assert old in PLAIN
    with pytest.raises(FtcsegError) as caught:
        described(tmp_path, PLAIN.replace(old, new))
    return str(caught.value)


def test_every_key_is_read(tmp_path: Path) -> None:
    found = described(tmp_path, PLAIN)
    assert found == Description(
        name="harbour",
        root=tmp_path.resolve(),
        layout="images-masks",
        classes=ClassTable(
            (
                ClassInfo(0, "background", background=True),
                ClassInfo(1, "rope", values=(38, 75), group="tail", prompts=("a rope", "a line")),
                ClassInfo(2, "chain"),
            )
        ),
        coding=MaskCoding(
            "ids", values={0: 0, 38: 1, 75: 1, 2: 2}, ignore=frozenset({255}), tolerance=2, fit="crop-top"
        ),
        parts={"val": "val.txt"},
        max_pixels=1000,
    )


def test_almost_everything_may_be_left_out(tmp_path: Path) -> None:
    found = described(tmp_path, "ftcseg: 1\nclasses: {0: water, 1: wreck}")
    assert found.name == tmp_path.name
    assert found.layout == "images-masks"
    assert found.coding == MaskCoding("ids", values={0: 0, 1: 1})
    assert found.max_pixels == MAX_PIXELS


def test_the_root_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "notes").mkdir()
    path = tmp_path / "notes" / "mine.yaml"
    path.write_text("ftcseg: 1\nroot: ../set\nclasses: {0: a, 1: b}")
    assert load(path).root == (tmp_path / "set").resolve()


def test_colours_are_written_in_either_way(tmp_path: Path) -> None:
    found = described(
        tmp_path,
        "ftcseg: 1\nclasses: {0: {name: a, colors: ['#0000FF', [1, 2, 3]]}, 1: {name: b, colors: '#ffffff'}}\n"
        "masks: {encoding: colors, ignore_colors: [[9, 9, 9]]}",
    )
    assert found.coding == MaskCoding(
        "colors", colors={(0, 0, 255): 0, (1, 2, 3): 0, (255, 255, 255): 1}, ignore_colors=frozenset({(9, 9, 9)})
    )


# ---------------------------------------------------------------- there and back


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=12)
COLOR = st.tuples(*[st.integers(0, 255)] * 3)


@st.composite
def descriptions(draw: st.DrawFn) -> Description:
    """Any description that doctor could write."""
    names = draw(st.lists(TEXT, min_size=1, max_size=5))
    kind = draw(st.sampled_from(["ids", "colors", "bits", "drawn"]))
    by_color = kind in ("colors", "bits")
    count = len(names)
    pool = draw(st.lists(st.integers(-5, 70000), min_size=2 * count + 2, max_size=2 * count + 2, unique=True))
    shades = draw(st.lists(COLOR, min_size=count + 1, max_size=count + 1, unique=True))
    groups = st.sampled_from([None, "background", "head", "middle", "tail"])
    classes = ClassTable(
        tuple(
            ClassInfo(
                i,
                name,
                background=draw(st.booleans()),
                group=draw(groups),  # type: ignore[arg-type]
                prompts=tuple(draw(st.lists(TEXT, max_size=2))),
            )
            for i, name in enumerate(names)
        )
    )
    coding = MaskCoding(
        kind,  # type: ignore[arg-type]
        values={} if by_color else {pool[k]: k % count for k in range(draw(st.integers(count, 2 * count)))},
        colors={shades[i]: i for i in range(count)} if by_color else {},
        tolerance=draw(st.integers(0, 255)),
        ignore=frozenset(pool[2 * count :]) if draw(st.booleans()) and not by_color else frozenset(),
        ignore_colors=frozenset({shades[count]}) if draw(st.booleans()) and by_color else frozenset(),
        fit=draw(st.sampled_from(["refuse", "crop-top", "crop-bottom", "crop-center", "resize"])),
    )
    return Description(
        name=draw(TEXT),
        root=Path(),
        layout=draw(st.sampled_from(["images-masks", "voc", "coco"])),
        classes=with_tables(classes, coding),
        coding=coding,
        set_name=draw(st.sampled_from([None, "flsmd"])),
        manifest=draw(st.sampled_from([None, "m.jsonl"])),
        parts=draw(st.dictionaries(st.sampled_from(["val", "test"]), TEXT)),  # type: ignore[arg-type]
        max_pixels=draw(st.integers(1, 10**9)),
    )


@settings(max_examples=120, deadline=None)
@given(description=descriptions())
def test_what_is_saved_is_loaded_the_same(tmp_path_factory: pytest.TempPathFactory, description: Description) -> None:
    folder = tmp_path_factory.mktemp("set")
    here = replace(description, root=folder.resolve())
    save(here, folder / "dataset.yaml")
    assert load(folder / "dataset.yaml") == here
    shutil.rmtree(folder)


def test_a_saved_root_is_relative_where_it_can_be(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    description = replace(described(tmp_path, PLAIN), root=tmp_path / "set")
    save(description, tmp_path / "set" / "dataset.yaml")
    assert "\nroot: .\n" in (tmp_path / "set" / "dataset.yaml").read_text()
    save(description, tmp_path / "above.yaml")
    assert "\nroot: set\n" in (tmp_path / "above.yaml").read_text()
    save(description, tmp_path / "elsewhere" / "a.yaml")
    assert f"\nroot: {(tmp_path / 'set').resolve().as_posix()}\n" in (tmp_path / "elsewhere" / "a.yaml").read_text()


def test_tables_say_what_the_coding_says() -> None:
    classes = ClassTable.named("background", "rope")
    told = with_tables(classes, MaskCoding("ids", values={0: 0, 75: 1, 38: 1}))
    assert [c.values for c in told] == [(), (38, 75)]  # a value that is the id itself goes without saying
    told = with_tables(classes, MaskCoding("bits", colors={(0, 0, 0): 0, (255, 0, 0): 1}))
    assert [c.colors for c in told] == [((0, 0, 0),), ((255, 0, 0),)]


# ---------------------------------------------------------------- errors that help


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("layout:", "layuot:", "dataset.yaml has an unknown key «layuot». Did you mean «layout»?"),
        ("masks:", "mask:", "Did you mean «masks»?"),
        ("tolerance: 2", "tolerances: 2", "masks has an unknown key «tolerances». Did you mean «tolerance»?"),
        ("prompts:", "prompt:", "classes.1 has an unknown key «prompt». Did you mean «prompts»?"),
        ("{pixels: 1000}", "{pixel: 1000}", "limits has an unknown key «pixel». Did you mean «pixels»?"),
        ("encoding: ids", "encoding: idz", "masks.encoding is 'idz'. Did you mean ids?"),
        ("fit: crop-top", "fit: crop_top", "masks.fit is 'crop_top'. Did you mean crop-top?"),
        ("group: tail", "group: trail", "classes.1.group is 'trail'. Did you mean tail?"),
        ("{val: val.txt}", "{vla: val.txt}", "parts is 'vla'. Did you mean val?"),
        ("parts:", "zzz:", "Known: ftcseg, name, root, layout, manifest, set, classes, masks, parts, limits."),
    ],
)
def test_a_typo_is_told_with_the_nearest_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in refused(tmp_path, old, new)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2: chain", "2: {name: chain, values: [38]}", "Value 38 belongs to both 'rope' and 'chain'"),
        ("2: chain", "2: {name: chain, values: [0]}", "Value 0 belongs to both 'background' and 'chain'"),
        ("ignore: [255]", "ignore: [38]", "Value 38 is both a class and ignored"),
        ("2: chain", "4: chain", "Class ids must run from 0 without holes; these are 0, 1, 4"),
        ("2: chain", "-1: chain", "without holes"),
        ("2: chain", "'1': chain", "without holes; these are 0, 1, 1"),
        ("encoding: ids", "encoding: colors", "masks.encoding is colors, but no class has colors"),
        ("values: [38, 75]", "values: [a]", "classes.1.values: 'a' is no whole number"),
        ("values: [38, 75]", "values: {a: 1}", "classes.1.values must be a list, not dict"),
        ("values: [38, 75]", "values: [1.5]", "1.5 is no whole number"),
        ("values: [38, 75]", "values: [true]", "True is no whole number"),
        ("values: [38, 75]", "colors: ['#12345g']", "'#12345g' is no colour"),
        ("values: [38, 75]", "colors: [[0, 0, 256]]", "is no colour"),
        ("values: [38, 75]", "background: maybe", "classes.1.background is 'maybe'. Write true or false"),
        ("name: rope", "name: no", "classes.1: «name» is False, which is no text. Put it in quotes"),
        ("{pixels: 1000}", "{pixels: 0}", "limits.pixels is 0. Write 1 or more"),
        ("tolerance: 2", "tolerance: -1", "masks.tolerance is -1. Write 0 or more"),
        ("{pixels: 1000}", "9", "limits must hold «key: value» lines, not int"),
        ("root: .", "root: nowhere", "root 'nowhere' is not a folder"),
        ("root: .", 'root: "a\\0b"', "is not a folder"),
        ("root: .", f"root: {'x' * 300}", "is not a folder"),
        ("root: .", "root: [a]", "«root» is ['a'], which is no text"),
        ("layout: images-masks", "set: [flsmd]", "«set» is ['flsmd'], which is no text"),
        ("layout: images-masks", "manifest: {a: 1}", "«manifest» is {'a': 1}, which is no text"),
    ],
)
def test_what_cannot_be_meant_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in refused(tmp_path, old, new)


def test_a_colour_has_one_owner(tmp_path: Path) -> None:
    text = "ftcseg: 1\nclasses: {0: {name: a, colors: ['#000000']}, 1: {name: b, colors: ['%s']}}\nmasks: %s"
    with pytest.raises(LayoutError, match="Colour #000000 belongs to 'a' and 'b'"):
        described(tmp_path, text % ("#000000", "{encoding: colors}"))
    with pytest.raises(LayoutError, match="Colour #0000ff is both a class and ignored"):
        described(tmp_path, text % ("#0000ff", "{encoding: colors, ignore_colors: ['#0000FF']}"))


@pytest.mark.parametrize("version", ["2", "'1'", "null", "[1]"])
def test_another_version_is_refused(tmp_path: Path, version: str) -> None:
    assert "this version reads «ftcseg: 1»" in refused(tmp_path, "ftcseg: 1", f"ftcseg: {version}")


@pytest.mark.parametrize("text", ["", "- a\n- b", "just words"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LayoutError, match=r"dataset\.yaml must hold «key: value» lines"):
        described(tmp_path, text)


def test_a_value_that_repeats_itself_without_end_is_shown_short(tmp_path: Path) -> None:
    bomb = "&a [x, x, x]"
    levels = "".join(
        f"  k{i}: &k{i} [*{'a' if i == 0 else f'k{i - 1}'}, *{'a' if i == 0 else f'k{i - 1}'}]\n" for i in range(8)
    )
    text = f"ftcseg: 1\nname:\n  a: {bomb}\n{levels}"
    with pytest.raises(LayoutError) as caught:
        described(tmp_path, text)
    assert len(str(caught.value)) < 400


# ---------------------------------------------------------------- part lists


def with_list(tmp_path: Path, data: bytes) -> Any:
    (tmp_path / "val.txt").write_bytes(data)
    return part_lists(described(tmp_path, PLAIN))


def test_a_part_list_names_an_image_a_line(tmp_path: Path) -> None:
    assert with_list(tmp_path, b"images/a.png\r\n\n  images/b c.png \n") == {"val": ["images/a.png", "images/b c.png"]}


def test_a_part_list_that_leads_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"val\.txt: The path '\.\./a\.png' climbs out") as caught:
        with_list(tmp_path, b"images/a.png\n../a.png\n")
    assert caught.value.kind == "unsafe-path"


def test_a_part_list_that_is_missing_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match=r"val\.txt cannot be read: No such file"):
        part_lists(described(tmp_path, PLAIN))
    with pytest.raises(LayoutError, match=r"val\.txt is not UTF-8"):
        with_list(tmp_path, b"\xff\xfe")


def test_a_part_list_outside_the_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FtcsegError, match="climbs out"):
        part_lists(described(tmp_path, PLAIN.replace("{val: val.txt}", "{val: ../val.txt}")))


def test_holes_in_the_ids_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="these are 0, 2"):
        ClassTable((ClassInfo(0, "a"), ClassInfo(2, "b")))
