"""COCO sets written by hand; the expected pixels are counted on paper."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ftcseg.data.formats import coco
from ftcseg.errors import DataError, LayoutError, MaskError
from ftcseg.types import IGNORE, Record, Shapes

FISH, CRAB = {"id": 3, "name": "fish"}, {"id": 8, "name": "crab"}
BOX = [1, 1, 4, 1, 4, 3, 1, 3]  # columns 1-3, rows 1-2 of a 4 x 5 image


def annotation(
    shape: object, category: int = 3, image: object = 1, number: object = 1, **more: object
) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "segmentation": shape, **more}


def image(name: str, number: object = 1) -> dict[str, Any]:
    return {"id": number, "file_name": name, "height": 4, "width": 5}


def write_set(
    root: Path,
    annotations: list[dict[str, Any]],
    images: list[dict[str, Any]] | None = None,
    categories: list[dict[str, Any]] | None = None,
    name: str = "annotations/instances_train.json",
) -> None:
    images = [image("a.png")] if images is None else images
    top = {"images": images, "annotations": annotations, "categories": categories or [CRAB, FISH]}
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(top))
    touch(root, *(f"images/{i['file_name']}" for i in images if re.fullmatch(r"\w\.png", i["file_name"])))


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def drawn(root: Path, key: str = "1", name: str = "annotations/instances_train.json") -> list[list[int]]:
    return coco.draw(root, Shapes("coco", name, key), (4, 5)).tolist()


def kinds(root: Path) -> dict[str, int]:
    return {f.kind: f.count for f in coco.records(root).findings}


def test_classes_are_background_and_then_the_categories_by_id(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    assert coco.can_read(tmp_path)
    found = coco.records(tmp_path)
    assert found.layout == "coco"
    assert found.classes is not None
    assert found.classes.names == ["background", "fish", "crab"]
    assert found.classes.foreground == [1, 2]
    assert found.coding is not None
    assert dict(found.coding.values) == {0: 0, 1: 1, 2: 2}
    assert found.coding.ignore == {IGNORE}
    assert found.records == [Record("images/a.png", Shapes("coco", "annotations/instances_train.json", "1"), "train")]
    assert found.findings == ()


def test_a_polygon_is_drawn_in_its_class(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX], category=8)])
    assert drawn(tmp_path) == [[0, 0, 0, 0, 0], [0, 2, 2, 2, 0], [0, 2, 2, 2, 0], [0, 0, 0, 0, 0]]


def test_an_object_in_two_pieces_and_one_with_a_bracket_too_few(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([[0, 0, 1, 0, 1, 1, 0, 1], [4, 3, 5, 3, 5, 4, 4, 4]]), annotation(BOX, category=8)])
    assert drawn(tmp_path) == [[1, 0, 0, 0, 0], [0, 2, 2, 2, 0], [0, 2, 2, 2, 0], [0, 0, 0, 0, 1]]


# Down the four-pixel columns: 5 off, 2 on, 2 off, 3 on, 8 off -> column 1 rows 1-2, column 2 rows 1-3.
@pytest.mark.parametrize("counts", [[5, 2, 2, 3, 8], "52216"])  # 5 2 2 as they are, 3 - 2 = 1, 8 - 2 = 6
def test_run_lengths_plain_and_compressed(tmp_path: Path, counts: object) -> None:
    write_set(tmp_path, [annotation({"size": [4, 5], "counts": counts}, iscrowd=1)])
    assert drawn(tmp_path) == [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 0, 0]]


def test_small_objects_lie_on_top_of_large_ones_whatever_the_order(tmp_path: Path) -> None:
    small = {"size": [4, 5], "counts": [9, 1, 10]}  # the pixel in column 2, row 1
    objects = [annotation(small, 8, number=1), annotation([BOX], 3, number=2)]
    for order in (objects, objects[::-1]):
        write_set(tmp_path, order)
        assert drawn(tmp_path) == [[0, 0, 0, 0, 0], [0, 1, 2, 1, 0], [0, 1, 1, 1, 0], [0, 0, 0, 0, 0]]


def test_of_equal_objects_the_later_id_lies_on_top(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX], 8, number=7), annotation([BOX], 3, number=5)])
    assert drawn(tmp_path)[1] == [0, 2, 2, 2, 0]


def test_a_box_without_outline_makes_its_pixels_unknown_but_hides_nothing(tmp_path: Path) -> None:
    only_box = annotation([], bbox=[0, 0, 5, 2], number=1)
    write_set(tmp_path, [only_box, annotation([BOX], number=2)])
    assert drawn(tmp_path) == [[-1] * 5, [-1, 1, 1, 1, -1], [0, 1, 1, 1, 0], [0] * 5]
    assert kinds(tmp_path) == {"box-only": 1}


def test_a_set_of_nothing_but_boxes_is_an_error(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([], bbox=[0, 0, 5, 2])])
    (finding,) = coco.records(tmp_path).findings
    assert (finding.kind, finding.severity) == ("box-only", "error")


def test_an_image_without_annotation_is_unlabelled_and_one_with_an_empty_one_is_empty(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([], image=2)], [image("a.png", 1), image("b.png", 2)])
    found = coco.records(tmp_path)
    assert [r.mask is None for r in found.records] == [True, False]
    assert drawn(tmp_path, "2") == [[0] * 5] * 4
    assert kinds(tmp_path) == {"no-annotation": 1}


@pytest.mark.parametrize(
    ("file", "picture", "part"),
    [
        ("annotations/instances_val2017.json", "val2017/a.png", "val"),
        ("annotations/instances_default.json", "images/a.png", "train"),
        ("annotations/test.json", "images/test/a.png", "test"),
        ("valid/_annotations.coco.json", "valid/a.png", "val"),
        ("train/labels.json", "train/data/a.png", "train"),
        ("_annotations.coco.json", "a.png", "train"),
        ("result.json", "images/a.png", "train"),
    ],
)
def test_images_and_parts_as_the_exporters_lay_them_out(tmp_path: Path, file: str, picture: str, part: str) -> None:
    write_set(tmp_path, [annotation([BOX])], [image("a.png")], name=file)
    (tmp_path / "images/a.png").unlink()
    touch(tmp_path, picture)
    assert coco.can_read(tmp_path)
    assert coco.records(tmp_path).records == [Record(picture, Shapes("coco", file, "1"), part)]


def test_names_with_folders_and_backslashes_are_found(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])], [image("images\\sub\\a.png")])
    touch(tmp_path, "images/sub/a.png")
    assert [r.image for r in coco.records(tmp_path).records] == ["images/sub/a.png"]


def test_parts_share_their_classes_and_held_out_images_stay_held_out(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])], [image("a.png", 1), image("b.png", 2)], [FISH])
    write_set(tmp_path, [annotation([BOX], 8)], [image("b.png", 1)], [CRAB], name="annotations/instances_val.json")
    found = coco.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "fish", "crab"]
    assert {r.image: r.part for r in found.records} == {"images/a.png": "train", "images/b.png": "val"}
    assert kinds(tmp_path)["duplicate-image"] == 1
    assert drawn(tmp_path, name="annotations/instances_val.json")[1] == [0, 2, 2, 2, 0]


def test_files_that_disagree_about_a_category_are_refused(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    write_set(tmp_path, [], [image("b.png")], [{"id": 3, "name": "bird"}], name="annotations/instances_val.json")
    with pytest.raises(LayoutError, match=r"Category 3 is 'fish' .* 'bird' in instances_val\.json"):
        coco.records(tmp_path)


def test_roboflows_project_category_is_no_class_but_another_unused_one_is(tmp_path: Path) -> None:
    project = {"id": 0, "name": "reef", "supercategory": "none"}
    write_set(tmp_path, [annotation([BOX])], categories=[project, {**FISH, "supercategory": "reef"}])
    found = coco.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "fish"]
    write_set(tmp_path, [annotation([BOX])], categories=[{**project, "supercategory": "reef"}, FISH])
    found = coco.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "reef", "fish"]


def test_a_category_called_background_is_class_0(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX], 5)], categories=[{"id": 1, "name": "background"}, {"id": 5, "name": "fish"}])
    found = coco.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "fish"]
    assert drawn(tmp_path)[1] == [0, 1, 1, 1, 0]


def test_cocos_own_captions_and_key_points_are_left_alone(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    for other in ("captions_train.json", "person_keypoints_train.json"):
        (tmp_path / "annotations" / other).write_text('{"images": [], "annotations": [], "categories": [1]}')
    assert len(coco.records(tmp_path).records) == 1


def test_unlisted_images_beside_listed_ones_are_unlabelled_but_other_folders_are_not_searched(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    touch(tmp_path, "images/z.png", "unlabeled2017/u.png", "masks/a.png")
    found = coco.records(tmp_path)
    assert [(r.image, r.mask is None) for r in found.records] == [
        ("images/a.png", False),
        ("images/z.png", True),
        ("unlabeled2017/u.png", True),
    ]
    assert kinds(tmp_path) == {"unlisted-image": 2}


@pytest.mark.parametrize(
    "name", ["../secret.png", "/etc/passwd", "C:\\a.png", "images/../../a.png", "nul.png", "a\0.png"]
)
def test_names_that_lead_out_are_reported_and_skipped(tmp_path: Path, name: str) -> None:
    write_set(tmp_path, [annotation([BOX], image=2)], [image("b.png", 2)])
    write_set(tmp_path, [], [image(name)], name="annotations/instances_val.json")
    found = coco.records(tmp_path)
    assert [r.image for r in found.records] == ["images/b.png"]
    (finding,) = found.findings
    assert (finding.kind, finding.severity, finding.file) == ("unsafe-path", "error", "annotations/instances_val.json")
    assert repr(name) in finding.detail


def test_a_link_that_leads_out_is_reported_and_skipped(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write_set(root, [annotation([BOX])], [image("a.png", 1), image("b.png", 2)])
    (tmp_path / "secret.png").touch()
    (root / "images/b.png").unlink()
    (root / "images/b.png").symlink_to(tmp_path / "secret.png")
    found = coco.records(root)
    assert [r.image for r in found.records] == ["images/a.png"]
    assert {f.kind for f in found.findings} == {"missing-file", "unsafe-path"}


def test_missing_images_are_counted(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])], [image("a.png", 1), image("b.png", 2), image("c.png", 3)])
    (tmp_path / "images/b.png").unlink()
    (tmp_path / "images/c.png").unlink()
    assert kinds(tmp_path) == {"missing-file": 2}


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ([[0, 0, 1, 0]], "three or more points"),
        ([[0, 0, 1, 0, 1]], "an x without a y"),
        ([[0, 0, float("nan"), 0, 1, 1]], "not a finite number"),
        ([["x"]], "neither polygons nor run lengths"),
        ("polygon", "neither polygons nor run lengths"),
        ({"size": [4, 5], "counts": [1, 2]}, "add up to 3"),
        ({"size": [4, 5], "counts": [30, -10]}, "shortest -10"),
        ({"size": [4, 5], "counts": "~~~"}, "none of theirs"),
        ({"size": [4, 5]}, "neither polygons nor run lengths"),
        ({"size": [4, 5], "counts": {"a": 1}}, "neither polygons nor run lengths"),
        ({"size": [5, 4], "counts": [20]}, r"annotated at 4x5 pixels, but the image has 5x4"),
        ({"size": [10**9, 10**9], "counts": [10**18]}, "annotated at 1000000000x1000000000"),
    ],
)
def test_what_cannot_be_drawn_is_named(tmp_path: Path, shape: object, said: str) -> None:
    write_set(tmp_path, [annotation(shape, number=77)])
    with pytest.raises(MaskError, match=rf"instances_train\.json, annotation 77 of a\.png: .*{said}"):
        drawn(tmp_path)


def test_an_unknown_category_is_named(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX], 99)])
    with pytest.raises(MaskError, match="no category 99"):
        drawn(tmp_path)


def test_another_image_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    with pytest.raises(MaskError, match=r"a\.png: It was annotated at 5x4 pixels, but the image has 9x8"):
        coco.draw(tmp_path, Shapes("coco", "annotations/instances_train.json", "1"), (8, 9))


def test_huge_coordinates_are_cut_off(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([[-1e12, 1, 1e12, 1, 1e12, 3, -1e12, 3]])])
    assert drawn(tmp_path) == [[0] * 5, [1] * 5, [1] * 5, [0] * 5]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    write_set(tmp_path, [annotation([BOX])])
    assert drawn(tmp_path)[1] == [0, 1, 1, 1, 0]
    write_set(tmp_path, [annotation([[0, 0, 1, 0, 1, 1, 0, 1]])])
    assert drawn(tmp_path)[1] == [0] * 5


@pytest.mark.parametrize(
    "text",
    [
        '{"images": [], "annotations": [',
        '{"images": {}, "annotations": [], "categories": []}',
        '{"images": [{"id": 1}], "annotations": [], "categories": []}',
        '{"images": [], "annotations": [{"image_id": 1, "caption": "a fish"}], "categories": []}',
        '{"images": [], "annotations": [], "categories": [{"id": "one", "name": "fish"}]}',
        '{"images": [{"id":1,"file_name":"a"},{"id":1,"file_name":"b"}], "annotations": [], "categories": []}',
        '{"images": [], "annotations": ' + "[" * 100_000,
        '{"images": [], "annotations": [], "categories": []}',
    ],
)
def test_files_that_are_not_coco_after_all_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert coco.can_read(tmp_path)
    with pytest.raises(DataError):
        coco.records(tmp_path)


def test_other_json_is_not_coco(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0}, "images": 3}')
    (tmp_path / "a.json").write_text('{"shapes": [], "imagePath": "a.png"}')
    (tmp_path / "list.json").write_text('["images", "annotations"]')
    assert not coco.can_read(tmp_path)
    assert not coco.can_read(tmp_path / "nowhere")
