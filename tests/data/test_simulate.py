from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ftcseg.data.simulate import (
    LENSES,
    MOST_OBJECTS,
    SimParams,
    class_table,
    classes_in,
    fan_of,
    part_of,
    simulate_frame,
)
from ftcseg.errors import UsageError
from ftcseg.types import Part

ALL_CLASSES = SimParams(classes=12, imbalance=3.0)
TIRE = 2
TIRES = SimParams(classes=3, imbalance=1.0, noise=0.0)


def shown_in(part: Part, frames: int, params: SimParams) -> set[int]:
    return {c for index in range(frames) if part_of(index) == part for c in classes_in(index, params)}


def object_contrast(noise: float) -> float:
    """Mean grey of objects less that of everything else in their fan, over some frames."""
    gaps = []
    for index in range(14):
        image, mask = simulate_frame(5, index, SimParams(classes=12, imbalance=1.0, noise=noise))
        if mask.any():
            gaps.append(image[mask > 0].mean() - image[(mask == 0) & (image > 0)].mean())
    return float(np.mean(gaps))


# ── One frame ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_frame_is_a_grey_picture_and_a_mask_of_the_asked_size() -> None:
    for plane in simulate_frame(0, 0, SimParams(height=120, width=90)):
        assert plane.shape == (120, 90)
        assert plane.dtype == np.uint8


def test_the_same_seed_index_and_params_give_the_same_bytes_in_any_order() -> None:
    forwards = [simulate_frame(3, index, ALL_CLASSES) for index in range(6)]
    backwards = [simulate_frame(3, index, ALL_CLASSES) for index in reversed(range(6))][::-1]
    for one, other in zip(forwards, backwards, strict=True):
        assert one[0].tobytes() == other[0].tobytes()
        assert one[1].tobytes() == other[1].tobytes()


def test_seed_and_index_both_change_the_picture() -> None:
    pictures = {simulate_frame(seed, index, ALL_CLASSES)[0].tobytes() for seed in (0, 1) for index in (0, 1)}
    assert len(pictures) == 4


def test_all_seeds_show_the_scheduled_classes_and_nothing_else() -> None:
    for seed in (0, 1):
        for index in range(20):
            _, mask = simulate_frame(seed, index, ALL_CLASSES)
            assert set(np.unique(mask)) - {0} == set(classes_in(index, ALL_CLASSES))


@pytest.mark.parametrize(("height", "width"), [(240, 160), (96, 64), (100, 300)])
def test_every_object_keeps_visible_pixels_and_background_nine_tenths(height: int, width: int) -> None:
    params = SimParams(classes=12, imbalance=1.0, height=height, width=width)
    dots_per_pixel = max(480 / height, 320 / width)
    for index in range(25):
        _, mask = simulate_frame(1, index, params)
        counts = np.bincount(mask.ravel(), minlength=12)
        assert counts[0] >= 0.9 * mask.size
        # The smallest can is 22 dots wide and 12 deep; half of it, 130 square dots, stays in the fan.
        assert all(counts[class_id] >= 130 / dots_per_pixel**2 for class_id in classes_in(index, params))


def test_nothing_is_drawn_or_labelled_outside_the_fan() -> None:
    outsides = [~fan_of(lens, 240, 160).inside for lens in LENSES]
    for index in range(20):
        image, mask = simulate_frame(2, index, ALL_CLASSES)
        assert any(not image[outside].any() and not mask[outside].any() for outside in outsides)


# ── How it looks ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tires_are_bright_towards_the_sonar_and_cast_a_shadow_away_from_it() -> None:
    fronts, beds, shadows = [], [], []
    for index in range(50):
        image, mask = simulate_frame(4, index, TIRES)
        rows, columns = np.nonzero(mask == TIRE)
        if classes_in(index, TIRES) != (TIRE,) or np.ptp(columns) > 40:  # no wall behind it, no second tire
            continue
        middle = slice(int(columns.mean()) - 3, int(columns.mean()) + 4)
        top, bottom = rows.min(), rows.max()  # the sonar is below
        fronts.append(image[bottom - 3 : bottom + 1, middle].mean())
        beds.append(image[bottom + 6 : bottom + 12, middle].mean())
        shadows.append(image[top - 8 : top - 2, middle].mean())
    assert len(beds) >= 8
    assert np.mean(fronts) > np.mean(beds) + 50
    assert np.mean(shadows) < np.mean(beds) - 10


def test_noise_lowers_the_contrast_of_objects_and_raises_speckle() -> None:
    assert object_contrast(1.0) < 0.6 * object_contrast(0.0)
    roughness = {}
    for noise in (0.0, 0.5, 1.0):
        image, _ = simulate_frame(0, 4, SimParams(noise=noise))
        patch = image[100:140, 60:100].astype(float)  # in the middle of the fan
        roughness[noise] = np.abs(np.diff(patch, axis=0)).mean()
    assert roughness[0.0] < roughness[0.5] < roughness[1.0]


# ── The schedule ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fifth_of_any_stretch_of_frames_is_for_testing() -> None:
    assert [part_of(index) for index in range(5)] == ["train"] * 4 + ["test"]
    assert Counter(part_of(index) for index in range(100)) == {"train": 80, "test": 20}


@pytest.mark.parametrize("imbalance", [1.0, 20.0, 1000.0])
@pytest.mark.parametrize("classes", [2, 3, 8, 12])
def test_twelve_frames_train_every_class_and_sixty_test_it(classes: int, imbalance: float) -> None:
    params = SimParams(classes=classes, imbalance=imbalance)
    objects = set(range(1, classes))
    assert shown_in("train", 12, params) == objects
    assert shown_in("test", 60, params) == objects


@pytest.mark.parametrize(("classes", "imbalance"), [(8, 5.0), (8, 20.0), (12, 20.0)])
def test_presence_falls_from_class_to_class_by_the_asked_ratio(classes: int, imbalance: float) -> None:
    params = SimParams(classes=classes, imbalance=imbalance)
    frames = Counter(class_id for index in range(600) for class_id in classes_in(index, params))
    counts = [frames[class_id] for class_id in range(1, classes)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] / counts[-1] == pytest.approx(imbalance, rel=0.2)


def test_frames_show_from_no_object_class_to_three() -> None:
    sizes = Counter(len(classes_in(index, SimParams())) for index in range(300))
    assert set(sizes) == {0, 1, 2, MOST_OBJECTS}
    assert sizes[0] >= 30


# ── Parameters ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_table_names_background_first_and_walls_as_the_most_frequent() -> None:
    table = class_table(SimParams(classes=4))
    assert table.names == ["background", "wall", "tire", "bottle"]
    assert table.foreground == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("classes", 1),
        ("classes", 13),
        ("noise", -0.1),
        ("noise", 1.5),
        ("noise", float("nan")),
        ("imbalance", 0.5),
        ("height", 10),
        ("width", 100_000),
    ],
)
def test_a_parameter_out_of_range_is_refused_with_its_range(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"{name} must lie between \d+ and \d+, not at {value}"):
        SimParams(**{name: value})
