from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from ftcseg.errors import LayoutError
from ftcseg.evaluate.per_image import PerImage, known_sequences, read_counts, sequences_of, write_counts

NAMES = ("dive/1.png", "dive/2.png", "\udce9.png")  # the last is no UTF-8, and a name all the same


def _kept(start: int = 0, sequences: tuple[str, ...] = ()) -> PerImage:
    return PerImage(np.arange(start, start + 18, dtype=np.int64).reshape(3, 2, 3), NAMES, sequences)


def test_counts_come_back_as_they_were(tmp_path: Path) -> None:
    dives = ("dive/1.png", "dive/1.png", "\0\udce9.png")
    write_counts(tmp_path / "c", {"last": _kept(0, dives), "best": _kept(100, dives)})
    last, best = read_counts(tmp_path / "c"), read_counts(tmp_path / "c", "best")
    assert last.counts.tolist() == _kept().counts.tolist()
    assert best.counts[0, 0].tolist() == [100, 101, 102]
    assert (last.names, last.sequences) == (NAMES, dives)
    assert last.counts.dtype == np.int64


def test_the_same_counts_are_the_same_bytes(tmp_path: Path) -> None:
    write_counts(tmp_path / "a", {"last": _kept(), "best": _kept(100)})
    write_counts(tmp_path / "b", {"best": _kept(100), "last": _kept()})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"a", "b"}


def test_an_image_nobody_knows_is_a_sequence_of_its_own() -> None:
    found = sequences_of(("a", "b", "c", "d"), {"a": "c", "b": "c", "d": ""})
    assert found[0] == found[1] == "c"
    assert len(set(found)) == 3  # the image c is not in the sequence that is called c


def test_without_neighbours_there_are_no_clusters() -> None:
    assert _kept().clusters is None
    assert _kept(sequences=("a", "b", "c")).clusters is None
    assert _kept(sequences=("a", "a", "c")).clusters == ("a", "a", "c")


def test_a_run_remembers_the_sequences_of_its_images(tmp_path: Path) -> None:
    assert known_sequences(tmp_path / "none") == {}
    write_counts(tmp_path / "without", {"last": _kept()})
    write_counts(tmp_path / "with", {"last": _kept(sequences=("a", "a", "c"))})
    assert known_sequences(tmp_path / "without") == {}
    assert known_sequences(tmp_path / "with") == dict(zip(NAMES, ("a", "a", "c"), strict=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no tensors", "cannot be read"),
        (save({"best": _kept().counts}), "no counts of the checkpoint «last»"),
        (save({"last": _kept().counts}), "do not fit"),  # no list of images
        (save({"last": _kept().counts}, {"about": "{"}), "cannot be read"),
        (save({"last": _kept().counts}, {"about": '{"images": ["a", "b"]}'}), "do not fit"),
        (save({"last": _kept().counts}, {"about": '{"images": ["a", "b", "c"], "sequences": ["a"]}'}), "do not fit"),
        (save({"last": np.zeros((3, 2, 3), np.float32)}, {"about": '{"images": ["a", "b", "c"]}'}), "do not fit"),
        (save({"last": np.zeros(3, np.int64)}, {"about": '{"images": ["a", "b", "c"]}'}), "do not fit"),
    ],
)
def test_a_file_that_is_none_is_told(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(LayoutError, match=said):
        read_counts(tmp_path / "c")
