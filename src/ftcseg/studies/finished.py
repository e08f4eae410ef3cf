"""A finished run opened for measuring: its networks as any checkpoint has them, and its images with their masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ftcseg.data.dataset import Dataset
from ftcseg.data.doctor import Examination, examine_set
from ftcseg.data.split import Split
from ftcseg.data.split_files import read_split
from ftcseg.errors import UsageError
from ftcseg.files import read_json
from ftcseg.inference import MODEL, places_in, same_classes
from ftcseg.nets.folder import WEIGHTS, ModelSpec, build_net, fill, read_spec
from ftcseg.nets.segmenter import Segmenter
from ftcseg.train import checkpoint
from ftcseg.train.keeper import FOLDER


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun:
    """What a run folder and its set hold between them."""

    folder: Path
    spec: ModelSpec
    split: Split
    held: dict[str, list[str]]
    """Images of the parts val and test."""
    examination: Examination

    @property
    def groups(self) -> dict[int, Any]:
        """Class id -> background, head, middle or tail, as the run was trained with."""
        return self.spec.groups

    def labeler(self, name: str = "last") -> Segmenter:
        """The network that makes pseudo-labels, in evaluation mode."""
        return self._network(str(self._places()["labeler"]), name)

    def predictor(self, name: str = "last") -> Segmenter:
        """The network that a user of the run is given, in evaluation mode."""
        return self._network(next(iter(self._places()["predictors"].values())), name)

    def unlabeled(self) -> Dataset:
        """The unlabelled training images with masks that training never saw."""
        images = self._images().only(list(self.split.unlabeled)).labeled()
        if not len(images):
            raise UsageError(
                f"None of the unlabelled images of {self.folder} has a mask, so nothing can be measured on them. "
                "Take a set whose training part has masks."
            )
        return images

    def judged(self) -> Dataset:
        """The images that the run is evaluated on."""
        scores = read_json(self.folder / "scores.json")
        part = str(scores.get("part")) if isinstance(scores, dict) else ""
        return self._images().only(self.held.get(part, [])).labeled()

    def sequences(self) -> dict[str, str]:
        """Image -> its sequence."""
        names = [record.image for record in self.examination.records]
        return dict(zip(names, self.examination.sequences.of, strict=True))

    def _images(self) -> Dataset:
        return Dataset(self.examination.description, self.examination.records)

    def _places(self) -> dict[str, Any]:
        return places_in(self.folder)

    def _network(self, place: str, name: str) -> Segmenter:
        if not checkpoint.exists(self.folder / FOLDER, name):
            raise UsageError(f"The run {self.folder} has no checkpoint «{name}». Was it trained with keep_at?")
        net = build_net(self.spec)
        fill(net, checkpoint.read(self.folder / FOLDER, name).path / WEIGHTS, f"{place}.")
        return net.eval()


def open_run(folder: Path, source: str, root: Path | None) -> FinishedRun:
    """A run, and the set it was trained on: `source` and `root` are those of a `Bench`."""
    spec = read_spec(folder / MODEL)
    examination = examine_set(source, root=root)
    same_classes(spec.classes, examination.description.classes)
    split, held = read_split(folder)
    return FinishedRun(folder, spec, split, held, examination)
