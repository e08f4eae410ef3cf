"""Frames that show the same scene, found by sight; names are believed only where sight agrees."""

from __future__ import annotations

import numpy as np
import pytest

from ftcseg.data import sequences
from ftcseg.data.scan import THUMB
from ftcseg.data.sequences import Sequences, find_sequences, share_with_neighbour


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def scenes(count: int, frames: int, jitter: float = 6.0) -> list[bytes]:
    """So many unrelated scenes of so many frames each, one scene after the other."""
    chance = rng()
    thumbs = []
    for _ in range(count):
        scene = chance.uniform(20, 235, THUMB * THUMB)
        thumbs += [(scene + chance.normal(0, jitter, scene.shape)).clip(0, 255).astype(np.uint8) for _ in range(frames)]
    return [t.tobytes() for t in thumbs]


def names(count: int) -> list[str]:
    return [f"images/{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}.png" for i in range(count)]


def members(found: Sequences) -> list[list[int]]:
    """The frames of each sequence, as indices."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(found.of):
        groups.setdefault(name, []).append(i)
    return list(groups.values())


def test_frames_of_one_scene_are_a_sequence_named_after_the_first() -> None:
    found = find_sequences(names(20), scenes(4, 5))
    assert members(found) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
    assert found.of[7] == names(20)[5]
    assert (found.count, found.neighbours, found.named) == (4, 20, 0)


def test_shuffled_names_hide_nothing_and_join_nothing() -> None:
    # Frame i is called after its place in a shuffled order, so consecutive numbers are unrelated scenes.
    thumbs = scenes(4, 6)
    order = rng().permutation(24).tolist()
    found = find_sequences([f"marine-{i}.png" for i in range(24)], [thumbs[i] for i in order])
    assert sorted(sorted(order[i] for i in group) for group in members(found)) == [
        list(range(first, first + 6)) for first in (0, 6, 12, 18)
    ]
    assert found.named == 0


def test_unrelated_frames_are_on_their_own() -> None:
    found = find_sequences(names(60), scenes(60, 1))
    assert (found.count, found.neighbours) == (0, 0)
    assert found.of == tuple(names(60))


def test_a_camera_that_stands_still_takes_one_sequence() -> None:
    # Nothing moves; the noise left in a thumbnail is below one grey level.
    found = find_sequences(names(30), scenes(1, 30, jitter=0.3))
    assert len(members(found)) == 1
    assert found.neighbours == 30


def test_still_frames_are_no_neighbours_of_other_scenes() -> None:
    still, other = scenes(1, 30, jitter=0.0), scenes(3, 1)[1:]
    found = find_sequences(names(32), [*still, *other])
    assert [len(group) for group in members(found)] == [30, 1, 1]


def test_a_slow_pan_is_one_chain_although_its_ends_differ() -> None:
    # A window slides over twenty scenes side by side, a column a frame: 23 of 24 columns stay, a cosine near 0.96.
    strip = np.repeat(rng().uniform(0, 255, (THUMB, 20)), THUMB, axis=1)
    frames = 19 * THUMB + 1
    thumbs = [np.ascontiguousarray(strip[:, i : i + THUMB]).astype(np.uint8).tobytes() for i in range(frames)]
    assert len(members(find_sequences(names(frames), thumbs))) == 1
    assert find_sequences(names(39), thumbs[:: THUMB // 2]).count == 0  # half of the picture is not enough


def test_numbered_names_join_what_is_mostly_alike() -> None:
    # Two scenes in one numbered run of twelve: by sight two chains, and ten of eleven steps are alike.
    thumbs = scenes(2, 6) + scenes(14, 1)[2:]
    numbered = [f"dive/frame_{i:03d}.png" for i in range(12)]
    found = find_sequences([*numbered, *names(12)], thumbs)
    assert members(found)[0] == list(range(12))
    assert found.named == 12
    assert all(len(group) == 1 for group in members(found)[1:])


def test_numbered_names_join_nothing_that_looks_unlike() -> None:
    found = find_sequences([f"dive/frame_{i:03d}.png" for i in range(30)], scenes(30, 1))
    assert (found.count, found.named) == (0, 0)


def test_two_frames_in_a_row_are_no_run() -> None:
    thumbs = [*scenes(1, 2), *scenes(12, 1)[1:]]
    found = find_sequences(["a/x1.png", "a/x2.png", *names(11)], thumbs)
    assert found.named == 0


def test_runs_are_kept_apart_by_folder_and_stem() -> None:
    # Numbers 0-5 in two folders are two scenes; as one run of twelve their steps would be unlike by turns.
    thumbs = scenes(2, 6)
    found = find_sequences([f"dive{i // 6}/f{i % 6}.png" for i in range(12)], thumbs)
    assert members(found) == [list(range(6)), list(range(6, 12))]
    assert found.named == 12


@pytest.mark.parametrize("shuffle", [False, True])
def test_beyond_the_limit_near_frames_are_still_found(monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> None:
    # In the order of their names, or by the projection on one direction, frames of a scene lie side by side.
    monkeypatch.setattr(sequences, "MAX_ALL_PAIRS", 50)
    thumbs = scenes(20, 6)
    order = rng().permutation(120).tolist() if shuffle else list(range(120))
    found = find_sequences(names(120), [thumbs[i] for i in order])
    by_scene = sorted(sorted(order[i] for i in group) for group in members(found))
    assert by_scene == [list(range(first, first + 6)) for first in range(0, 120, 6)]
    assert found.neighbours == 120


def test_beyond_the_limit_the_very_next_frame_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_ALL_PAIRS", 19)
    monkeypatch.setattr(sequences, "WINDOW", 1)
    assert [len(group) for group in members(find_sequences(names(20), scenes(10, 2)))] == [2] * 10


def test_beyond_the_limit_unrelated_frames_stay_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "MAX_ALL_PAIRS", 50)
    assert find_sequences(names(100), scenes(100, 1)).count == 0


@pytest.mark.parametrize("first", range(5))
def test_beyond_the_limit_no_window_ends_early(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    # Two frames of one scene stand three places apart, wherever the first of them falls in its block of three.
    monkeypatch.setattr(sequences, "MAX_ALL_PAIRS", 19)
    monkeypatch.setattr(sequences, "WINDOW", 3)
    thumbs = scenes(20, 1)
    thumbs[first + 3] = thumbs[first]
    assert [group for group in members(find_sequences(names(20), thumbs)) if len(group) > 1] == [[first, first + 3]]


def test_blocks_do_not_cut_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "_BLOCK", 7)
    assert [len(group) for group in members(find_sequences(names(20), scenes(2, 10)))] == [10, 10]


def test_what_could_not_be_read_is_nobodys_neighbour() -> None:
    thumbs = scenes(2, 6)
    thumbs[2] = thumbs[8] = b""
    found = find_sequences(names(12), thumbs)
    assert members(found) == [[0, 1, 3, 4, 5], [2], [6, 7, 9, 10, 11], [8]]


def test_of_a_handful_nothing_is_said() -> None:
    for thumbs in (scenes(1, 7), [b""] * 20, []):
        assert find_sequences(names(len(thumbs)), thumbs).count == 0


def test_the_share_of_held_out_frames_with_a_neighbour_in_training() -> None:
    found = Sequences(("a", "a", "a", "b", "b", "c"), 5, 0)
    # Held out are one of three a, both b, and c: only the a has a neighbour outside.
    assert share_with_neighbour(found, [False, True, False, True, True, True]) == 1 / 4
    assert share_with_neighbour(found, [False] * 6) == 0
    assert found.count == 2
