"""What is concluded from the numbers that masks hold, and that it is said aloud."""

from __future__ import annotations

import pytest

from ftcseg.data.encoding import Guess, encoding_name, guess, parse_color
from ftcseg.data.scan import MaskFacts
from ftcseg.types import ClassInfo, Finding, MaskCoding


def grey(values: dict[int, int], mode: str = "L", file_format: str = "PNG") -> MaskFacts:
    """A mask of one row with so many pixels of each value."""
    width = sum(values.values())
    return MaskFacts("x", mode, file_format, 1, width, {str(v): n for v, n in values.items()})


def colored(colors: dict[str, int]) -> MaskFacts:
    """An RGB mask of one row with so many pixels of each colour."""
    corners: dict[str, int] = {}
    for color, count in colors.items():
        cut = "#" + "".join("ff" if channel >= 128 else "00" for channel in parse_color(color))
        corners[cut] = corners.get(cut, 0) + count
    return MaskFacts("x", "RGB", "PNG", 1, sum(colors.values()), colors, corners)


def guessed(*facts: MaskFacts) -> Guess:
    return guess([(f"masks/{i}.png", f) for i, f in enumerate(facts)])


def kinds(result: Guess) -> list[str]:
    return [f.kind for f in result.findings]


def finding(result: Guess, kind: str) -> Finding:
    (one,) = (f for f in result.findings if f.kind == kind)
    return one


# ---------------------------------------------------------------- ids


def test_ids_from_zero_on_are_themselves_and_the_commonest_zero_is_background() -> None:
    result = guessed(grey({0: 900, 1: 60}), grey({0: 38, 2: 2}))
    assert result.coding == MaskCoding("ids", values={0: 0, 1: 1, 2: 2})
    assert result.classes.names == ["background", "class-1", "class-2"]
    assert [c.background for c in result.classes] == [True, False, False]
    said = finding(result, "background-assumed")
    assert "93.8 %" in said.detail  # 938 of 1000
    assert said.severity == "note"


def test_a_rare_class_zero_is_a_class_like_the_others() -> None:
    result = guessed(grey({0: 10, 1: 90}))
    assert result.classes.names == ["class-0", "class-1"]
    assert not any(c.background for c in result.classes)
    assert kinds(result) == []


def test_few_bits_are_told_and_counted() -> None:
    result = guessed(grey({0: 9, 1: 3}), grey({0: 9, 2: 1}, mode="L;4"), grey({0: 9, 3: 1}, mode="L;2"))
    assert dict(result.coding.values) == {0: 0, 1: 1, 2: 2, 3: 3}
    said = finding(result, "few-bits")
    assert (said.file, said.count, said.severity) == ("masks/1.png", 2, "note")
    assert encoding_name([grey({0: 1}, mode="L;4"), grey({0: 1}, mode="L;2")], result.coding) == "grey2+grey4"
    assert "few-bits" not in kinds(guessed(grey({0: 9, 1: 3}), grey({0: 9, 1: 1}, mode="1")))


def test_few_bits_among_colours_are_shades_of_grey() -> None:
    result = guessed(colored({"#000000": 5, "#ff0000": 2}), grey({0: 3, 15: 1}, mode="L;4"), grey({1: 3}, mode="1"))
    assert dict(result.coding.colors) == {(0, 0, 0): 0, (255, 0, 0): 1, (255, 255, 255): 2}


def test_a_hole_in_the_ids_is_a_class_nobody_has() -> None:
    result = guessed(grey({0: 50, 1: 10, 3: 5}))
    assert len(result.classes) == 4
    assert result.coding.values == {0: 0, 1: 1, 2: 2, 3: 3}


def test_0_and_255_are_two_classes_and_that_is_said() -> None:
    for facts in ([grey({0: 90}), grey({0: 50, 255: 10})], [grey({255: 10})]):
        result = guessed(*facts)
        assert result.coding == MaskCoding("ids", values={0: 0, 255: 1})
        assert result.classes.names == ["background", "foreground"]
        assert "255 = foreground" in finding(result, "binary-masks").detail
        assert finding(result, "binary-masks").file == f"masks/{len(facts) - 1}.png"


@pytest.mark.parametrize("unknown", [255, 65535, -1])
def test_the_customary_unknown_beside_ids_is_ignored_and_that_is_said(unknown: int) -> None:
    result = guessed(grey({0: 50, 1: 10}), grey({0: 5, unknown: 7}))
    assert result.coding == MaskCoding("ids", values={0: 0, 1: 1}, ignore=frozenset({unknown}))
    said = finding(result, "ignore-value")
    assert f"Value {unknown} (7 pixels)" in said.detail
    assert said.file == "masks/1.png"


def test_scattered_values_are_numbered_in_order_and_that_is_said() -> None:
    # VOC's palette shown as grey: 0, 38 and 75 are background, aeroplane and bicycle.
    result = guessed(grey({0: 80, 38: 10, 75: 5, 255: 5}))
    assert result.coding == MaskCoding("ids", values={0: 0, 38: 1, 75: 2}, ignore=frozenset({255}))
    assert result.classes.names == ["background", "value-38", "value-75"]
    assert result.classes[2].values == (75,)
    assert "0, 38, 75: numbered 0-2" in finding(result, "value-gaps").detail


def test_negative_values_are_numbered_too() -> None:
    assert guessed(grey({-5: 1, 0: 9, 1: 3})).coding.values == {-5: 0, 0: 1, 1: 2}


def test_a_single_value_is_a_single_class_and_no_background() -> None:
    result = guessed(grey({0: 100}))
    assert [(c.name, c.background) for c in result.classes] == [("class-0", False)]


def test_grey_saved_as_rgb_is_ids() -> None:
    result = guessed(colored({"#000000": 90, "#020202": 10}), grey({0: 5, 1: 5}))
    assert result.coding == MaskCoding("ids", values={0: 0, 1: 1, 2: 2})
    assert encoding_name([colored({"#000000": 9})], result.coding) == "rgb-grey"


def test_more_values_than_any_set_has_classes_are_an_error() -> None:
    for facts in (grey(dict.fromkeys(range(300), 5), "I;16"), MaskFacts("x", "I;16", "PNG", 10, 10, None)):
        result = guessed(facts)
        assert finding(result, "too-many-values").severity == "error"
        assert len(result.classes) == 0


def test_soft_edges_are_an_error_and_no_classes() -> None:
    # An anti-aliased 0/255 mask: 50 shades along the edges, 10 pixels each, in 20,000 pixels.
    soft = grey({0: 15_000, 255: 4_500} | dict.fromkeys(range(5, 255, 5), 10))
    result = guessed(grey({0: 100}), soft)
    said = finding(result, "too-many-values")
    assert said.severity == "error"
    assert said.file == "masks/1.png"
    assert "52 different values" in said.detail
    assert "tolerance" in said.remedy
    assert len(result.classes) == 0


def test_many_classes_are_not_taken_for_soft_edges() -> None:
    # 150 classes, of which one picture holds 20: ADE20K.
    files = [grey({0: 500, **{(i * 7 + k) % 150 + 1: 5 for k in range(20)}}) for i in range(30)]
    result = guessed(*files)
    assert len(result.classes) == 151
    assert kinds(result) == ["background-assumed"]
    # 30 rare classes at once, but no more than 66 in all: Mapillary.
    files = [grey({i: 900, **{(i + k) % 65: 3 for k in range(1, 31)}}) for i in range(65)]
    assert "too-many-values" not in kinds(guessed(*files))


def test_one_picture_in_many_with_odd_shades_does_not_condemn_the_others() -> None:
    soft = grey({0: 15_000, 255: 4_500} | dict.fromkeys(range(5, 255, 5), 10))
    assert "too-many-values" not in kinds(guessed(soft, grey({0: 9, 1: 3}), grey({0: 9, 1: 3})))


# ---------------------------------------------------------------- colours


def test_colours_become_classes_named_after_themselves() -> None:
    result = guessed(colored({"#000000": 50, "#8000c0": 10}), colored({"#000000": 5, "#406080": 3}))
    assert result.coding.kind == "colors"
    assert result.coding.colors == {(0, 0, 0): 0, (64, 96, 128): 1, (128, 0, 192): 2}
    assert result.classes.names == ["background", "color-406080", "color-8000c0"]
    assert result.classes[1] == ClassInfo(1, "color-406080", colors=((64, 96, 128),))
    assert kinds(result) == ["colours-unnamed", "background-assumed"]
    assert encoding_name([], result.coding) == "rgb"


def test_pure_corners_are_colours_as_they_stand() -> None:
    result = guessed(colored({"#000000": 50, "#ff0000": 10, "#00ffff": 3}))
    assert result.coding.kind == "colors"
    assert "impure-colours" not in kinds(result)


def test_impure_corners_are_cut_at_128_and_that_is_said() -> None:
    # SUIM: 5, 0, 250 stands for pure blue.
    result = guessed(colored({"#000000": 50, "#0500fa": 10, "#0000ff": 3, "#fc0307": 2}))
    assert result.coding.kind == "bits"
    assert result.coding.colors == {(0, 0, 0): 0, (0, 0, 255): 1, (255, 0, 0): 2}
    assert "3 pure ones" in finding(result, "impure-colours").detail
    assert encoding_name([], result.coding) == "rgb-threshold"


def test_a_grey_picture_among_coloured_ones_lends_its_shades() -> None:
    result = guessed(colored({"#8000c0": 10}), grey({0: 100, 255: 2}))
    assert result.coding.colors == {(0, 0, 0): 0, (128, 0, 192): 1, (255, 255, 255): 2}


@pytest.mark.parametrize("value", [-1, 300, 65535])
def test_ids_among_coloured_masks_are_no_colour(value: int) -> None:
    result = guessed(colored({"#8000c0": 10, "#000000": 5}), grey({0: 100, value: 5}, "int64", "npy"))
    assert result.coding.colors == {(0, 0, 0): 0, (128, 0, 192): 1}


def test_too_many_colours_are_an_error() -> None:
    many = colored({f"#{v:02x}40{v:02x}": 2 for v in range(40, 200)} | {f"#40{v:02x}80": 2 for v in range(40, 200)})
    for facts in (many, MaskFacts("x", "RGB", "PNG", 9, 9, None, {"#000000": 50, "#ffffff": 31})):
        result = guessed(facts)
        assert finding(result, "too-many-colours").severity == "error"
        assert len(result.classes) == 0


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("mode", "file_format", "name"),
    [
        ("L", "PNG", "grey8"),
        ("P", "PNG", "palette"),
        ("1", "PNG", "bit1"),
        ("I;16", "PNG", "grey16"),
        ("1xuint16", "TIFF", "grey16"),
        ("1xbool", "TIFF", "bit1"),
        ("int64", "npy", "npy"),
        ("drawn", "coco", "drawn-coco"),
        ("drawn", "class-files", "class-files"),
    ],
)
def test_an_encoding_has_a_short_name(mode: str, file_format: str, name: str) -> None:
    assert encoding_name([grey({0: 1, 1: 1}, mode, file_format)], MaskCoding("ids", values={0: 0, 1: 1})) == name


def test_several_encodings_are_all_named() -> None:
    facts = [grey({0: 1}), grey({0: 1}, "P"), grey({0: 1})]
    assert encoding_name(facts, MaskCoding("ids", values={0: 0, 1: 1})) == "grey8+palette"
    assert encoding_name([], MaskCoding("ids")) == "none"
    assert encoding_name([grey({0: 1})], MaskCoding("ids", values={0: 0, 255: 1})) == "binary255"
