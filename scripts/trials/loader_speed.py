"""How fast batches are made: images a second, processor time of a batch, and what the decoded cache saves.

    python scripts/trials/loader_speed.py DATASET --crop 154x238 --short-side 154

Every line is a fresh maker in this process: memory empty, and the disk cache off, empty or filled. `first` is the pass
in which every image is seen for the first time, `later` the one after it; both in seconds of processor time a batch.
The last lines are images a second by the clock, by number of workers. Nothing is written but a cache in its own folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from ftcseg.data.dataset import Dataset, open_dataset
from ftcseg.data.decoded import DecodedCache
from ftcseg.types import ViewPlan
from ftcseg.views.geometry import GeometryParams
from ftcseg.views.loader import BatchMaker, Stream, ViewParams, loader_rate

LIMIT = 64 << 30


def main() -> None:
    """Measure and print."""
    asked = arguments()
    torch.set_num_threads(1)
    whole = open_dataset(asked.dataset)
    masked = whole.labeled()
    count = asked.labeled + asked.batches * asked.batch
    records = (masked.records * (1 + count // len(masked)))[:count] if asked.repeat else masked.records[:count]
    labeled = replace(whole, records=records[: asked.labeled])
    unlabeled = replace(whole, records=[replace(record, mask=None) for record in records[asked.labeled :]])
    with tempfile.TemporaryDirectory(dir=asked.cache) as folder:
        for name, cache in (
            ("no disk cache", None),
            ("disk cache, empty", DecodedCache(LIMIT, Path(folder))),
            ("disk cache, filled", DecodedCache(LIMIT, Path(folder))),
        ):
            maker = made(asked, labeled, unlabeled, cache)
            first, later = (seconds(maker, asked.batches) for _ in range(2))
            print(f"{name:20} first {first:.4f}  later {later:.4f}  s of one core a batch", flush=True)
        kept = list(Path(folder).glob("*/*.raw"))
        size = sum(path.stat().st_size for path in kept)
        print(f"{len(kept)} of {len(records)} images on disk, {size / 2**20:.0f} MiB")
        for workers in asked.workers:
            maker = made(asked, labeled, unlabeled, DecodedCache(LIMIT, Path(folder)))
            rate = loader_rate(Stream(maker, workers), asked.batches)
            print(f"{workers} workers: {rate:.0f} images/s, {2 * asked.batch / rate:.4f} s a batch", flush=True)


def made(asked: argparse.Namespace, labeled: Dataset, unlabeled: Dataset, cache: DecodedCache | None) -> BatchMaker:
    """A maker of batches that has seen nothing yet."""
    height, width = (int(side) for side in asked.crop.split("x"))
    params = ViewParams(
        geometry=GeometryParams((height, width), asked.short_side),
        labeled_batch=asked.batch,
        unlabeled_batch=asked.batch,
        in_channels=asked.channels,
    )
    plan = ViewPlan(strong=asked.strong)
    return BatchMaker(replace(labeled, cache=cache), replace(unlabeled, cache=cache), plan, params, seed=0)


def seconds(maker: BatchMaker, batches: int) -> float:
    """Processor time of one batch, over one pass."""
    began = time.process_time()
    for step in range(batches):
        maker[step]
    return (time.process_time() - began) / batches


def arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--crop", default="154x238")
    parser.add_argument("--short-side", type=int)
    parser.add_argument("--channels", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="labelled images of a batch, and as many unlabelled ones")
    parser.add_argument("--strong", type=int, default=2, help="strong views of each unlabelled image")
    parser.add_argument("--labeled", type=int, default=32)
    parser.add_argument("--batches", type=int, default=60, help="of a pass")
    parser.add_argument("--repeat", action="store_true", help="take images again where a set has too few")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--cache", help="where the folder of the disk cache is made")
    return parser.parse_args()


if __name__ == "__main__":
    main()
