"""A study's runs as tasks of a Ray cluster: the same folders, cache and numbers, on more machines at once.

`ray start --head` on one machine and `ray start --address=HEAD:6379` on the others make a cluster; without an address
the tasks go to worker processes on this machine. A worker or a machine that is lost costs the steps since the last
checkpoint: the task is sent elsewhere and goes on from there.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from ftcseg import __version__
from ftcseg.errors import FtcsegError, UsageError
from ftcseg.files import write_text
from ftcseg.parallel import available_cores
from ftcseg.studies.plan import EMBEDDED
from ftcseg.studies.running import Ended, PlannedRun, Runner, StudyStopped, Work, run_cell
from ftcseg.studies.sets import Place
from ftcseg.train.lock import RunInUse, RunLock

RETRIES = 3
"""Times a run is sent out again after its worker or machine was lost, or was told to stop."""
OBJECT_STORE_BYTES = 100 * 2**20
"""Of a Ray of our own: only names travel, images and models stay in files."""
LOOK_SECONDS = 120.0  # for every machine to answer; a worker's first import of torch takes some of them
LOCK_SECONDS = 120.0  # a file server may hold the lock of a lost machine for a while
GRACE_SECONDS = 60.0  # for interrupted runs to save their place
_POLL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Which cluster, and how much of it each run gets."""

    address: str | None = None
    """Of a running cluster, «auto» for the one this machine belongs to; None starts workers on this machine."""
    workers: int | None = None
    """Runs at the same time; as many as there is room for, unless set."""
    cpus_per_run: int | None = None
    """Cores of each run; on this machine its share of them, on a cluster one, unless set."""

    def __post_init__(self) -> None:
        for option, value in (("--workers", self.workers), ("--cpus-per-run", self.cpus_per_run)):
            if value is not None and value < 1:
                raise UsageError(f"{option} {value} leaves nothing to run on. Ask for at least 1.")

    @property
    def cpus(self) -> int:
        """Cores of each run."""
        if self.cpus_per_run is not None or self.address is not None or self.workers is None:
            return self.cpus_per_run or 1
        return max(1, available_cores() // self.workers)

    @property
    def local_cpus(self) -> int:
        """Cores that a Ray of our own offers."""
        return self.cpus * (self.workers or max(1, available_cores() // self.cpus))


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is sent."""

    run: PlannedRun
    place: Place
    threads: int
    folder: str
    """Where the study was started: paths of the user's are meant from there."""
    data: str | None
    """FTCSEG_DATA of the study."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker sends back."""

    host: str
    since: int
    """The step it started from."""
    seconds: float
    failure: str = ""
    stopped: bool = False


def on_ray(cluster: Cluster) -> Runner:
    """Runs missing runs as tasks of this cluster."""
    return partial(_run_all, cluster, _ray())


def train_one(task: Task) -> Told:
    """A task: run or go on with one run. What the user can mend comes back as a sentence, and is not tried again."""
    if Path(task.folder).is_dir():
        os.chdir(task.folder)
    if task.data is not None:
        os.environ.setdefault("FTCSEG_DATA", task.data)
    torch.set_num_threads(task.threads)
    told = partial(Told, socket.gethostname(), task.run.step or 0)
    began = time.monotonic()
    try:
        if not task.run.done:
            _wait_for_lock(task.run.run)
            run_cell(task.run, task.place, settings=(f"threads={task.threads}",))
    except StudyStopped:
        return told(time.monotonic() - began, stopped=True)
    except FtcsegError as error:
        return told(time.monotonic() - began, failure=str(error))
    return told(time.monotonic() - began)


def _wait_for_lock(run: Path) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            with RunLock(run):
                return
        except RunInUse:
            if time.monotonic() > until:
                raise
        time.sleep(_POLL)


def _run_all(cluster: Cluster, ray: Any, work: Work) -> Iterator[Ended]:
    """Send every run out, as many at a time as there are workers, and tell of each that comes back."""
    if not work.runs:
        return
    with _connected(ray, cluster) as gpus:
        _check_nodes(ray, cluster, work)
        options = {"num_cpus": cluster.cpus, "num_gpus": gpus, "max_retries": RETRIES, "retry_exceptions": False}
        task = ray.remote(**options)(train_one)
        waiting, sent = deque(work.runs), Counter[Path]()
        running: dict[Any, PlannedRun] = {}
        try:
            while waiting or running:
                while waiting and len(running) < (cluster.workers or len(work.runs)):
                    one = waiting.popleft()
                    running[task.remote(_task(one, work, cluster))] = one
                for ref in ray.wait(list(running), timeout=_POLL)[0]:
                    one = running.pop(ref)
                    told = _told(ray, ref)
                    sent[one.run] += 1
                    if told.stopped and sent[one.run] <= RETRIES:
                        work.say(f"{work.name(one)}: {told.host} was told to stop; it goes on elsewhere")
                        waiting.append(one)
                        continue
                    work.say(f"{work.name(one)}: {_spoken(told)}")
                    yield Ended(one, told.failure or ("it was stopped again and again" if told.stopped else ""))
        except (KeyboardInterrupt, SystemExit) as asked:
            work.say("\nstopping: runs that are under way save their place")
            raise StudyStopped from asked
        finally:
            _cancel(ray, list(running))


def _task(one: PlannedRun, work: Work, cluster: Cluster) -> Task:
    place = Place(work.place.folder.resolve(), work.place.root and work.place.root.resolve())
    run = PlannedRun(one.cell, one.key, one.run.resolve())
    return Task(run, place, cluster.cpus, str(Path.cwd()), os.environ.get("FTCSEG_DATA"))


def _told(ray: Any, ref: Any) -> Told:
    try:
        told: Told = ray.get(ref)
    except ray.exceptions.RayTaskError as error:  # our own mistake, or memory that was not there
        return Told("a worker", 0, 0.0, failure=f"{error.cause.__class__.__name__}: {error.cause}")
    except ray.exceptions.RayError as error:
        why = (str(error).strip().splitlines() or [error.__class__.__name__])[0]
        lost = f"its worker was lost {RETRIES + 1} times ({why}). The same command goes on from its last checkpoint."
        return Told("a worker", 0, 0.0, failure=lost)
    return told


def _spoken(told: Told) -> str:
    if told.failure or told.stopped:
        return f"not finished on {told.host}"
    since = f", from step {told.since} on" if told.since else ""
    return f"done on {told.host} in {told.seconds:.0f} s{since}"


def _cancel(ray: Any, running: list[Any]) -> None:
    """Interrupt what still runs, as Ctrl-C would, and give it time to save its place."""
    for ref in running:
        ray.cancel(ref, force=False)
    if running:
        ray.wait(running, num_returns=len(running), timeout=GRACE_SECONDS)


@contextmanager
def _connected(ray: Any, cluster: Cluster) -> Iterator[int]:
    """A connection to the cluster for a while; yields how many accelerators each run is given."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would report home
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # CUDA_VISIBLE_DEVICES is the user's
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    try:
        if cluster.address is None:
            own = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
            ray.init(address="local", num_cpus=cluster.local_cpus, **own, **quiet)
        else:
            ray.init(address=cluster.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"There is no Ray cluster to reach at {cluster.address or 'this machine'} ({error}). Start one with "
            f"«ray start --head», and name it with --address HOST:6379."
        ) from error
    try:
        yield 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    finally:
        ray.shutdown()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a machine says of itself."""

    host: str
    text: str | None
    """Of the sentinel; None where it sees no such file."""
    version: str
    unseen: tuple[str, ...]
    """Paths that are not there."""


def look(sentinel: str, paths: tuple[str, ...]) -> Seen:
    """A task: what this machine sees of the study's files."""
    file = Path(sentinel)
    text = file.read_text(encoding="utf-8") if file.is_file() else None
    return Seen(socket.gethostname(), text, _version(), tuple(p for p in paths if not Path(p).exists()))


def _version() -> str:
    return f"ftcseg {__version__} with torch {torch.__version__}"


def _check_nodes(ray: Any, cluster: Cluster, work: Work) -> None:
    """Refuse machines that see other files or run another program, before anything is spent on them."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    most = max((int(node["Resources"].get("CPU", 0)) for node in nodes), default=0)
    if most < cluster.cpus:
        raise UsageError(
            f"No machine of the cluster has {cluster.cpus} cores; the most are {most}. Set --cpus-per-run."
        )
    folder, token = work.place.folder.resolve(), uuid.uuid4().hex
    sentinel = folder / f".seen-{token}"
    write_text(sentinel, token)
    places = [Path(one.cell.dataset) for one in work.runs if one.cell.dataset != EMBEDDED]
    places += [work.place.root] if work.place.root else []
    paths = tuple(sorted({str(path.resolve()) for path in places if path.exists()}))
    pinned = import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    try:
        asked = [
            ray.remote(look)
            .options(num_cpus=0, scheduling_strategy=pinned(node_id=node["NodeID"], soft=False))
            .remote(str(sentinel), paths)
            for node in nodes
        ]
        answers: list[Seen] = ray.get(asked, timeout=LOOK_SECONDS)
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1]
        raise UsageError(
            f"A machine of the cluster cannot run ftcseg ({why}). Install {_version()} on each."
        ) from error
    finally:
        sentinel.unlink(missing_ok=True)
    for seen in answers:
        _judge(seen, token, folder)


def _judge(seen: Seen, token: str, folder: Path) -> None:
    if seen.text != token:
        raise UsageError(
            f"{seen.host} does not see the study's folder {folder}. All machines of a cluster must see it under the "
            f"same path: choose --out on storage that they share."
        )
    if seen.unseen:
        raise UsageError(f"{seen.host} does not see {seen.unseen[0]}. Put the data on storage that all machines share.")
    if seen.version != _version():
        raise UsageError(f"{seen.host} runs {seen.version}, and this machine {_version()}. Install the same on all.")


def _ray() -> Any:
    try:
        return import_module("ray")
    except ImportError as error:
        raise UsageError("--on ray needs the package ray. Install it with «pip install 'ftcseg[ray]'».") from error
