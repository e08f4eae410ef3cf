from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ftcseg.data.archives import tree_digest
from ftcseg.data.sets import SETS, find, locate, recognise, sheet_named
from ftcseg.data.sets.cityscapes import LABEL_IDS, TRAIN_IDS
from ftcseg.data.sets.flsmd import VAL_FRAMES
from ftcseg.errors import UsageError
from ftcseg.types import MaskFile, Record

SHARED = Path(os.environ.get("FTCSEG_DATA") or Path(__file__).parents[4] / "shared/data")


def needs(folder: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (SHARED / folder).is_dir(), reason=f"{SHARED / folder} is not there")


def folders(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
    return root


# What the sheets say ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "classes", "foreground"),
    [
        ("flsmd", 12, 11),
        ("fssg", 11, 10),
        ("suim", 8, 7),
        ("acdc-driving", 19, 19),  # no background: every class is foreground
        ("cityscapes", 19, 19),
        ("voc", 21, 20),
        ("voc-lt", 21, 20),
    ],
)
def test_classes_and_foreground(name: str, classes: int, foreground: int) -> None:
    table = SETS[name].classes
    assert (len(table), len(table.foreground)) == (classes, foreground)
    assert len(set(table.names)) == classes


@pytest.mark.parametrize("name", SETS)
def test_each_sheet_is_listed_under_its_own_name_and_its_parts_add_up(name: str) -> None:
    sheet = SETS[name]
    assert sheet.name == name
    assert sheet.train + sheet.val + sheet.test == sheet.frames


@pytest.mark.parametrize("name", SETS)
def test_each_coding_leads_to_every_class(name: str) -> None:
    sheet = SETS[name]
    for coding in (sheet.coding, *(other for _, other in sheet.other_codings)):
        reached = {*coding.values.values(), *coding.colors.values()}
        assert reached == set(range(len(sheet.classes)))
        assert not coding.ignore & coding.values.keys()


@pytest.mark.parametrize("name", SETS)
def test_no_download_goes_unproved(name: str) -> None:
    download = SETS[name].download
    assert download is None or download.checksum or download.tree


@pytest.mark.parametrize("name", SETS)
def test_obtaining_is_one_sentence_with_an_address(name: str) -> None:
    obtain = SETS[name].obtain
    assert "http" in obtain
    assert obtain.endswith(".")
    assert ". " not in obtain


# FLSMD -----------------------------------------------------------------------------------------------------------


def test_flsmd_validates_on_374_frames_and_trains_on_the_other_1494() -> None:
    assert len(VAL_FRAMES) == 374
    assert min(VAL_FRAMES) >= 0
    assert max(VAL_FRAMES) <= 1867
    records = [Record(f"Images/marine-debris-aris3k-{n}.png") for n in range(1868)]
    parts = [record.part for record in SETS["flsmd"].assigned(records)]
    assert (parts.count("val"), parts.count("train")) == (374, 1494)


def test_flsmd_frame_1018_validates_and_keeps_its_mask() -> None:
    mask = MaskFile("Masks/marine-debris-aris3k-1018.png")
    [record] = SETS["flsmd"].assigned([Record("Images/marine-debris-aris3k-1018.png", mask)])
    assert record == Record("Images/marine-debris-aris3k-1018.png", mask, "val")


def test_flsmd_class_order() -> None:
    names = SETS["flsmd"].classes.names
    assert (names[0], names[8], names[11]) == ("background", "standing-bottle", "wall")


@pytest.mark.real_data
@needs("flsmd")
def test_flsmd_as_it_lies_here_is_the_one_we_know() -> None:
    sheet = SETS["flsmd"]
    assert sheet.download is not None
    root = locate("flsmd", SHARED)
    assert tree_digest(root, sheet.download.tree_of) == sheet.download.tree
    listed = {int(n) for n in (root / "val_ids.txt").read_text().split()}
    assert listed == VAL_FRAMES
    assert sheet.looks_like(p.name for p in (root / "Images").iterdir())


# SUIM ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("color", "class_id", "name"),
    [
        ((0, 0, 0), 0, "waterbody"),
        ((0, 0, 255), 1, "human-divers"),
        ((0, 255, 0), 2, "aquatic-plants"),
        ((0, 255, 255), 3, "wrecks"),
        ((255, 0, 0), 4, "robots"),
        ((255, 0, 255), 5, "reefs-invertebrates"),
        ((255, 255, 0), 6, "fish-vertebrates"),
        ((255, 255, 255), 7, "sea-floor-rocks"),
    ],
)
def test_suim_id_is_4_red_2_green_1_blue(color: tuple[int, int, int], class_id: int, name: str) -> None:
    sheet = SETS["suim"]
    assert sheet.coding.kind == "bits"
    assert sheet.coding.colors[color] == class_id
    assert sheet.classes[class_id].name == name
    assert sheet.classes[class_id].colors == (color,)


def test_suim_water_is_background() -> None:
    assert SETS["suim"].classes.foreground == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("image", "part"),
    [
        ("train_val/images/d_r_1_.jpg", "train"),
        ("TEST/images/d_r_47_.jpg", "test"),
        ("test/images/d_r_47_.jpg", "test"),
        ("images/test.jpg", "train"),  # a file called test is in no folder called test
    ],
)
def test_suim_parts_are_its_folders(image: str, part: str) -> None:
    [record] = SETS["suim"].assigned([Record(image)])
    assert record.part == part


def test_suim_knows_the_rows_of_six_masks() -> None:
    rows = SETS["suim"].mask_rows
    assert sorted(rows.values()) == [0, 0, 27, 27, 27, 27]
    assert rows["w_r_1_"] == 27
    assert rows["f_r_829_"] == 0


@pytest.mark.real_data
@needs("suim_sample")
def test_suim_sample_is_recognised() -> None:
    root = locate("suim", SHARED / "suim_sample")
    images, masks = (root / "test/images").iterdir(), (root / "test/masks").glob("*.bmp")
    assert recognise([p.name for p in images], [p.name for p in masks]) is SETS["suim"]


@pytest.mark.real_data
@needs("suim_sample")
@pytest.mark.parametrize(("folder", "class_id"), [("HD", 1), ("WR", 3), ("RO", 4), ("RI", 5), ("FV", 6)])
def test_suim_ids_agree_with_the_masks_per_class_its_authors_ship(folder: str, class_id: int) -> None:
    masks = SHARED / "suim_sample/test/masks"
    [color] = SETS["suim"].classes[class_id].colors
    for path in masks.glob("*.bmp"):
        in_color_mask = ((np.asarray(Image.open(path)) >= 128) == (np.array(color) >= 128)).all(axis=-1)
        in_class_mask = np.asarray(Image.open(masks / folder / path.name).convert("L")) >= 128
        assert (in_color_mask == in_class_mask).all()


# Driving and VOC -------------------------------------------------------------------------------------------------


def test_cityscapes_spells_its_masks_in_two_ways() -> None:
    sheet = SETS["cityscapes"]
    assert sheet.coding_for("gtFine/val/a/a_000000_000000_gtFine_labelIds.png") is LABEL_IDS
    assert sheet.coding_for("gtFine/val/a/a_000000_000000_gtFine_labelTrainIds.png") is TRAIN_IDS


def test_label_ids_become_training_ids() -> None:
    # road 7 -> 0, bicycle 33 -> 18, caravan 29 is not evaluated; every id from 0 to 33 is accounted for
    assert (LABEL_IDS.values[7], LABEL_IDS.values[33]) == (0, 18)
    assert 29 in LABEL_IDS.ignore
    assert {*LABEL_IDS.values, *LABEL_IDS.ignore} == {*range(34), 255}


def test_acdc_and_cityscapes_share_their_classes() -> None:
    assert SETS["acdc-driving"].classes == SETS["cityscapes"].classes
    assert SETS["acdc-driving"].coding_for("x_gt_labelTrainIds.png") is TRAIN_IDS


@pytest.mark.parametrize(
    ("class_id", "color"),
    # 15 = 0b01111: red takes bits 0 and 3 (128 + 64), green bit 1 (128), blue bit 2 (128)
    [(0, (0, 0, 0)), (1, (128, 0, 0)), (15, (192, 128, 128)), (20, (0, 64, 128))],
)
def test_voc_palette(class_id: int, color: tuple[int, int, int]) -> None:
    assert SETS["voc"].classes[class_id].colors == (color,)


def test_voc_lt_is_voc_with_the_papers_tail() -> None:
    tail = SETS["voc-lt"].long_tail
    assert tail is not None
    assert (tail.labeled, tail.unlabeled, tail.ratio) == (155, 5507, 20)
    assert SETS["voc-lt"].folders == SETS["voc"].folders


# Which set is this? ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "mask", "name"),
    [
        ("Images/marine-debris-aris3k-7.png", "Masks/marine-debris-aris3k-7.png", "flsmd"),
        ("test/images/f_r_1965_.jpg", "test/masks/f_r_1965_.bmp", "suim"),
        ("JPEGImages/2007_000032.jpg", "SegmentationClass/2007_000032.png", "voc"),
        (
            "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png",
            "gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png",
            "cityscapes",
        ),
        (
            "rgb_anon/fog/train/GOPR0475/GOPR0475_frame_000041_rgb_anon.png",
            "gt/fog/train/GOPR0475/GOPR0475_frame_000041_gt_labelTrainIds.png",
            "acdc-driving",
        ),
    ],
)
def test_sets_are_recognised_by_their_file_names(image: str, mask: str, name: str) -> None:
    assert recognise([image], [mask]) is SETS[name]
    assert recognise([image]) is SETS[name]


@pytest.mark.parametrize(
    "images",
    [
        [],
        ["a.png", "b.png"],
        ["marine-debris-aris3k-7.png", "mine.png"],  # one stranger and it is a set of one's own
        ["marine-debris-aris3k-7.jpg"],
    ],
)
def test_anything_else_is_somebodys_own(images: list[str]) -> None:
    assert recognise(images) is None


def test_suim_with_converted_masks_is_no_longer_spelt_like_suim() -> None:
    assert recognise(["d_r_47_.jpg"], ["d_r_47_.png"]) is None


# Where is it? ----------------------------------------------------------------------------------------------------


def test_a_set_is_found_below_the_root(tmp_path: Path) -> None:
    folders(tmp_path, "FLSMD/Images", "VOCdevkit/VOC2012/ImageSets/Segmentation")
    assert locate("flsmd", tmp_path).samefile(tmp_path / "FLSMD")  # found as «flsmd» where a disk ignores case
    assert locate("voc", tmp_path) == tmp_path / "VOCdevkit/VOC2012"
    assert locate("voc-lt", tmp_path) == tmp_path / "VOCdevkit/VOC2012"


def test_the_root_may_be_the_set_itself(tmp_path: Path) -> None:
    folders(tmp_path, "rgb_anon", "fssg")
    assert locate("acdc-driving", tmp_path) == tmp_path
    assert locate("fssg", tmp_path / "fssg") == tmp_path / "fssg"


def test_the_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path, "flsmd/Images", "other")
    monkeypatch.setenv("FTCSEG_DATA", str(tmp_path))
    assert locate("flsmd") == tmp_path / "flsmd"
    with pytest.raises(UsageError, match="other"):
        locate("flsmd", tmp_path / "other")  # what is said in the call counts


def test_a_cardiac_acdc_is_not_taken_for_the_driving_one(tmp_path: Path) -> None:
    folders(tmp_path, "ACDC/training/patient001")
    assert find(SETS["acdc-driving"], tmp_path) is None


def test_an_absent_public_set_says_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        locate("flsmd", tmp_path)
    said = str(error.value)
    assert str(tmp_path) in said
    assert "ftcseg datasets get flsmd" in said
    assert SETS["flsmd"].obtain in said


def test_an_absent_closed_set_offers_no_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="To get it: Register") as error:
        locate("cityscapes", tmp_path)
    assert "datasets get" not in str(error.value)


def test_without_a_root_it_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FTCSEG_DATA", raising=False)
    with pytest.raises(UsageError, match="--root FOLDER, or set FTCSEG_DATA"):
        locate("suim")


def test_a_misspelt_name_gets_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match="Did you mean flsmd"):
        sheet_named("flmsd")
