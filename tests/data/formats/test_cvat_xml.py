"""CVAT files written by hand; the expected pixels are counted on paper."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from ftcseg.data.formats import cvat_xml
from ftcseg.errors import LayoutError, MaskError
from ftcseg.types import IGNORE, Shapes

BOX = '<polygon label="fish" points="1.0,1.0;4.0,1.0;4.0,3.0;1.0,3.0" z_order="0"/>'  # columns 1-3, rows 1-2
CORNER = '<box label="crab" xtl="0" ytl="0" xbr="2" ybr="2" z_order="{}"/>'  # columns 0-1, rows 0-1
META = """<meta><task><name>reef</name><labels>
<label><name>wreck</name><color>#fa3253</color><attributes></attributes></label>
<label><name>fish</name></label><label><name>crab</name></label><label><name>background</name></label>
</labels></task></meta>"""


def image(*shapes: str, name: str = "a.png", more: str = "") -> str:
    return f'<image id="0" name={quoteattr(name)} width="5" height="4" {more}>{"".join(shapes)}</image>'


def write(root: Path, *images: str, meta: str = META, touch: bool = True) -> None:
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version>'
    root.mkdir(exist_ok=True)
    (root / "annotations.xml").write_text(f"{head}{meta}{''.join(images)}</annotations>")
    if touch:
        (root / "images").mkdir(exist_ok=True)
        (root / "images/a.png").touch()


def drawn(root: Path, *shapes: str) -> list[list[int]]:
    write(root, image(*shapes))
    return cvat_xml.draw(root, Shapes("cvat-xml", "annotations.xml", "a.png"), (4, 5)).tolist()


def kinds(root: Path) -> dict[str, int]:
    return {f.kind: f.count for f in cvat_xml.records(root).findings}


def test_labels_are_classes_in_the_order_of_the_meta_data(tmp_path: Path) -> None:
    write(tmp_path, image(BOX))
    assert cvat_xml.can_read(tmp_path)
    found = cvat_xml.records(tmp_path)
    assert (found.layout, found.findings) == ("cvat-xml", ())
    assert found.classes is not None
    assert found.classes.names == ["background", "wreck", "fish", "crab"]
    assert found.coding is not None
    assert (dict(found.coding.values), found.coding.ignore) == ({0: 0, 1: 1, 2: 2, 3: 3}, {IGNORE})
    (record,) = found.records
    assert (record.image, record.mask) == ("images/a.png", Shapes("cvat-xml", "annotations.xml", "a.png"))


def test_labels_that_the_meta_data_lack_follow_by_name(tmp_path: Path) -> None:
    write(tmp_path, image(CORNER, BOX), meta="<meta/>")
    found = cvat_xml.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "crab", "fish"]


def test_a_polygon_and_a_box(tmp_path: Path) -> None:
    assert drawn(tmp_path, BOX) == [[0, 0, 0, 0, 0], [0, 2, 2, 2, 0], [0, 2, 2, 2, 0], [0, 0, 0, 0, 0]]
    assert drawn(tmp_path, CORNER) == [[3, 3, 0, 0, 0], [3, 3, 0, 0, 0], [0] * 5, [0] * 5]


def test_higher_z_order_covers_lower_and_then_later_covers_earlier(tmp_path: Path) -> None:
    assert drawn(tmp_path, BOX, CORNER.format(0))[1] == [3, 3, 2, 2, 0]
    assert drawn(tmp_path, BOX, CORNER.format(-1))[1] == [3, 2, 2, 2, 0]
    assert drawn(tmp_path, CORNER.format(10), CORNER.format(9).replace("crab", "wreck"), BOX)[1] == [3, 3, 2, 2, 0]


def test_a_masks_runs_go_along_the_rows_of_its_own_box(tmp_path: Path) -> None:
    # A 3 x 2 box at column 1, row 2: off on on / on off off, so 1 off, 3 on, 2 off.
    mask = '<mask label="wreck" rle="1, 3, 2" left="1" top="2" width="3" height="2" z_order="0"/>'
    assert drawn(tmp_path, mask) == [[0] * 5, [0] * 5, [0, 0, 1, 1, 0], [0, 1, 0, 0, 0]]


def test_background_erases_and_void_makes_unknown(tmp_path: Path) -> None:
    assert drawn(tmp_path, BOX, CORNER.replace("crab", "background"))[1] == [0, 0, 2, 2, 0]
    assert drawn(tmp_path, BOX, CORNER.replace("crab", "void"))[1] == [-1, -1, 2, 2, 0]


def test_a_turned_box(tmp_path: Path) -> None:
    # A box of 3 x 1 about the middle of pixel (2, 1), turned by a right angle, is a box of 1 x 3: column 2, rows 0-2.
    box = '<box label="fish" xtl="1.1" ytl="1.1" xbr="3.9" ybr="1.9" rotation="90"/>'
    assert drawn(tmp_path, box) == [[0, 0, 2, 0, 0], [0, 0, 2, 0, 0], [0, 0, 2, 0, 0], [0] * 5]


def test_rotation_is_clockwise_on_the_screen(tmp_path: Path) -> None:
    # From (2.5, 2) a quarter of a right angle clockwise: the right end of a flat bar sinks, the left end rises.
    bar = '<box label="fish" xtl="0" ytl="1.5" xbr="5" ybr="2.5" rotation="45"/>'
    rows = drawn(tmp_path, bar)
    assert rows[0][1] == rows[3][3] == 2
    assert rows[0][3] == rows[3][1] == 0


def test_an_ellipse(tmp_path: Path) -> None:
    ellipse = '<ellipse label="fish" cx="2.5" cy="1.5" rx="2.2" ry="0.8"/>'
    assert drawn(tmp_path, ellipse) == [[0] * 5, [2] * 5, [0] * 5, [0] * 5]


def test_an_image_without_shapes_is_unlabelled_and_lines_are_counted(tmp_path: Path) -> None:
    line = '<polyline label="rope" points="0,0;1,1"/>'
    write(tmp_path, image(line, '<tag label="fish"/>'))
    (record,) = cvat_xml.records(tmp_path).records
    assert record.mask is None
    assert kinds(tmp_path) == {"no-annotation": 1, "shape-ignored": 1}


@pytest.mark.parametrize(
    ("name", "subset", "path", "part"),
    [
        ("a.png", "Train", "images/Train/a.png", "train"),
        ("a.png", "Validation", "images/a.png", "val"),
        ("a.png", "test", "test/a.png", "test"),
        ("sub/a.png", "default", "images/sub/a.png", "train"),
        ("sub\\a.png", "", "sub/a.png", "train"),
        ("frame_000000", "", "images/frame_000000.PNG", "train"),
    ],
)
def test_images_and_parts_as_cvat_lays_them_out(tmp_path: Path, name: str, subset: str, path: str, part: str) -> None:
    write(tmp_path, image(BOX, name=name, more=f'subset="{subset}"'), touch=False)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    (record,) = cvat_xml.records(tmp_path).records
    assert (record.image, record.part) == (path, part)
    assert record.mask == Shapes("cvat-xml", "annotations.xml", name)


@pytest.mark.parametrize("name", ["../a.png", "/etc/passwd", "C:\\a.png", "images/../../a.png"])
def test_names_that_lead_out_are_reported_and_skipped(tmp_path: Path, name: str) -> None:
    write(tmp_path / "set", image(BOX), image(BOX, name=name))
    (tmp_path / "a.png").touch()
    found = cvat_xml.records(tmp_path / "set")
    assert [r.image for r in found.records] == ["images/a.png"]
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.file) == ("unsafe-path", "error", "annotations.xml")
    assert repr(name) in finding.detail


def test_subsets_that_lead_out_find_nothing(tmp_path: Path) -> None:
    write(tmp_path / "set", image(BOX, name="b.png", more='subset="../.."'))
    (tmp_path / "b.png").touch()
    assert cvat_xml.records(tmp_path / "set").records == []
    assert kinds(tmp_path / "set") == {"missing-file": 1}


def test_unlisted_images_beside_listed_ones_are_unlabelled(tmp_path: Path) -> None:
    write(tmp_path, image(BOX))
    (tmp_path / "images/z.png").touch()
    (tmp_path / "masks").mkdir()
    (tmp_path / "masks/a.png").touch()
    assert [(r.image, r.mask is None) for r in cvat_xml.records(tmp_path).records] == [
        ("images/a.png", False),
        ("images/z.png", True),
    ]
    assert kinds(tmp_path) == {"unlisted-image": 1}


def test_images_listed_twice_count_once(tmp_path: Path) -> None:
    write(tmp_path, image(BOX), image(CORNER), image(BOX, name="images/a.png"))
    assert len(cvat_xml.records(tmp_path).records) == 1
    assert kinds(tmp_path) == {"duplicate-image": 2}


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE annotations [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<annotations><version>&c;</version></annotations>"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (LAUGHS, "unsafe-xml"),
        ('<!DOCTYPE annotations SYSTEM "file:///etc/passwd"><annotations/>', "unsafe-xml"),
        (
            '<!DOCTYPE annotations [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotations>&x;</annotations>',
            "unsafe-xml",
        ),
        ("<annotations>" + "<a>" * 100, "too-deep"),
        ("<annotations><image", "layout"),
        ('<?xml version="1.0" encoding="nonsense"?><annotations/>', "layout"),
        ("<annotations><version>1.1</version><track id='0'/></annotations>", "layout"),
        ("<annotations><version>1.1</version></annotations>", "no-images"),
    ],
)
def test_xml_that_attacks_or_is_broken_is_refused(tmp_path: Path, text: str, kind: str) -> None:
    (tmp_path / "annotations.xml").write_text(text)
    assert cvat_xml.can_read(tmp_path)
    with pytest.raises(LayoutError) as caught:
        cvat_xml.records(tmp_path)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ('<polygon label="fish" points="1,1;2,2"/>', "three or more points"),
        ('<polygon label="fish" points="1,1;2,nan;3,3"/>', "not a finite number"),
        ('<polygon label="fish" points="1,1;2;3,3"/>', "x,y;x,y"),
        ('<polygon label="fish"/>', "x,y;x,y"),
        ('<box label="fish" xtl="a" ytl="0" xbr="1" ybr="1"/>', "lacks one of the numbers"),
        ('<box label="fish" xtl="nan" ytl="0" xbr="1" ybr="1"/>', "no place in an image"),
        ('<box label="fish" xtl="1e999" ytl="0" xbr="1" ybr="1"/>', "no place in an image"),
        ('<mask label="fish" rle="1,3" left="1" top="2" width="3" height="2"/>', "add up to 4"),
        ('<mask label="fish" rle="1,x" left="1" top="2" width="3" height="2"/>', "run lengths are not"),
        (f'<mask label="fish" rle="{10**30}" left="1" top="2" width="3" height="2"/>', "run lengths are not"),
        ('<mask label="fish" rle="6" left="3" top="2" width="3" height="2"/>', "leaves the image"),
        ('<mask label="fish" rle="6" left="-1" top="2" width="3" height="2"/>', "leaves the image"),
        (f'<mask label="fish" rle="6" left="0" top="0" width="{10**9}" height="{10**9}"/>', "leaves the image"),
        ('<polygon points="1,1;2,2;3,3"/>', "no label ''"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, shape: str, said: str) -> None:
    with pytest.raises(MaskError, match=rf"annotations\.xml, shape 2 of a\.png: .*{said}"):
        drawn(tmp_path, BOX, shape)


def test_huge_coordinates_are_cut_off(tmp_path: Path) -> None:
    far = '<polygon label="fish" points="-1e15,1;1e15,1;1e15,3;-1e15,3"/>'
    assert drawn(tmp_path, far) == [[0] * 5, [2] * 5, [2] * 5, [0] * 5]


def test_another_image_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    write(tmp_path, image(BOX))
    with pytest.raises(MaskError, match=r"a\.png was annotated at 5x4 pixels, but the image has 9x8"):
        cvat_xml.draw(tmp_path, Shapes("cvat-xml", "annotations.xml", "a.png"), (8, 9))


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    assert drawn(tmp_path, BOX)[1] == [0, 2, 2, 2, 0]
    assert drawn(tmp_path, CORNER)[1] == [3, 3, 0, 0, 0]
    write(tmp_path)
    with pytest.raises(MaskError, match="no longer lists"):
        cvat_xml.draw(tmp_path, Shapes("cvat-xml", "annotations.xml", "a.png"), (4, 5))


def test_other_xml_is_not_cvats(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<annotation><filename>a.png</filename></annotation>")  # Pascal VOC
    assert not cvat_xml.can_read(tmp_path)
    assert not cvat_xml.can_read(tmp_path / "nowhere")
