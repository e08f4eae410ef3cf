"""What notebooks and the command line call: each command as a function of the same name."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from ftcseg import files
from ftcseg.data import describe, fetch
from ftcseg.data import split as splitting
from ftcseg.data.dataset import Dataset, open_dataset
from ftcseg.data.describe import Description
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.doctor import as_json as doctor_json
from ftcseg.data.images import MAX_PIXELS, read_image
from ftcseg.data.index import open_source
from ftcseg.data.sets import data_root, sheet_named
from ftcseg.data.simulate import SimParams, class_table, part_of, simulate_frame
from ftcseg.data.split import Candidate, Split, parse_amount
from ftcseg.data.split_files import read_split, write_split
from ftcseg.data.writing import claim, write_image, write_labels
from ftcseg.errors import DataError, UsageError
from ftcseg.parallel import Progress, map_in_order, silent
from ftcseg.report import dataset_page as report_page
from ftcseg.rng import random_for
from ftcseg.types import MaskCoding
from ftcseg.views import corrupt as corruptions

__all__ = [
    "Dataset",
    "Split",
    "corrupt",
    "dataset_page",
    "doctor",
    "get",
    "open_dataset",
    "read_split",
    "simulate",
    "split",
]

_SEED_BOUND = 2**32


def doctor(
    path: str | Path,
    *,
    write: str | Path | None = None,
    root: str | Path | None = None,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> Examination:
    """Find out what a folder, manifest or named set holds and what is wrong with it; `write` a dataset.yaml.

    Example: `ftcseg.doctor("frames/", write="frames/dataset.yaml").findings`
    """
    if max_pixels is not None and max_pixels < 1:
        raise UsageError(f"A limit of {max_pixels} pixels lets no image through. Ask for at least 1.")
    examination = examine_set(path, root=_path(root), max_pixels=max_pixels, workers=workers, progress=progress)
    if write is not None:
        _refuse_no_classes(examination)
        describe.save(examination.description, Path(write))
    return examination


def dataset_page(found: Examination, out: str | Path, pictures: int = 12) -> Path:
    """Write an HTML page about an examined set: its frames and masks first, then classes and findings."""
    dataset = Dataset(found.description, found.records)
    samples = []
    for index in _telling_images(found, pictures):
        with suppress(DataError):  # what cannot be shown is among the findings
            samples.append(dataset[index])
    text = report_page.dataset_page(doctor_json(found), found.description.classes, samples)
    files.write_text(Path(out), text)
    return Path(out)


def _telling_images(found: Examination, count: int) -> list[int]:
    """For each class from the rarest, the image that shows most of it; then images evenly through the set."""
    chosen: list[int] = []
    for row in sorted(found.classes, key=lambda c: c.pixels):
        holding = [(pixels.get(row.id, 0), -i) for i, pixels in enumerate(found.pixels) if pixels]
        if holding and max(holding)[0] > 0 and row.group != "background":
            index = -max(holding)[1]
            chosen += [index] if index not in chosen else []
    step = max(1, len(found.records) // max(1, count))
    for index in range(0, len(found.records), step):
        chosen += [index] if index not in chosen else []
    return chosen[:count]


def _refuse_no_classes(examination: Examination) -> None:
    if len(examination.description.classes) == 0 and any(r.mask is not None for r in examination.records):
        worst = examination.errors[0]
        raise DataError(f"The masks could not be understood: {worst.detail}", remedy=worst.remedy, kind=worst.kind)


def split(
    dataset: str | Path,
    labels: str | int = "2%",
    *,
    seed: int = 0,
    out: str | Path | None = None,
    by_sequence: bool = False,
    long_tail: float | None = None,
    balanced: str | None = None,
    val: str | int | None = None,
    root: str | Path | None = None,
    progress: Progress = silent,
) -> Split:
    """Draw which training images count as labelled; `out` writes the lists, with a hash, as files.

    `labels` is a number of images or a percentage of the training images that have masks. `balanced` is "image" or
    "pixel"; `val` redraws the validation part from the training images (and from a previous validation part).
    """
    amount = parse_amount(str(labels))
    if not 0 <= seed < _SEED_BOUND:
        raise UsageError(f"The seed {seed} is out of range. Use a whole number from 0 to {_SEED_BOUND - 1}.")
    examination = examine_set(dataset, root=_path(root), progress=progress)
    candidates, unmasked, held = _candidates(examination, redraw_val=val is not None)
    options: dict[str, splitting.Option] = {}
    if val is not None:
        kept, drawn = splitting.hold_out(candidates, parse_amount(str(val)), seed, by_sequence=by_sequence)
        candidates = list(kept)
        held["val"] = [c.id for c in drawn]
        options["val"] = str(val)
        if by_sequence:  # a frame without a mask must not carry the held-out scenes back into training
            scenes = {c.sequence for c in drawn if c.sequence}
            unmasked = [c for c in unmasked if c.sequence not in scenes]
    thin: dict[int, float] = {}
    if balanced is not None:
        groups = {row.id: row.group for row in examination.classes}
        balance = splitting.balance(candidates, groups, seed, level=balanced)
        candidates, thin = list(balance.kept), dict(balance.thin)
        options["balanced"] = balanced
    classes = examination.description.classes
    drawn_split = splitting.draw(candidates, amount, seed, classes, unlabeled_extra=unmasked, by_sequence=by_sequence)
    if long_tail is not None:
        drawn_split = splitting.long_tail(drawn_split, candidates, long_tail, classes)
    result = replace(drawn_split, options={**drawn_split.options, **options}, thin=thin)
    if out is not None:
        write_split(Path(out), result, examination, held)
    return result


def _candidates(
    examination: Examination, redraw_val: bool
) -> tuple[list[Candidate], list[Candidate], dict[str, list[str]]]:
    """Training images with usable masks, those without, and the images of the other parts."""
    training = {"train", "val"} if redraw_val else {"train"}
    masked: list[Candidate] = []
    unmasked: list[Candidate] = []
    held: dict[str, list[str]] = {"val": [], "test": []}
    rows = zip(examination.records, examination.facts, examination.pixels, examination.sequences.of, strict=True)
    for record, facts, pixels, sequence in rows:
        if facts.image.problem is not None:
            continue
        if record.part not in training:
            held[record.part].append(record.image)
        elif pixels:
            masked.append(Candidate(record.image, pixels, sequence))
        elif record.mask is None:
            unmasked.append(Candidate(record.image, {}, sequence))
    if not masked:
        name = examination.description.name
        raise UsageError(
            f"No training image of {name} has a usable mask. See «ftcseg doctor» for why; label a few first."
        )
    return masked, unmasked, held


def simulate(
    out: str | Path,
    images: int = 400,
    *,
    seed: int = 0,
    classes: int = 8,
    noise: float = 0.5,
    imbalance: float = 20.0,
    size: tuple[int, int] = (240, 160),
    workers: int | None = None,
    progress: Progress = silent,
) -> Path:
    """Write a simulated sonar set (images/, masks/, dataset.yaml), a fifth of it for test; returns its folder."""
    if images < 1:
        raise UsageError(f"{images} images are none. Ask for at least 1.")
    params = SimParams(classes=classes, noise=noise, imbalance=imbalance, height=size[0], width=size[1])
    folder = Path(out)
    claim(folder, {"command": "simulate", "images": images, "seed": seed, **asdict(params)}, "simulate.json")
    frame = partial(_simulate_one, folder, seed, params)
    for done, _ in enumerate(map_in_order(frame, range(images), workers), 1):
        progress(done, images)
    table = class_table(params)
    coding = MaskCoding("ids", values={c.id: c.id for c in table})
    describe.save(Description(folder.name, folder, "images-masks", table, coding), folder / "dataset.yaml")
    return folder


def _simulate_one(folder: Path, seed: int, params: SimParams, index: int) -> None:
    name = f"{part_of(index)}/sonar-{index:06d}.png"
    mask = folder / "masks" / name
    if mask.is_file():
        return  # written last, so its image is there too: an interrupted run goes on here
    image, labels = simulate_frame(seed, index, params)
    write_image(folder / "images" / name, image[:, :, None])
    write_labels(mask, labels.astype("int16"))


@dataclass(frozen=True, slots=True)
class _Corruption:
    """What to do to each image of a set; travels to worker processes."""

    source: Path
    out: Path
    kind: str
    severity: int
    seed: int
    max_pixels: int

    def __call__(self, name: str) -> str | None:
        """Corrupt one image; returns what was wrong with it, if anything."""
        target = self.out / name
        if target.is_file():
            return None
        try:
            pixels = read_image(files.inside(self.source, name), self.max_pixels)
        except DataError as error:
            return error.what
        rng = random_for(self.seed, "corrupt", self.kind, self.severity, name)
        write_image(target, corruptions.corrupt(pixels, self.kind, self.severity, rng))
        return None


def corrupt(
    source: str | Path,
    out: str | Path,
    *,
    kind: str = "speckle",
    severity: int = 5,
    seed: int = 0,
    root: str | Path | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[str]:
    """Write a copy of a set whose images are corrupted; masks, lists and everything else are copied untouched.

    Returns one sentence for every image that could not be read and was left out.
    """
    corruptions.check(kind, severity)
    found = open_source(source, _path(root))
    target = Path(out)
    if target.resolve().is_relative_to(found.root.resolve()) or found.root.resolve().is_relative_to(target.resolve()):
        raise UsageError(f"{target} overlaps the source {found.root}. Choose a folder outside of it.")
    recipe = {"command": "corrupt", "source": found.name, "kind": kind, "severity": severity, "seed": seed}
    claim(target, recipe, "corrupt.json")
    limit = found.description.max_pixels if found.description else None
    work = _Corruption(found.root, target, kind, severity, seed, limit or MAX_PIXELS)
    names = [record.image for record in found.found.records]
    problems: list[str] = []
    for done, problem in enumerate(map_in_order(work, names, workers), 1):
        problems += [problem] if problem else []
        progress(done, len(names))
    _copy_rest(found.root, target, set(names))
    return problems


def _copy_rest(root: Path, out: Path, images: set[str]) -> None:
    for path in sorted(root.rglob("*")):
        name = files.relative(root, path)
        if path.is_file() and not path.is_symlink() and name not in images and not (out / name).exists():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, out / name)


def get(name: str, *, root: str | Path | None = None, progress: fetch.StageProgress = fetch.quiet) -> Path:
    """Download a public named set below `root` or FTCSEG_DATA; returns the folder it is in."""
    sheet = sheet_named(name)
    base = data_root(_path(root))
    if base is None:
        raise UsageError("Say where sets are kept: --root FOLDER, or set FTCSEG_DATA.")
    return fetch.get(sheet, base, progress=progress)


def _path(value: str | Path | None) -> Path | None:
    return None if value is None else Path(value)
