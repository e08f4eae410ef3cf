from __future__ import annotations

from pathlib import Path

import pytest
from picture_trees import finding, parts, tree, write

from ftcseg.data.formats import class_folders
from ftcseg.errors import LayoutError
from ftcseg.types import ClassFiles, Found


def pictures(found: Found) -> dict[str, tuple[tuple[int, str], ...] | None]:
    return {r.image: r.mask.paths if isinstance(r.mask, ClassFiles) else None for r in found.records}


def test_each_class_folder_is_a_class_after_background(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "images/y.jpg", "images/z.jpg")
    tree(tmp_path, "masks/wreck/x.png", "masks/diver/x.png", "masks/wreck/y_mask.png")
    assert class_folders.can_read(tmp_path)
    found = class_folders.records(tmp_path)
    assert found.layout == "class-folders"
    assert found.classes is not None
    assert found.classes.names == ["background", "diver", "wreck"]
    assert found.classes.foreground == [1, 2]
    assert pictures(found) == {
        "images/x.jpg": ((1, "masks/diver/x.png"), (2, "masks/wreck/x.png")),
        "images/y.jpg": ((2, "masks/wreck/y_mask.png"),),
        "images/z.jpg": None,
    }
    assert found.coding is not None
    assert (found.coding.kind, dict(found.coding.values)) == ("drawn", {0: 0, 1: 1, 2: 2})


def test_a_list_of_names_gives_the_order(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "masks/wreck/x.png", "masks/diver/x.png")
    write(tmp_path, "classes.txt", "wreck", "background", "diver", "eel")
    found = class_folders.records(tmp_path)
    assert found.classes is not None
    assert found.classes.names == ["background", "wreck", "diver", "eel"]
    assert pictures(found)["images/x.jpg"] == ((1, "masks/wreck/x.png"), (2, "masks/diver/x.png"))


def test_a_folder_the_list_does_not_know_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "masks/wreck/x.png")
    write(tmp_path, "classes.txt", "diver")
    with pytest.raises(LayoutError, match="'wreck'"):
        class_folders.records(tmp_path)


def test_a_folder_of_background_is_painted_as_such(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "masks/Background/x.png", "masks/algae/x.png")
    found = class_folders.records(tmp_path)
    assert pictures(found)["images/x.jpg"] == ((0, "masks/Background/x.png"), (1, "masks/algae/x.png"))


def test_parts_lie_above_or_below(tmp_path: Path) -> None:
    tree(tmp_path, "images/val/x.jpg", "masks/val/eel/x.png", "test/images/y.jpg", "test/masks/eel/y.png")
    assert class_folders.can_read(tmp_path)
    found = class_folders.records(tmp_path)
    assert parts(found) == {"images/val/x.jpg": "val", "test/images/y.jpg": "test"}
    assert pictures(found)["images/val/x.jpg"] == ((1, "masks/val/eel/x.png"),)


@pytest.mark.parametrize(
    "names",
    [
        ("images/x.jpg", "masks/x.png", "masks/RO/x.png"),  # combined masks win
        ("images/seq/x.jpg", "masks/seq/x.png"),  # the same sub-folder on both sides
        ("images/train/x.jpg", "masks/train/x.png"),  # a part
        ("images/x.jpg", "masks/RO/other.png"),  # nothing in common
        ("images/x.jpg",),
        ("x.jpg",),
    ],
)
def test_other_folders_are_left_to_images_masks(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert not class_folders.can_read(tree(tmp_path, *names))


def test_pictures_without_an_image_are_counted(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "masks/eel/x.png", "masks/eel/y.png", "masks/rope/y.png")
    found = class_folders.records(tmp_path)
    assert finding(found, "mask-without-image").count == 2


def test_unlabelled_images_stay_so(tmp_path: Path) -> None:
    tree(tmp_path, "images/x.jpg", "masks/eel/x.png", "unlabeled/images/y.jpg", "unlabeled/masks/eel/y.png")
    found = class_folders.records(tmp_path)
    assert pictures(found)["unlabeled/images/y.jpg"] is None
    assert finding(found, "oracle-masks").file == "unlabeled/masks/eel/y.png"


def test_the_longest_names_do_no_harm(tmp_path: Path) -> None:
    name = "n" * 251
    tree(tmp_path, f"images/{name}.jpg", f"masks/eel/{name}.png")
    assert class_folders.can_read(tmp_path)
    assert pictures(class_folders.records(tmp_path)) == {f"images/{name}.jpg": ((1, f"masks/eel/{name}.png"),)}
