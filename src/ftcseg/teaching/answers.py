"""One step's questions to student and teacher, asked in as few forwards as they allow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from ftcseg.nets.drop import Perturb
from ftcseg.nets.norms import still_statistics
from ftcseg.nets.segmenter import Segmenter

Norms: TypeAlias = Literal["joint", "labeled"]
"""Who moves the batch statistics: labelled and strong images in one forward, or the labelled ones alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """What the classifiers read before they said it, each (B, width, h, w) at the head's own size."""

    labeled: Tensor
    strong: list[Tensor]  # one per strong view
    weak: Tensor  # the teacher's, without gradient
    taught: Tensor | None  # the teacher's on the labelled images, where it was asked


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What student and teacher said. Logits are (B, num_classes, H, W)."""

    labeled: Tensor
    strong: list[Tensor]  # one per strong view
    weak: Tensor  # the teacher's, without gradient
    maps: list[Tensor]  # the student's encoder maps of the labelled images, before OPR
    taught: Tensor | None = None  # the teacher's on the labelled images, where it was asked
    embedded: Embedded | None = None  # always, where `ask` or `ask_labeled` made the answers
    others: tuple[list[Tensor], list[Tensor]] | None = (
        None  # maps of weak and strong views, where `ask_alone` made them
    )


def ask_labeled(student: Segmenter, images: Tensor) -> Answers:
    """The student on labelled images, and nobody on anything else."""
    maps = student.features(images)
    read, logits = _decoded(student, maps, images.shape[-2:])
    return Answers(logits, [], logits[:0].detach(), maps, None, Embedded(read, [], read[:0].detach(), None))


def ask(
    student: Segmenter,
    teacher: Segmenter,
    shown: tuple[Tensor, Tensor, Sequence[Tensor]],
    perturb: Perturb | None = None,
    norms: Norms = "joint",
    teacher_on_labels: bool = False,
) -> Answers:
    """The teacher reads the weak views, the student the labelled images and the strong views.

    `shown` is (labelled images, weak views, strong views). A frozen encoder is the same for student and teacher, so
    everything goes through it once. `perturb` touches the strong views only. `teacher_on_labels` asks the teacher about
    the labelled images, too. A student that is its own teacher labels as it learns, in train mode; what it labels
    leaves no trace in its statistics.
    """
    labeled, weak, strong = shown
    size = labeled.shape[-2:]
    views = torch.cat(list(strong))
    frozen = _is_frozen(student)
    if frozen:
        maps = student.features(torch.cat([labeled, views, weak]))
        maps, weak_maps = _cut(maps, len(maps[0]) - len(weak))
        with torch.no_grad(), still_statistics(teacher):
            weak_read, weak_logits = _decoded(teacher, weak_maps, size)
        labeled_maps, strong_maps = _cut(maps, len(labeled))
    else:
        with torch.no_grad(), still_statistics(teacher):
            weak_read, weak_logits = _decoded(teacher, teacher.features(weak), size)
        labeled_maps, strong_maps = _features(student, labeled, views, norms)
    with still_statistics(student) if norms == "labeled" else nullcontext():  # heads have norms too
        strong_read, strong_logits = _decoded(student, strong_maps, size, perturb)
    taught_read, taught = None, None
    if teacher_on_labels:
        with torch.no_grad(), still_statistics(teacher):
            maps = labeled_maps if frozen else teacher.features(labeled)
            taught_read, taught = _decoded(teacher, maps, size)
    read, logits = _decoded(student, labeled_maps, size)
    embedded = Embedded(read, list(strong_read.chunk(len(strong))), weak_read, taught_read)
    return Answers(logits, list(strong_logits.chunk(len(strong))), weak_logits, labeled_maps, taught, embedded)


def ask_student(
    student: Segmenter, labeled: Tensor, strong: Sequence[Tensor], weak: Tensor, norms: Norms = "joint"
) -> Answers:
    """The student reads the labelled images, and strong views that were made of what a teacher had said: `weak`."""
    size, views = labeled.shape[-2:], torch.cat(list(strong))
    labeled_maps, strong_maps = _features(student, labeled, views, norms)
    with still_statistics(student) if norms == "labeled" else nullcontext():
        strong_logits = student.decode(strong_maps, size)
    return Answers(student.decode(labeled_maps, size), list(strong_logits.chunk(len(strong))), weak, labeled_maps)


def ask_alone(
    student: Segmenter, shown: tuple[Tensor, Tensor, Sequence[Tensor]], perturb: Perturb, norms: Norms = "joint"
) -> tuple[Answers, Tensor]:
    """One network in every role, `shown` as in `ask`; and its logits for weak views whose features are perturbed.

    The weak views go with the labelled ones and the strong ones on their own, as in UniMatch V1; a frozen encoder sees
    everything at once. The weak views are labelled in train mode, from the same features that are then perturbed.
    """
    labeled, weak, strong = shown
    size, views, frozen = labeled.shape[-2:], torch.cat(list(strong)), _is_frozen(student)
    if frozen or norms == "labeled":
        labeled_maps, rest = _features(student, labeled, torch.cat([weak, views]), "joint" if frozen else norms)
        weak_maps, strong_maps = _cut(rest, len(weak))
    else:
        labeled_maps, weak_maps = _features(student, labeled, weak, norms)
        strong_maps = student.features(views)
    with still_statistics(student) if norms == "labeled" else nullcontext():
        with torch.no_grad():
            weak_logits = student.decode(weak_maps, size)
        disturbed = student.decode(weak_maps, size, perturb)
        strong_logits = student.decode(strong_maps, size)
    logits, chunks = student.decode(labeled_maps, size), list(strong_logits.chunk(len(strong)))
    return Answers(logits, chunks, weak_logits, labeled_maps, others=(weak_maps, strong_maps)), disturbed


def _is_frozen(student: Segmenter) -> bool:
    return not any(p.requires_grad for p in student.encoder.parameters())


def _features(student: Segmenter, labeled: Tensor, views: Tensor, norms: Norms) -> tuple[list[Tensor], list[Tensor]]:
    if norms == "joint":
        return _cut(student.features(torch.cat([labeled, views])), len(labeled))
    labeled_maps = student.features(labeled)
    with still_statistics(student.encoder):
        return labeled_maps, student.features(views)


def _decoded(
    net: Segmenter, maps: list[Tensor], size: Sequence[int], perturb: Perturb | None = None
) -> tuple[Tensor, Tensor]:
    embedding = net.embed(maps, perturb)
    return embedding, net.classify(embedding, size)


def _cut(maps: list[Tensor], at: int) -> tuple[list[Tensor], list[Tensor]]:
    return [m[:at] for m in maps], [m[at:] for m in maps]
