"""Chance that depends on where it is used and on nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import numpy as np

from ftcseg.rng import random_for, seed_for, shuffled


def test_the_same_place_draws_the_same_numbers() -> None:
    assert random_for(3, "a.png", 7).random(4).tolist() == random_for(3, "a.png", 7).random(4).tolist()


def test_every_other_place_draws_others() -> None:
    places = [(0, 1), (0, 2), (0, 1, 2), (0, 2, 1), (0, 12), (0, "a"), (0, "b"), (0, "ü"), (1, 1)]
    draws = {random_for(seed, *where).integers(2**63) for seed, *where in places}  # type: ignore[misc]
    assert len(draws) == len(places)


def test_drawing_in_one_place_leaves_the_others_alone() -> None:
    first = random_for(0, 1)
    first.random(1000)
    assert random_for(0, 2).random() == random_for(0, 2).random()
    state = np.random.get_state(legacy=False)["state"]["pos"]  # noqa: NPY002 - the global one is what is watched
    random_for(0, 3).random()
    assert np.random.get_state(legacy=False)["state"]["pos"] == state  # noqa: NPY002


def test_a_draw_is_the_same_in_another_process_and_on_other_days() -> None:
    # Python salts its own hashes anew in every process; PCG64's stream is fixed by numpy's policy.
    code = "from ftcseg.rng import random_for; print(random_for(7, 'frame', 3).integers(1_000_000, size=3).tolist())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == str([555244, 613440, 817203])  # splits and noise that were published depend on it


def test_a_seed_belongs_to_its_place_and_fits_into_63_bits() -> None:
    seeds = [seed_for(0, "worker", i) for i in range(100)]
    assert seeds == [seed_for(0, "worker", i) for i in range(100)]
    assert len(set(seeds)) == 100
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_names_that_are_no_text_have_their_chance_too() -> None:
    odd = os.fsdecode(b"\xe9t\xe9.png")
    assert random_for(0, odd).random() != random_for(0, "été.png").random()
    assert sorted(shuffled([odd, "a.png"], 0)) == sorted([odd, "a.png"])


def test_the_order_is_that_of_the_hashes() -> None:
    names = ["a", "b", "c", "d"]
    by_hand = sorted(names, key=lambda n: hashlib.sha256(b"5\0labels\0" + n.encode()).hexdigest())
    assert shuffled(names, 5, "labels") == by_hand
    assert shuffled(names[::-1], 5, "labels") == by_hand


def test_the_order_changes_with_seed_and_salt() -> None:
    names = [f"{i}.png" for i in range(20)]
    orders = {tuple(shuffled(names, seed, salt)) for seed in (0, 1) for salt in ("", "x")}
    assert len(orders) == 4
    assert all(sorted(order) == sorted(names) for order in orders)


def test_a_shorter_list_keeps_its_order() -> None:
    # What is drawn first stays first when images are added or taken away.
    names = [f"{i}.png" for i in range(20)]
    some = shuffled(names[:10], 0)
    assert [name for name in shuffled(names, 0) if name in some] == some
