"""Memory that runs out is told with numbers and with settings that need less; what was saved stays."""

from __future__ import annotations

import resource
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL
from torch import Tensor, nn

from ftcseg import api
from ftcseg.config.lighter import lighter_evaluation, lighter_training, need_of
from ftcseg.config.load import Draft, parse_override
from ftcseg.config.schema import RunConfig
from ftcseg.errors import OutOfMemory, is_out_of_memory
from ftcseg.evaluate.predictor import Predictor, Prepared
from ftcseg.methods.supervised import Supervised
from ftcseg.train import checkpoint
from ftcseg.train.memory import asked_bytes, in_mb, smaller_windows_told

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CUDA_SAYS = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.02 GiB is free."
)


def cpu_error() -> RuntimeError:
    """What torch really says, of 2^57 bytes: more than any address space holds."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    return caught.value


def test_who_says_that_memory_ran_out() -> None:
    with pytest.raises(MemoryError) as numpys:
        np.zeros(2**57)
    said = [cpu_error(), numpys.value, torch.OutOfMemoryError(CUDA_SAYS), MemoryError()]
    assert all(map(is_out_of_memory, said))
    assert not any(map(is_out_of_memory, [RuntimeError("shapes do not match"), ValueError("out of memory")]))


def test_how_much_was_asked_for() -> None:
    assert asked_bytes(torch.OutOfMemoryError(CUDA_SAYS)) == 2.5 * 2**30
    assert asked_bytes(cpu_error()) == 2**57
    assert asked_bytes(MemoryError()) is None
    assert (in_mb(2**30), in_mb(2**20)) == ("1,024 MB", "1.0 MB")


# What to change


def config_with(*settings: str) -> RunConfig:
    draft = Draft()
    for setting in settings:
        draft.set(*parse_override(setting), "the test's")
    return draft.build()


def options(remedy: str) -> list[str]:
    return shlex.split(remedy.partition(": ")[0])


def test_the_remedies_come_in_order_with_values_of_this_run() -> None:
    config = config_with("data.crop=[518, 518]", "optim.accumulate=2", "precision=32-true")
    remedies = lighter_training(config, None, 14, CUDA)
    assert [options(remedy) for remedy in remedies] == [
        ["data.labeled_batch=2", "data.unlabeled_batch=2", "optim.accumulate=4"],
        ["model.checkpointing=true"],
        ["precision=bf16-mixed"],
        ["data.crop=[378,378]"],  # 388.5, down to a multiple of 14
        ["model.mode=frozen"],
    ]
    assert "47% fewer pixels" in remedies[3]  # 1 - 378^2 / 518^2 = 0.467
    for remedy in remedies:
        config_with(*options(remedy))  # the schema knows every one of them


@pytest.mark.parametrize(
    ("labeled", "unlabeled", "expected"),
    [
        (6, 9, ["data.labeled_batch=2", "data.unlabeled_batch=3", "optim.accumulate=3"]),
        (3, 4, ["data.labeled_batch=1", "data.unlabeled_batch=2", "optim.accumulate=2"]),  # 3 of 7 stay
        (1, 4, ["data.labeled_batch=1", "data.unlabeled_batch=2", "optim.accumulate=2"]),
    ],
)
def test_a_smaller_batch_keeps_the_images_of_an_update_where_it_can(
    labeled: int, unlabeled: int, expected: list[str]
) -> None:
    config = config_with(f"data.labeled_batch={labeled}", f"data.unlabeled_batch={unlabeled}")
    assert options(lighter_training(config, None, 1, CPU)[0]) == expected


def test_nothing_is_offered_that_is_so_already() -> None:
    least = ("data.labeled_batch=1", "data.unlabeled_batch=1", "model.mode=frozen", "data.crop=[14, 14]")
    assert lighter_training(config_with(*least), None, 14, CPU) == []


def test_windows_become_half_as_wide() -> None:
    assert options(lighter_evaluation(config_with("data.crop=[480, 640]"), 14)[0]) == ["evaluation.window=238"]
    assert options(lighter_evaluation(config_with("evaluation.window=238"), 14)[0]) == ["evaluation.window=112"]
    assert lighter_evaluation(config_with("evaluation.window=14"), 14) == []


def test_what_does_not_grow_with_the_batch_is_counted() -> None:
    method = nn.Module()
    method.encoder = nn.Linear(10, 10, bias=False)  # 400 bytes
    method.head = nn.Linear(10, 5, bias=False)  # 200 bytes
    method.teacher = nn.Linear(10, 5, bias=False).requires_grad_(False)  # 200 bytes
    adamw, sgd = (need_of(method, config_with(f"optim.kind={kind}")) for kind in ("adamw", "sgd"))
    assert (adamw.weights, adamw.encoder_learning) == (800 + 3 * 600, 3 * 400)
    assert (sgd.weights, sgd.encoder_learning) == (800 + 2 * 600, 2 * 400)


# Runs


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FTCSEG_CACHE", str(tmp_path_factory.mktemp("cache")))
        return api.simulate(tmp_path_factory.mktemp("frames") / "sonar", 12, size=(96, 96), classes=4, workers=1)


def test_a_step_without_memory_keeps_the_checkpoints(
    frames: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = Supervised.step, iter(range(100))

    def hungry(self: Supervised, *args: object) -> object:
        if next(calls) == 3:
            raise torch.OutOfMemoryError(CUDA_SAYS)
        return step(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Supervised, "step", hungry)
    run = tmp_path / "run"
    with pytest.raises(OutOfMemory) as caught:
        api.train(frames, method="supervised", labels=6, steps=4, out=run, settings=SMALL)
    said = str(caught.value)
    assert caught.value.exit_code == 6
    assert "2,560 MB more were asked for" in said
    assert "A step has 2 labelled and 2 unlabelled images of 32x32 pixels, the encoder tiny (learning)" in said
    assert "1. --set data.labeled_batch=1 --set data.unlabeled_batch=1 --set optim.accumulate=2" in said
    assert "--set 'data.crop=[24,24]'  (44% fewer pixels)" in said  # 1 - 24^2 / 32^2
    assert f"ftcseg train --resume {run} goes on" in said
    assert checkpoint.read(run / "checkpoints", "last_good").state["clock"]["step"] == 3
    assert api.resume(run).finished  # with more memory


@contextmanager
def limit_of(count: int) -> Iterator[None]:
    """So many bytes for this process, lest a generous system grants what it does not have."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_crop_that_no_machine_holds_is_refused_in_the_same_words(frames: Path, tmp_path: Path) -> None:
    absurd = (*SMALL, "data.crop=[200000, 200000]")  # 480 GB an image
    words = r"limit set for it is 65,536 MB\. .* images of 200000x200000 pixels(.|\n)*data\.crop=\[150000,150000\]"
    with limit_of(2**36), pytest.raises(OutOfMemory, match=words):
        api.train(frames, method="supervised", labels=6, steps=2, out=tmp_path / "run", settings=absurd)


# Asking a model


class Hungry(nn.Module):
    """Holds so many images at a time and no more; says of each pixel what it is."""

    def __init__(self, holds: int) -> None:
        super().__init__()
        self.holds, self.asked = holds, []

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.holds:
            raise MemoryError
        self.asked.append(len(images))
        return torch.cat([images, -images], dim=1)


class Facts:
    mean, std, in_channels, short_side, multiple = (0.0,), (1.0,), 1, None, 1


def answers(holds: int) -> tuple[list[int], Iterator[Tensor]]:
    net = Hungry(holds)
    images = [Prepared((4, 4), (torch.full((1, 4, 4), float(i)),)) for i in range(7)]
    return net.asked, Predictor(net, Facts(), batch=7).scores(images)  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_asked_about_in_halves() -> None:
    asked, found = answers(holds=2)
    assert [float(scores[0, 0, 0]) for scores in found] == [0, 1, 2, 3, 4, 5, 6]
    assert asked == [1, 1, 1, 1, 1, 1, 1]  # 7, 3, 1


def test_an_image_that_does_not_fit_is_an_error_with_a_smaller_window() -> None:
    @smaller_windows_told
    def ask(*, window: int | None = None, batch: int = 8) -> list[Tensor]:
        return list(answers(holds=0)[1])

    with pytest.raises(OutOfMemory, match=r"--batch 1 \(now 8.*--window 512 \(now whole images"):
        ask()
    with pytest.raises(OutOfMemory, match=r"order: --window 256 \(now 512"):
        ask(window=512, batch=1)
