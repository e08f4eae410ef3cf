from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scripted_nets import Facts, Scripted, write_set

from ftcseg.data.dataset import Dataset
from ftcseg.errors import FtcsegError, ImageError, UsageError
from ftcseg.evaluate.run import evaluate
from ftcseg.types import Group

GROUPS: dict[int, Group] = {0: "background", 1: "head", 2: "tail"}
# Values 0, 10, 20 are called background, bottle, can; 30 is called can with little conviction.
NET = {0: (0.8, 0.1, 0.1), 10: (0.1, 0.8, 0.1), 20: (0.1, 0.1, 0.8), 30: (0.3, 0.3, 0.4)}


def five(root: Path) -> Dataset:
    """Five labelled images of three sizes and an unlabelled one; in each the second row is called wrongly."""
    images, masks = {}, {}
    for i in range(5):
        width = 4 + i % 3
        images[f"{i}.png"] = np.repeat([[0], [30]], width, axis=1)
        masks[f"{i}.png"] = np.repeat([[0], [1]], width, axis=1)
    return write_set(root, {**images, "bare.png": np.zeros((2, 4))}, masks)


def test_scores_by_hand(tmp_path: Path) -> None:
    images = {"a.png": [[0, 10, 20, 10]], "b.png": [[0, 30], [10, 0]]}
    masks = {"a.png": [[0, 1, 1, 255]], "b.png": [[0, 2], [1, 2]]}
    data = write_set(tmp_path, images, masks)
    found = evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS)
    assert found is not None
    # background: true 2, said 3, both 2. bottle: true 3, said 2, both 2. can: true 2, said 2, both 1.
    assert [c.iou for c in found["net"].classes] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert found["net"].miou == pytest.approx(5 / 9)
    assert found["net"].groups == pytest.approx({"background": 2 / 3, "head": 2 / 3, "middle": None, "tail": 1 / 3})
    assert found["net"].ece is None
    assert {c.boundary_f1 for c in found["net"].classes} == {None}


def test_boundaries_and_calibration_when_asked_for(tmp_path: Path) -> None:
    data = write_set(tmp_path, {"a.png": [[0, 0, 10, 10]]}, {"a.png": [[0, 0, 1, 1]]})
    found = evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS, boundary=True)
    assert found is not None
    assert [c.boundary_f1 for c in found["net"].classes] == [1.0, 1.0, None]
    assert found["net"].ece == pytest.approx(0.2, abs=1e-5)  # sure to 0.8, and always right


def test_all_networks_see_the_same_batch_and_each_file_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = five(tmp_path)
    reads: list[int] = []
    read = Dataset.__getitem__

    def counted(self: Dataset, index: int) -> object:
        reads.append(index)
        return read(self, index)

    monkeypatch.setattr(Dataset, "__getitem__", counted)
    nets = {"student": Scripted(NET), "teacher": Scripted({**NET, 30: (0.1, 0.8, 0.1)})}
    found = evaluate(nets, data, Facts(), GROUPS, batch=2)
    assert found is not None
    assert len(reads) == 5
    assert nets["student"].shown == nets["teacher"].shown
    assert found["student"].miou != found["teacher"].miou == 1.0


# Images 0 and 3 are 4 wide, 1 and 4 are 5, 2 is 6: the first row is background and said to be, the second is bottle and
# called can. Per class: hit, said, true.
EACH = [[[w, w, w], [0, 0, w], [0, w, 0]] for w in (4, 5, 6, 4, 5)]


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_counts_of_every_image_are_in_the_order_of_the_set(tmp_path: Path, batch: int) -> None:
    data = five(tmp_path)
    net = Scripted(NET)
    found = evaluate({"net": net}, data, Facts(), GROUPS, batch=batch, per_image=True)
    assert found is not None
    kept = found["net"].per_image
    assert kept is not None
    assert kept.names == tuple(f"images/{i}.png" for i in range(5))
    assert kept.counts.tolist() == EACH
    some = evaluate({"net": net}, data, Facts(), GROUPS, batch=batch, per_image=True, max_images=2)
    assert some is not None
    assert some["net"].per_image is not None
    assert some["net"].per_image.names == ("images/0.png", "images/2.png")
    assert some["net"].per_image.counts.tolist() == [EACH[0], EACH[2]]


def test_counts_of_every_image_change_no_score(tmp_path: Path) -> None:
    data = five(tmp_path)
    plain = evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS, boundary=True)
    kept = evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS, boundary=True, per_image=True)
    assert plain is not None
    assert plain["net"].per_image is None
    assert kept == plain
    assert kept["net"].as_json() == plain["net"].as_json()
    total = kept["net"].per_image.counts.sum(0)  # type: ignore[union-attr]
    assert total[:, 2].tolist() == [c.pixels for c in plain["net"].classes]


def test_progress_stop_and_fewer_images(tmp_path: Path) -> None:
    data = five(tmp_path)
    seen: list[tuple[int, int]] = []
    found = evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS, max_images=2, progress=lambda *at: seen.append(at))
    assert found is not None
    assert seen[-1] == (2, 2)
    assert found["net"].classes[0].pixels == 4 + 6  # images 0 and 2 of five
    net = Scripted(NET)
    assert evaluate({"net": net}, data, Facts(), GROUPS, batch=1, stop=lambda: len(net.shown) >= 3) is None
    assert len(net.shown) == 3


def test_a_set_without_masks_is_refused(tmp_path: Path) -> None:
    data = write_set(tmp_path, {"a.png": [[0]]}, {})
    with pytest.raises(UsageError, match="has a mask"):
        evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS)


def test_an_unreadable_file_stops_with_its_name(tmp_path: Path) -> None:
    data = five(tmp_path)
    (tmp_path / "images" / "3.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    with pytest.raises(ImageError, match=r"3\.png"):
        evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS)


def test_an_image_of_other_channels_stops_with_its_name(tmp_path: Path) -> None:
    colored = np.arange(24).reshape(2, 4, 3)
    data = write_set(tmp_path, {"a.png": [[0]], "b.png": colored}, {"a.png": [[0]], "b.png": [[0] * 4] * 2})
    with pytest.raises(ImageError, match=r"b\.png: It has 3 channels; the model reads 1"):
        evaluate({"net": Scripted(NET)}, data, Facts(), GROUPS)


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    data = five(Path(folder) / f"set{rank}")
    totals: set[int] = set()

    def run(**options: object) -> object:
        try:
            found = evaluate(
                {"net": Scripted(NET)},
                data,
                Facts(),
                GROUPS,
                rank=rank,
                world=2,
                batch=2,
                **options,  # type: ignore[arg-type]
            )
        except FtcsegError as error:
            return str(error)
        if found and found["net"].per_image is not None:
            return found["net"].per_image.counts.tolist()
        return found and found["net"].as_json()

    whole = run(per_image=True)
    results = [run(boundary=True, progress=lambda _, total: totals.add(total)), run(stop=lambda: rank == 1)]
    (data.description.root / "images" / ("2.png" if rank == 0 else "unused.png")).write_bytes(b"broken")
    results += [run(), sorted(totals), whole]
    (Path(folder) / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def test_two_ranks_count_every_image_once_and_stop_together(tmp_path: Path) -> None:
    mp.start_processes(work, args=(str(tmp_path),), nprocs=2, start_method="spawn")
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    alone = evaluate({"net": Scripted(NET)}, five(tmp_path / "alone"), Facts(), GROUPS, boundary=True)
    assert alone is not None
    assert first[0] == second[0] == json.loads(json.dumps(alone["net"].as_json()))
    assert first[1] is second[1] is None
    assert "2.png" in first[2]
    assert "another process" in second[2]
    assert (first[3], second[3]) == ([3], [2])  # five images, none padded
    assert first[4] == second[4] == EACH
