"""Decoded images on disk: never other pixels than the file's own, whoever writes, whatever is damaged."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ftcseg.data import decoded
from ftcseg.data.dataset import Dataset
from ftcseg.data.decoded import DecodedCache, content, is_mapped, key_of
from ftcseg.data.describe import Description
from ftcseg.errors import ImageError
from ftcseg.types import IGNORE, ClassTable, MaskCoding, MaskFile, Record
from picture_sets import picture, save

KEY, OTHER = "ab" + "0" * 62, "cd" + "1" * 62
LARGE = 1 << 30
SLOW = 10.0
"""Seconds of decoding that are worth any file."""


def keep(cache: DecodedCache, key: str = KEY, size: int = 1000) -> bool:
    return cache.keep(key, [np.full(size, 7, np.uint8)], seconds=SLOW, source=1)


@pytest.fixture
def store(tmp_path: Path) -> DecodedCache:
    return DecodedCache(LARGE, tmp_path / "store")


@pytest.fixture
def frames(tmp_path: Path, store: DecodedCache, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """One image with a mask and one without, of a set that keeps everything it decodes."""
    monkeypatch.setattr(decoded, "WORTH", 0.0)
    for name, channels in (("a.png", 3), ("b.png", 1)):
        save(tmp_path / "images" / name, picture(3, 12, 16, channels=channels))
    save(tmp_path / "masks" / "a.png", picture(1, 12, 16) % 3)
    coding = MaskCoding("ids", values={0: 0, 1: 1}, ignore=frozenset({2}))
    found = Description("frames", tmp_path, "images-masks", ClassTable.named("sea", "can"), coding)
    return Dataset(found, [Record("images/a.png", MaskFile("masks/a.png")), Record("images/b.png")], cache=store)


def entries(store: DecodedCache) -> list[Path]:
    return sorted(store.folder.glob("*/*.raw"))


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([np.uint8, np.uint16, np.int16, np.float32]),
            st.lists(st.integers(1, 9), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_arrays_come_back_as_they_went(store: DecodedCache, kinds: list[tuple[type, list[int]]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [(rng.random(shape) * 250).astype(kind) for kind, shape in kinds]
    assert store.keep(KEY, arrays, seconds=SLOW, source=1)
    found = store.recall(KEY)
    assert found is not None
    for ours, theirs in zip(arrays, found, strict=True):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
        assert is_mapped(theirs)
        assert not theirs.flags.writeable


def test_a_sample_is_the_same_from_the_disk(frames: Dataset, store: DecodedCache) -> None:
    plain = replace(frames, cache=None)
    for index in range(2):
        for sample in (frames[index], frames[index]):  # decoded, and read back
            assert np.array_equal(sample.image, plain[index].image)
            assert sample.image.dtype == plain[index].image.dtype
    assert len(entries(store)) == 2
    labels = frames[0].labels
    assert labels is not None
    assert labels.dtype == np.int16
    assert labels.flags.writeable
    assert np.array_equal(labels, plain[0].labels)
    assert set(np.unique(labels)) == {IGNORE, 0, 1}
    assert is_mapped(frames[1].image)


def test_labels_of_many_classes_keep_their_ids(tmp_path: Path, frames: Dataset) -> None:
    stored = np.array([[0, 254, 255], [400, 1, 2]], np.uint16)
    np.save(tmp_path / "masks" / "a.npy", stored)
    save(tmp_path / "images" / "a.png", picture(3, 2, 3))
    coding = MaskCoding("ids", values={int(value): int(value) for value in stored.ravel()})
    found = replace(
        frames.description, coding=coding, classes=ClassTable.named(*(f"class {number}" for number in range(401)))
    )
    many = replace(frames, description=found, records=[Record("images/a.png", MaskFile("masks/a.npy"))])
    for _ in range(2):
        labels = many[0].labels
        assert labels is not None
        assert labels.tolist() == stored.tolist()


def test_a_copy_of_a_file_is_found_and_a_changed_one_is_not(frames: Dataset, store: DecodedCache) -> None:
    root = frames.description.root
    before = frames[1].image.copy()
    (root / "images/c.png").write_bytes((root / "images/b.png").read_bytes())
    again = replace(frames, records=[Record("images/c.png")])
    assert np.array_equal(again[0].image, before)
    assert len(entries(store)) == 1
    stat = (root / "images/b.png").stat()
    save(root / "images/b.png", picture(9, 12, 16))
    os.utime(root / "images/b.png", ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as old as it was
    assert not np.array_equal(frames[1].image, before)
    assert len(entries(store)) == 2


def test_how_a_file_is_decoded_is_part_of_its_name(frames: Dataset, store: DecodedCache) -> None:
    frames[0]
    others = MaskCoding("ids", values={0: 1, 1: 0, 2: 1})
    turned = replace(frames, description=replace(frames.description, coding=others))
    plain = replace(turned, cache=None)[0].labels
    assert np.array_equal(turned[0].labels, plain)  # type: ignore[arg-type]
    assert len(entries(store)) == 2


def test_a_file_that_turned_unreadable_is_unreadable_though_its_pixels_are_known(frames: Dataset) -> None:
    frames[1]
    (frames.description.root / "images/b.png").write_bytes(b"no picture")
    with pytest.raises(ImageError, match=r"b\.png cannot be decoded"):
        frames[1]
    (frames.description.root / "images/b.png").unlink()
    with pytest.raises(ImageError, match=r"b\.png cannot be read"):
        frames[1]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255), st.booleans())
def test_a_damaged_entry_is_never_believed(store: DecodedCache, place: float, flip: int, cut: bool) -> None:
    keep(store, size=200)
    (path,) = entries(store)
    whole = path.read_bytes()
    at = int(place * len(whole))
    path.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
    assert store.recall(KEY) is None
    assert cut or not path.exists()  # an empty one cannot even be mapped
    keep(store, size=200)
    (found,) = store.recall(KEY) or []
    assert found.tolist() == [7] * 200


def test_an_entry_under_another_ones_name_is_not_believed(store: DecodedCache) -> None:
    keep(store, KEY)
    (path,) = entries(store)
    stranger = store.folder / OTHER[:2] / f"{OTHER[2:]}.raw"
    stranger.parent.mkdir()
    path.rename(stranger)
    assert store.recall(OTHER) is None


def test_what_is_quickly_decoded_is_not_kept(store: DecodedCache) -> None:
    # 1 kB of file and 999 kB of pixels are hashed and checked at 1 GB/s: 1 ms; worth it from 2 ms on.
    pixels = [np.zeros(999_000, np.uint8)]
    assert not store.keep(KEY, pixels, seconds=0.0019, source=1000)
    assert store.keep(KEY, pixels, seconds=0.0021, source=1000)


def test_the_longest_unused_make_room_and_those_in_use_stay(tmp_path: Path) -> None:
    store = DecodedCache(4500, tmp_path / "store")
    keys = [f"{number:02x}" + "0" * 62 for number in range(4)]
    for age, key in enumerate(keys[:3]):
        assert keep(store, key)
        long_ago = time.time() - decoded.RECENT * (3 - age)
        os.utime(store._path(key), (long_ago, long_ago))
    assert store.recall(keys[0]) is not None  # used again: now the second is the oldest
    assert keep(store, keys[3])
    assert [store.recall(key) is not None for key in keys] == [True, False, True, True]
    assert sum(path.stat().st_size for path in entries(store)) <= store.limit
    assert not keep(store, keys[1])  # all the others were used a moment ago
    assert len(entries(store)) == 3


def test_what_others_wrote_counts(tmp_path: Path) -> None:
    one, other = (DecodedCache(3500, tmp_path / "store") for _ in range(2))
    assert keep(one, KEY)
    assert keep(other, OTHER)
    assert not keep(one, "ef" + "2" * 62)


def test_the_disk_is_not_filled_and_leftovers_go(store: DecodedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    left = store.folder / "ab" / "torn.part"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    monkeypatch.setattr(decoded, "ROOM_FOR_OTHERS", 1 << 60)
    assert not keep(store)
    assert not left.exists()


def test_a_folder_that_cannot_be_written_is_worked_without(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"a file, no folder")
    store = DecodedCache(LARGE, tmp_path / "store")
    assert not keep(store)
    assert store.recall(KEY) is None


def _hammer(folder: Path, seed: int) -> None:
    store = DecodedCache(40_000, folder)
    for number in np.random.default_rng(seed).integers(0, 30, 150).tolist():
        key = f"{number:02x}" + "0" * 62
        found = store.recall(key)
        if found is None:
            store.keep(key, [np.full(1000, number, np.uint16)], seconds=SLOW, source=1)
        else:
            assert (found[0] == number).all()
        if number % 10 == 0:
            store._sweep(40_000)


def test_several_processes_at_once_see_only_whole_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded, "RECENT", 0.0)  # everything gives way at once
    crowd = [multiprocessing.Process(target=_hammer, args=(tmp_path / "store", seed)) for seed in range(4)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join(30)
    assert [process.exitcode for process in crowd] == [0] * 4


def test_a_hash_of_content_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    first = content(path)
    assert content(path) == first
    path.write_bytes(b"two")
    assert content(path) != first
    assert key_of([first], {"max_pixels": 1}) != key_of([first], {"max_pixels": 2})
