"""Windows, looks and boxes by hand, and a stream of batches that depends on nothing but its number."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ftcseg.data.dataset import Dataset
from ftcseg.data.describe import Description
from ftcseg.data.images import planar
from ftcseg.errors import DataError, ImageError
from ftcseg.teaching.pseudo import mix_pseudo
from ftcseg.types import IGNORE, ClassTable, MaskCoding, MaskFile, PseudoLabels, Record, SemiBatch, ViewPlan
from ftcseg.views.geometry import (
    GeometryParams,
    Window,
    draw_window,
    fit_channels,
    lay_image,
    lay_into,
    lay_labels,
    shown_area,
    whole,
)
from ftcseg.views.loader import BatchMaker, Order, Stream, ViewParams, loader_rate
from ftcseg.views.mix import CutMixParams, draw_box, paste_partner
from ftcseg.views.objects import Objects
from ftcseg.views.photometric import Look, PhotometricParams, apply_looks, draw_look
from picture_sets import picture, save

SEEDS = st.integers(0, 2**32 - 1)
PLAIN = GeometryParams(crop=(4, 6), scale=(1.0, 1.0), flip=0.0)
STILL = PhotometricParams(jitter=0.0, grey=0.0, blur=0.0)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# Windows


def test_an_image_of_the_crops_size_is_shown_whole() -> None:
    assert draw_window((4, 6), PLAIN, rng()) == Window(0, 0, 4, 6, (4, 6), flip=False)


def test_the_short_side_is_reached_before_the_crop() -> None:
    params = replace(PLAIN, crop=(20, 40), short_side=20)
    assert draw_window((40, 80), params, rng()) == Window(0, 0, 40, 80, (20, 40), flip=False)


def test_a_crop_of_an_enlarged_image_shows_fewer_pixels() -> None:
    window = draw_window((10, 10), replace(PLAIN, crop=(10, 10), scale=(2.0, 2.0)), rng())
    assert window.size == (10, 10)
    assert window.bottom - window.top == pytest.approx(5)  # at twice the size, ten rows are five of the image
    assert window.right - window.left == pytest.approx(5)


def test_a_shrunk_image_leaves_padding() -> None:
    window = draw_window((10, 20), replace(PLAIN, crop=(10, 20), scale=(0.5, 0.5)), rng())
    assert window == Window(0, 0, 10, 20, (5, 10), flip=False)
    area = shown_area(window, (10, 20))
    assert area[:5, :10].all()
    assert int(area.sum()) == 50


@pytest.mark.parametrize(("chance", "mirrored"), [(0.0, False), (1.0, True)])
def test_the_coin_decides_about_the_mirror(chance: float, mirrored: bool) -> None:
    assert draw_window((4, 6), replace(PLAIN, flip=chance), rng()).flip is mirrored


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.sampled_from([None, 7, 33]))
def test_a_window_lies_in_its_image_and_on_its_canvas(
    seed: int, height: int, width: int, crop: int, short: int | None
) -> None:
    params = GeometryParams((crop, crop + 3), short, (0.5, 2.0), 0.5)
    window = draw_window((height, width), params, rng(seed))
    assert 0 <= window.top < window.bottom <= height + 1e-9
    assert 0 <= window.left < window.right <= width + 1e-9
    assert 1 <= window.size[0] <= crop
    assert 1 <= window.size[1] <= crop + 3
    laid = lay_image(np.full((height, width, 1), 200, np.uint8), window, params.crop)
    rows, columns = window.size
    assert laid[0, :rows, :columns].numpy() == pytest.approx(200 / 255)  # a flat image stays flat, to its borders
    assert int((laid > 0).sum()) == rows * columns


# Laying images and labels


@pytest.mark.parametrize(("dtype", "white"), [(np.uint8, 255), (np.uint16, 65535), (np.float32, 1)])
def test_the_whole_image_at_its_own_size_is_itself(dtype: type, white: int) -> None:
    image = (rng().random((4, 6, 2)) * white).astype(dtype)
    laid = lay_image(image, whole(4, 6, (4, 6)), (4, 6))
    assert laid.dtype == torch.float32
    assert np.array_equal(laid.numpy(), (image.astype(np.float32) / white).transpose(2, 0, 1))


def test_the_mirror_turns_what_is_shown_and_leaves_the_padding_at_the_right() -> None:
    image = np.array([[[51], [102], [255]]], np.uint8)
    laid = lay_image(image, Window(0, 0, 1, 3, (1, 3), flip=True), (2, 5))
    assert laid.numpy().tolist() == [[pytest.approx([1.0, 0.4, 0.2, 0, 0]), [0, 0, 0, 0, 0]]]
    labels = np.array([[5, 6, 7]], np.int16)
    turned = lay_labels(labels, Window(0, 0, 1, 3, (1, 3), flip=True), (2, 5))
    assert turned.tolist() == [[7, 6, 5, IGNORE, IGNORE], [IGNORE] * 5]


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.sampled_from([np.uint8, np.uint16]))
def test_a_view_is_cut_as_if_the_whole_image_had_been_converted_first(
    seed: int, height: int, width: int, crop: int, dtype: type
) -> None:
    white = np.iinfo(dtype).max
    image = rng(seed).integers(0, white, (height, width, 3), dtype=dtype, endpoint=True)
    window = draw_window((height, width), GeometryParams((crop, crop + 5), None, (0.5, 2.0), 0.5), rng(seed))
    box = (window.left, window.top, window.right, window.bottom)
    planes = []
    for channel in range(3):
        plane = np.ascontiguousarray(image[:, :, channel], np.uint8 if dtype == np.uint8 else np.float32)
        whole_plane = Image.fromarray(plane).resize(window.size[::-1], Image.Resampling.BILINEAR, box=box)
        planes.append(np.asarray(whole_plane, np.float32) / np.float32(white))
    expected = np.stack(planes)[:, :, ::-1] if window.flip else np.stack(planes)
    rows, columns = window.size
    for source in (image, planar(image)):  # interleaved as decoders give it, and plane by plane
        laid = lay_image(source, window, (crop, crop + 5)).numpy()
        assert np.array_equal(laid[:, :rows, :columns], expected)


def test_grey_is_laid_once_and_stands_in_every_channel() -> None:
    image = rng().integers(0, 255, (9, 7, 1), dtype=np.uint8)
    window = draw_window((9, 7), GeometryParams((6, 6), None, (0.5, 2.0), 0.5), rng())
    out = np.zeros((3, 6, 6), np.float32)
    lay_into(out, image, window)
    assert np.array_equal(out, lay_image(fit_channels(image, 3, "grey"), window, (6, 6)).numpy())


def test_labels_at_half_size_are_those_under_the_centres() -> None:
    labels = np.arange(6, dtype=np.int16)[None].repeat(2, 0)
    # Three pixels over six: their centres lie at 1, 3 and 5.
    assert lay_labels(labels, whole(2, 6, (1, 3)), (1, 3)).tolist() == [[1, 3, 5]]


def test_labels_at_double_size_are_repeated() -> None:
    labels = np.array([[3, 9]], np.int16)
    assert lay_labels(labels, whole(1, 2, (2, 4)), (2, 4)).tolist() == [[3, 3, 9, 9]] * 2


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(20, 40))
def test_an_edge_of_labels_is_an_edge_of_brightness(seed: int, edge: int) -> None:
    labels = np.zeros((60, 60), np.int16)
    labels[:, edge:] = 1
    image = (labels * 255).astype(np.uint8)[:, :, None]
    params = GeometryParams((48, 48), None, (0.5, 2.0), 0.5)
    window = draw_window((60, 60), params, rng(seed))
    bright, laid = lay_image(image, window, params.crop)[0], lay_labels(labels, window, params.crop)
    clear = (bright - 0.5).abs() > 0.02  # not exactly on the edge
    shown = shown_area(window, params.crop)
    assert torch.equal((bright > 0.5)[clear & shown].long(), laid[clear & shown])
    assert int((~clear & shown).sum()) <= window.size[0]  # one column at most is on the edge


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 12), st.integers(1, 12))
def test_no_label_is_invented(seed: int, height: int, width: int) -> None:
    labels = rng(seed).integers(-1, 300, (height, width)).astype(np.int16)
    params = GeometryParams((9, 7), None, (0.5, 2.0), 0.5)
    window = draw_window((height, width), params, rng(seed))
    laid, shown = lay_labels(labels, window, params.crop), shown_area(window, params.crop)
    assert set(laid[shown].tolist()) <= set(labels.ravel().tolist())
    assert bool((laid[~shown] == IGNORE).all())


def test_channels_are_fitted_or_refused_by_name() -> None:
    grey, color = np.full((2, 2, 1), 7, np.uint8), rng().integers(0, 9, (2, 2, 4)).astype(np.uint8)
    assert fit_channels(grey, 3, "a.png").tolist() == np.full((2, 2, 3), 7).tolist()
    assert np.array_equal(fit_channels(color, 3, "a.png"), color[:, :, :3])  # without its transparency
    assert np.array_equal(fit_channels(np.concatenate([grey] * 3, 2), 1, "a.png"), grey)
    with pytest.raises(ImageError, match=r"a\.png has 4 channels; the model reads 1"):
        fit_channels(color, 1, "a.png")
    with pytest.raises(ImageError, match=r"a\.png holds NaN"):
        fit_channels(np.full((1, 1, 1), np.nan, np.float32), 1, "a.png")


# Looks


def test_a_look_that_changes_nothing_changes_nothing() -> None:
    images = torch.rand(2, 3, 5, 7)
    assert torch.equal(apply_looks(images, [Look(), Look()]), images)


def test_brightness_multiplies_and_stops_at_white() -> None:
    images = torch.tensor([0.4, 0.8]).view(1, 1, 1, 2)
    assert apply_looks(images, [Look(brightness=1.5)]).flatten().tolist() == pytest.approx([0.6, 1.0])


def test_contrast_draws_towards_the_images_own_mean() -> None:
    images = torch.tensor([[0.2, 0.6], [0.0, 1.0]]).view(2, 1, 1, 2)
    out = apply_looks(images, [Look(contrast=0.5), Look()])
    assert out.flatten().tolist() == pytest.approx([0.3, 0.5, 0.0, 1.0])  # the mean of the first is 0.4


def test_without_saturation_red_is_as_grey_as_the_norm_says() -> None:
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    assert apply_looks(red, [Look(saturation=0.0)]).flatten().tolist() == pytest.approx([0.299] * 3)


def test_a_third_of_the_circle_turns_red_to_green() -> None:
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    assert apply_looks(red, [Look(hue=1 / 3)]).flatten().tolist() == pytest.approx([0, 1, 0], abs=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_color_is_nothing_to_a_grey_image(channels: int) -> None:
    grey = torch.rand(1, 1, 4, 4).repeat(1, channels, 1, 1)
    torch.testing.assert_close(apply_looks(grey, [Look(saturation=0.3, hue=0.2)]), grey, atol=1e-6, rtol=0)


def test_each_image_gets_its_own_look() -> None:
    images = torch.rand(3, 3, 6, 6)
    looks = [Look(brightness=0.7), Look(), Look(sigma=1.0)]
    together = apply_looks(images, looks)
    alone = torch.cat([apply_looks(images[i : i + 1], [look]) for i, look in enumerate(looks)])
    torch.testing.assert_close(together, alone)


def test_blur_spreads_a_point_and_loses_nothing_of_it() -> None:
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1
    blurred = apply_looks(point, [Look(sigma=1.5)])
    assert float(blurred.sum()) == pytest.approx(1, abs=1e-5)
    assert 0.05 < float(blurred[0, 0, 10, 10]) < 0.09  # 1 / (2 pi 1.5²) = 0.0707
    assert float(blurred[0, 0, 10, 11]) == pytest.approx(float(blurred[0, 0, 11, 10]))


def test_blur_leaves_a_flat_image_flat_even_where_it_reaches_beyond_it() -> None:
    flat = torch.full((1, 3, 3, 4), 0.25)
    torch.testing.assert_close(apply_looks(flat, [Look(sigma=5.0)]), flat)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_look_always_takes_the_same_number_of_draws(seed: int, jitter: float, grey: float, blur: float) -> None:
    first, second = rng(seed), rng(seed)
    draw_look(PhotometricParams(jitter=jitter, grey=grey, blur=blur), first)
    draw_look(PhotometricParams(), second)
    assert first.random() == second.random()


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_looks_stay_in_their_ranges(seed: int) -> None:
    look = draw_look(PhotometricParams(jitter=1.0, blur=1.0, sigma=(0.1, 2.0)), rng(seed))
    assert 0.5 <= look.brightness <= 1.5
    assert 0.5 <= look.contrast <= 1.5
    assert look.saturation == 0 or 0.5 <= look.saturation <= 1.5
    assert -0.25 <= look.hue <= 0.25
    assert 0.1 <= look.sigma <= 2.0
    assert draw_look(STILL, rng(seed)) == Look()


# Boxes


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([(32, 48), (160, 240), (64, 64)]))
def test_a_box_is_a_rectangle_of_the_stated_area_and_aspect(seed: int, shape: tuple[int, int]) -> None:
    height, width = shape
    box = draw_box(height, width, CutMixParams(chance=1.0), rng(seed))
    rows, columns = int(box.any(1).sum()), int(box.any(0).sum())
    assert rows * columns == int(box.sum()) > 0  # a rectangle without holes
    assert rows * columns <= 0.4 * height * width
    assert (rows + 1) * (columns + 1) > 0.02 * height * width  # sides are rounded down
    assert (rows + 1) / columns > 0.3
    assert rows / (columns + 1) < 1 / 0.3


def test_chance_decides_whether_there_is_a_box() -> None:
    assert not draw_box(32, 48, CutMixParams(chance=0.0), rng()).any()
    found = sum(bool(draw_box(32, 48, CutMixParams(), rng(seed)).any()) for seed in range(400))
    assert 160 < found < 240  # half of them: four standard deviations are 40


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_every_pixel_comes_from_the_image_or_from_its_partner(seed: int, batch: int) -> None:
    boxes = torch.from_numpy(rng(seed).random((batch, 4, 5)) < 0.5)
    images = torch.arange(batch * 2 * 20).view(batch, 2, 4, 5)  # no two pixels alike
    mixed = paste_partner(images, boxes)
    for i in range(batch):
        partner = images[batch - 1 - i]
        for channel in range(2):
            assert torch.equal(mixed[i, channel][boxes[i]], partner[channel][boxes[i]])
            assert torch.equal(mixed[i, channel][~boxes[i]], images[i, channel][~boxes[i]])


def test_pseudo_labels_are_cut_like_their_views() -> None:
    boxes = torch.from_numpy(rng().random((3, 4, 5)) < 0.5)
    source = torch.arange(3).view(3, 1, 1).expand(3, 4, 5)
    pseudo = mix_pseudo(PseudoLabels(source, source.float(), source > 0), boxes)
    mixed = paste_partner(source, boxes)
    assert torch.equal(pseudo.labels, mixed)
    assert torch.equal(pseudo.conf, mixed.float())
    assert torch.equal(pseudo.valid, mixed > 0)


def test_a_batch_of_one_is_its_own_partner() -> None:
    image = torch.rand(1, 3, 4, 5)
    assert torch.equal(paste_partner(image, torch.ones(1, 4, 5, dtype=torch.bool)), image)


# Batches

SHAPE = (12, 16)
LABELED, UNLABELED = 3, 7
VIEWS = ViewParams(
    geometry=GeometryParams((8, 10), None, (0.5, 2.0), 0.5),
    labeled_batch=2,
    unlabeled_batch=3,
    mean=(0.5,),
    std=(0.25,),
    in_channels=1,
)
PLAN = ViewPlan(strong=2)


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[Dataset, Dataset]:
    """Three images with masks and seven without."""
    records = []
    for number in range(LABELED + UNLABELED):
        name = f"frame{number}.png"
        save(tmp_path / "images" / name, picture(number, *SHAPE))
        is_labeled = number < LABELED
        if is_labeled:
            save(tmp_path / "masks" / name, picture(number, *SHAPE) % 3)
        records.append(Record(f"images/{name}", MaskFile(f"masks/{name}") if is_labeled else None))
    coding = MaskCoding("ids", values={0: 0, 1: 1, 2: 2})
    found = Description("pictures", tmp_path, "images-masks", ClassTable.named("sea", "can", "rope"), coding)
    return Dataset(found, records[:LABELED]), Dataset(found, records[LABELED:])


def maker_of(
    pictures: tuple[Dataset, Dataset], *, seed: int = 5, plan: ViewPlan = PLAN, **changes: object
) -> BatchMaker:
    return BatchMaker(*pictures, plan, replace(VIEWS, **changes), seed)  # type: ignore[arg-type]


def assert_same(ours: SemiBatch, theirs: SemiBatch) -> None:
    assert ours.ids == theirs.ids
    assert ours.skipped == theirs.skipped
    assert torch.equal(ours.labeled.images, theirs.labeled.images)
    assert torch.equal(ours.labeled.labels, theirs.labeled.labels)
    assert ours.unlabeled is not None
    assert theirs.unlabeled is not None
    for name in ("weak", "valid"):
        assert torch.equal(getattr(ours.unlabeled, name), getattr(theirs.unlabeled, name))
    assert (ours.unlabeled.pasted is None) == (theirs.unlabeled.pasted is None)
    if ours.unlabeled.pasted is not None and theirs.unlabeled.pasted is not None:
        assert torch.equal(ours.unlabeled.pasted, theirs.unlabeled.pasted)
    for name in ("strong", "boxes"):
        pairs = zip(getattr(ours.unlabeled, name), getattr(theirs.unlabeled, name), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def test_an_order_shows_everything_once_a_pass_and_each_pass_anew() -> None:
    order = Order(7, seed=3, salt="x")
    passes = [[order[place] for place in range(start, start + 7)] for start in (0, 7, 14)]
    assert [sorted(each) for each in passes] == [list(range(7))] * 3
    assert passes[0] != passes[1] != passes[2]
    assert [order[place] for place in range(7)] == passes[0]  # also when asked again, out of turn
    assert [Order(7, seed=4, salt="x")[place] for place in range(7)] != passes[0]


def test_a_batch_depends_on_its_number_alone(pictures: tuple[Dataset, Dataset]) -> None:
    forwards, backwards = maker_of(pictures), maker_of(pictures)
    later = {step: backwards[step] for step in reversed(range(5))}
    for step in range(5):
        assert_same(forwards[step], later[step])
    assert not torch.equal(forwards[0].labeled.images, maker_of(pictures, seed=6)[0].labeled.images)


@pytest.mark.parametrize("start", [0, 3])
def test_workers_change_nothing(pictures: tuple[Dataset, Dataset], start: int) -> None:
    before = torch.get_rng_state()
    stream = Stream(maker_of(pictures), workers=2)(start)
    for step, batch in enumerate(islice(stream, 4), start):
        assert_same(batch, maker_of(pictures)[step])
    stream.close()  # type: ignore[attr-defined]
    assert torch.equal(torch.get_rng_state(), before)  # a network's dropout draws from it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_group_leaves_the_workers_at_work(pictures: tuple[Dataset, Dataset], number: int) -> None:
    stream = Stream(maker_of(pictures), workers=2)(0)
    next(stream)
    next(stream)  # of the other one: both are at work
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker in workers:
        assert worker.pid is not None
        os.kill(worker.pid, number)
    for step in range(2, 9):  # more than were made ahead
        assert_same(next(stream), maker_of(pictures)[step])
    stream.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("start", [0, 1, 11])
def test_a_stream_resumes_at_any_step(pictures: tuple[Dataset, Dataset], start: int) -> None:
    whole_stream, resumed = Stream(maker_of(pictures))(0), Stream(maker_of(pictures))(start)
    for _ in range(start):
        next(whole_stream)
    assert_same(next(resumed), next(whole_stream))


def test_two_ranks_share_what_one_process_of_twice_the_batch_sees(pictures: tuple[Dataset, Dataset]) -> None:
    alone = maker_of(pictures, labeled_batch=4, unlabeled_batch=6)
    ranks = [maker_of(pictures).on_rank(rank, 2) for rank in (0, 1)]
    for step in range(3):
        whole_batch, parts = alone[step], [maker[step] for maker in ranks]
        assert whole_batch.unlabeled is not None
        assert parts[0].unlabeled is not None
        assert parts[1].unlabeled is not None
        assert parts[0].labeled.ids + parts[1].labeled.ids == whole_batch.labeled.ids
        assert parts[0].unlabeled.ids + parts[1].unlabeled.ids == whole_batch.unlabeled.ids
        assert torch.equal(torch.cat([p.labeled.labels for p in parts]), whole_batch.labeled.labels)
        weak = torch.cat([parts[0].unlabeled.weak, parts[1].unlabeled.weak])
        assert torch.equal(weak, whole_batch.unlabeled.weak)
    places = [set(maker._places(4, 3)) for maker in ranks]
    assert not places[0] & places[1]
    assert places[0] | places[1] == set(alone._places(4, 6))
    assert alone.epoch_steps == ranks[0].epoch_steps == 1  # seven images, six a step


def test_strong_views_show_the_place_the_weak_view_shows(pictures: tuple[Dataset, Dataset]) -> None:
    batch = maker_of(pictures, photometric=STILL)[0].unlabeled
    assert batch is not None
    assert len(batch.strong) == len(batch.boxes) == 2
    assert all(torch.equal(view, batch.weak) for view in batch.strong)
    changed = maker_of(pictures, photometric=PhotometricParams(jitter=1.0))[0].unlabeled
    assert changed is not None
    assert torch.equal(changed.weak, batch.weak)
    assert not torch.equal(changed.strong[0], changed.strong[1])


# Pasting. The three masks of `pictures` show classes 0, 1 and 2 in every frame; 0 is background.

PASTING = ViewPlan(strong=2, paste=1.0)


def test_a_pasted_object_is_in_every_strong_view_and_in_no_weak_one(pictures: tuple[Dataset, Dataset]) -> None:
    plain, batch = (maker_of(pictures, plan=plan, photometric=STILL)[0].unlabeled for plan in (PLAN, PASTING))
    assert plain is not None
    assert batch is not None
    assert batch.pasted is not None
    assert plain.pasted is None
    where = batch.pasted != IGNORE
    assert torch.equal(batch.weak, plain.weak)
    assert set(batch.pasted.unique().tolist()) <= {IGNORE, 1, 2}
    assert bool(where.flatten(1).any(1).all())  # noise of three classes: hardly a crop is without one of them
    assert not bool((where & ~batch.valid).any())
    for view, before in zip(batch.strong, plain.strong, strict=True):
        changed = (view != before)[:, 0]
        assert not bool((changed & ~where).any())
        assert bool(changed.any())


def test_a_pasted_pixel_is_that_of_the_labelled_frame(pictures: tuple[Dataset, Dataset]) -> None:
    whole_frame = GeometryParams(SHAPE, None, (1.0, 1.0), 0.0)
    maker = maker_of(pictures, plan=PASTING, photometric=STILL, geometry=whole_frame)
    batch = maker[0].unlabeled
    assert batch is not None
    assert batch.pasted is not None
    frames = [(sample.image[:, :, 0].astype(np.float32) / 255 - 0.5) / 0.25 for sample in pictures[0]]
    masks = [sample.labels for sample in pictures[0]]
    for view, pasted in zip(batch.strong[0][:, 0].numpy(), batch.pasted.numpy(), strict=True):
        (class_id,) = set(np.unique(pasted)) - {IGNORE}
        where = pasted == class_id
        sources = [k for k, mask in enumerate(masks) if mask is not None and np.array_equal(mask == class_id, where)]
        assert len(sources) == 1
        assert np.allclose(view[where], frames[sources[0]][where], atol=1e-5)


def test_what_is_pasted_depends_on_the_number_of_the_batch_alone(pictures: tuple[Dataset, Dataset]) -> None:
    plan = ViewPlan(strong=2, paste=0.5)
    forwards, backwards = maker_of(pictures, plan=plan), maker_of(pictures, plan=plan)
    later = {step: backwards[step] for step in reversed(range(4))}
    for step in range(4):
        assert_same(forwards[step], later[step])
    others = [batch.unlabeled for batch in islice(Stream(maker_of(pictures, plan=plan), workers=1)(2), 1)]
    assert others[0] is not None
    assert others[0].pasted is not None
    again = forwards[2].unlabeled
    assert again is not None
    assert again.pasted is not None
    assert torch.equal(others[0].pasted, again.pasted)


def test_chance_decides_how_many_images_get_an_object(pictures: tuple[Dataset, Dataset]) -> None:
    maker = maker_of(pictures, plan=ViewPlan(strong=1, paste=0.3), unlabeled_batch=7)
    found = [batch.pasted for step in range(40) if (batch := maker[step].unlabeled) is not None]
    shares = [(one != IGNORE).flatten(1).any(1).float().mean() for one in found if one is not None]
    assert len(shares) == 40
    assert torch.stack(shares).mean().item() == pytest.approx(0.3, abs=0.08)  # of 280 draws, three errors of 0.027


def test_every_class_is_drawn_as_often_as_any_other_and_images_in_turn(tmp_path: Path) -> None:
    # Five frames: a can on four of them, a rope on one; the sixth class id is on none.
    values = [[1], [1], [1], [1, 2], [0]]
    records = []
    for number, shown in enumerate(values):
        mask = np.zeros((4, 4), np.uint8)
        mask[0, : len(shown)] = shown
        save(tmp_path / "images" / f"{number}.png", picture(number, 4, 4))
        save(tmp_path / "masks" / f"{number}.png", mask)
        records.append(Record(f"images/{number}.png", MaskFile(f"masks/{number}.png")))
    classes = ClassTable.named("sea", "can", "rope", "hook")
    coding = MaskCoding("ids", values={0: 0, 1: 1, 2: 2, 3: 3})
    objects = Objects(Dataset(Description("few", tmp_path, "images-masks", classes, coding), records))
    assert objects.places == {1: [0, 1, 2, 3], 2: [3]}
    drawn = [objects.draw(rng(seed)) for seed in range(400)]
    ropes = [one for one in drawn if one is not None and one.class_id == 2]
    assert 160 <= len(ropes) <= 240  # half of 400, four errors of 10 either way
    assert {one.index for one in ropes} == {3}
    assert {one.index for one in drawn if one is not None and one.class_id == 1} == {0, 1, 2, 3}


def test_labels_without_objects_give_nothing_to_paste(pictures: tuple[Dataset, Dataset]) -> None:
    empty = replace(pictures[0], thin={1: 0.0, 2: 0.0})
    assert Objects(empty).draw(rng()) is None
    batch = maker_of((empty, pictures[1]), plan=PASTING)[0].unlabeled
    assert batch is not None
    assert batch.pasted is not None
    assert bool((batch.pasted == IGNORE).all())


def test_images_are_normalised_and_padding_is_black_before_that(pictures: tuple[Dataset, Dataset]) -> None:
    shrunk = replace(VIEWS.geometry, crop=SHAPE, scale=(0.5, 0.5))
    batch = maker_of(pictures, geometry=shrunk)[0]
    assert batch.unlabeled is not None
    assert bool((batch.unlabeled.weak[:, :, 6:] == -2).all())  # (0 - 0.5) / 0.25
    assert bool((batch.labeled.labels[:, 6:] == IGNORE).all())
    assert int(batch.unlabeled.valid.sum()) == 3 * 6 * 8
    assert batch.labeled.images.min() >= -2
    assert batch.labeled.images.max() <= 2


def test_an_image_that_cannot_be_read_is_replaced_by_the_next_and_named(pictures: tuple[Dataset, Dataset]) -> None:
    whole_maker = maker_of(pictures)
    order = [pictures[1].records[whole_maker.unlabeled_order[place]].image for place in range(8)]  # type: ignore[index]
    (pictures[1].description.root / order[1]).write_bytes(b"no picture")
    broken, again = maker_of(pictures)[0], maker_of(pictures)[0]
    assert broken.unlabeled is not None
    assert broken.unlabeled.ids == (order[0], order[2], order[2])  # the next one takes its place, and has its own
    assert broken.skipped == (order[1],)
    assert_same(broken, again)


def test_where_nothing_can_be_read_the_error_names_a_file(pictures: tuple[Dataset, Dataset]) -> None:
    for record in pictures[1].records:
        (pictures[1].description.root / record.image).write_bytes(b"")
    with pytest.raises(ImageError, match=r"frame\d\.png is empty"):
        maker_of(pictures)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_labeled_image_that_cannot_be_read_stops_with_its_name(
    pictures: tuple[Dataset, Dataset], workers: int
) -> None:
    (pictures[0].description.root / "images/frame1.png").write_bytes(b"no picture")
    stream = Stream(maker_of(pictures), workers)(0)
    with pytest.raises(
        DataError, match=r"^The labelled image images/frame1\.png cannot be used: frame1\.png cannot be decoded"
    ) as caught:
        list(islice(stream, 3))  # three labelled images, two a batch: it comes up
    assert "Traceback" not in str(caught.value)


def test_fewer_unlabeled_images_than_a_batch(pictures: tuple[Dataset, Dataset]) -> None:
    few = replace(pictures[1], records=pictures[1].records[:1])
    maker = maker_of((pictures[0], few))
    batch = maker[0].unlabeled
    assert batch is not None
    assert batch.ids == ("images/frame3.png",) * 3
    assert not torch.equal(batch.weak[0], batch.weak[1])  # the same image, cut anew each time
    assert maker.epoch_steps == 1


def test_no_unlabeled_images_or_no_wish_for_them(pictures: tuple[Dataset, Dataset]) -> None:
    none = replace(pictures[1], records=[])
    assert maker_of((pictures[0], none))[0].unlabeled is None
    assert maker_of(pictures, plan=ViewPlan(unlabeled=False))[0].unlabeled is None
    assert maker_of(pictures, plan=ViewPlan(unlabeled=False)).epoch_steps == 1  # three labelled images, two a step


def test_the_first_steps_load_labeled_images_alone(pictures: tuple[Dataset, Dataset]) -> None:
    maker, usual = maker_of(pictures), maker_of(pictures)
    maker.labels_first = 2
    for record in pictures[1].records:
        (pictures[1].description.root / record.image).rename(pictures[1].description.root / f"{record.image}.away")
    for step in range(2):
        assert maker[step].unlabeled is None  # nobody missed them
    for record in pictures[1].records:
        (pictures[1].description.root / f"{record.image}.away").rename(pictures[1].description.root / record.image)
    assert torch.equal(maker[1].labeled.images, usual[1].labeled.images)
    assert_same(maker[2], usual[2])


def test_a_rate_counts_labeled_and_unlabeled_images(
    pictures: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([10.0, 12.0])
    monkeypatch.setattr("ftcseg.views.loader.time.perf_counter", lambda: next(times))
    assert loader_rate(Stream(maker_of(pictures)), batches=4) == 10.0  # four times 2 + 3 images in two seconds


def test_images_of_other_channels_are_fitted_or_passed_over(pictures: tuple[Dataset, Dataset]) -> None:
    root, records = pictures[1].description.root, pictures[1].records
    grey = np.asarray(picture(3, *SHAPE))
    save(root / records[0].image, np.stack([grey] * 3, 2))  # frame 3 as a coloured file: still the same image
    save(root / records[1].image, picture(4, *SHAPE, channels=3))
    maker = maker_of(pictures)
    batches = [maker[step] for step in range(3)]
    assert {name for batch in batches for name in batch.skipped} == {records[1].image}
    assert records[0].image in {name for batch in batches for name in batch.ids}
