"""Two images in one: boxes or whole classes, applied alike to pixels, labels and confidences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ftcseg.types import Labeled

HALF = 0.5
"""Share of the view that AEL pastes where the wanted class is not found."""


@dataclass(frozen=True, slots=True)
class CutMixParams:
    """Where and how large boxes are (UniMatch V2)."""

    chance: float = 0.5
    area: tuple[float, float] = (0.02, 0.4)
    """Share of the view that a box covers."""
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    """Height of a box over its width."""
    tries: int = 50
    """Draws until a box fits; then the view stays whole."""


def draw_box(height: int, width: int, params: CutMixParams, rng: np.random.Generator) -> Tensor:
    """(H, W) bool, True inside the box; all False where chance decided against one."""
    box = torch.zeros(height, width, dtype=torch.bool)
    if rng.random() >= params.chance:
        return box
    for _ in range(params.tries):
        area = rng.uniform(*params.area) * height * width
        aspect = rng.uniform(*params.aspect)
        rows, columns = int(np.sqrt(area * aspect)), int(np.sqrt(area / aspect))
        top, left = int(rng.integers(0, height)), int(rng.integers(0, width))
        if top + rows <= height and left + columns <= width:
            box[top : top + rows, left : left + columns] = True
            return box
    return box


XOR_BOXES = 3
"""Boxes of one mask (CPS)."""
XOR_AREA = (0.25, 0.5)
"""Share of the view that a box would cover alone; divided among the boxes, which may overlap (CPS)."""


def draw_xor_boxes(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """(H, W) bool, the mask of CPS: three boxes, and where two of them overlap it is off again.

    Each draws an area and a shape, its height log-uniform between the area and 1 of the view, its width what is left.
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    for _ in range(XOR_BOXES):
        area = rng.uniform(*XOR_AREA)
        tall = area ** rng.random()
        shrink = (1 / XOR_BOXES) ** 0.5
        rows, columns = round(height * tall * shrink), round(width * area / tall * shrink)
        top, left = round((height - rows) * rng.random()), round((width - columns) * rng.random())
        mask[top : top + rows, left : left + columns] ^= True
    return mask


COW_SIGMAS = (13, 15, 17, 19, 21, 23, 25)
"""Blurs of a cow mask in pixels, for views of COW_CROP (Scherer et al. 2022)."""
COW_CROP = 513


def draw_cow_mask(height: int, width: int, rng: np.random.Generator) -> Tensor:
    """(H, W) bool, True in the blotches, about half of the view: noise, blurred and cut at its mean.

    The blotches keep their size in proportion to the view.
    """
    sigma = float(rng.choice(COW_SIGMAS)) * np.sqrt(height * width) / COW_CROP
    noise = ndimage.gaussian_filter(rng.random((height, width), dtype=np.float32), sigma)
    return torch.from_numpy(noise > noise.mean())


def share_box(height: int, width: int, share: float, rng: np.random.Generator) -> Tensor:
    """(H, W) bool, True inside a box of the view's own proportions that covers this share of it, anywhere inside it."""
    rows, columns = (max(1, round(side * np.sqrt(share))) for side in (height, width))
    top, left = int(rng.integers(0, height - rows + 1)), int(rng.integers(0, width - columns + 1))
    box = torch.zeros(height, width, dtype=torch.bool)
    box[top : top + rows, left : left + columns] = True
    return box


def object_box(region: Tensor, least: float, rng: np.random.Generator) -> Tensor | None:
    """(H, W) bool, the box around one connected piece of the region, drawn from those of at least `least` pixels.

    None where no piece is large enough. Pieces are connected by sides, not by corners.
    """
    pieces, _ = ndimage.label(region.cpu().numpy())
    sizes = np.bincount(pieces.ravel())[1:]  # 0 is what lies between the pieces
    (large,) = np.nonzero(sizes >= least)
    if not len(large):
        return None
    around = ndimage.find_objects(pieces)[rng.choice(large)]
    box = torch.zeros(region.shape, dtype=torch.bool)
    box[around] = True
    return box


def object_boxes(
    labels: Tensor, valid: Tensor, wanted: Sequence[int], least: float, rng: np.random.Generator
) -> Tensor:
    """(B, H, W) bool, a box around an object of the wanted class in each image; where there is none, half of the view.

    `least` is the smallest size of an object, as a share of the view.
    """
    height, width = labels.shape[-2:]
    boxes = []
    for image, known, class_id in zip(labels, valid, wanted, strict=True):
        box = object_box((image == class_id) & known, least * height * width, rng)
        boxes.append(share_box(height, width, HALF, rng) if box is None else box)
    return torch.stack(boxes).to(labels.device)


def class_region(labels: Tensor, classes: Sequence[int]) -> Tensor:
    """The pixels of these classes, bool of the labels' shape."""
    return torch.isin(labels, labels.new_tensor(list(classes)))


def copy_classes(labeled: Labeled, drawn: Sequence[Sequence[int]]) -> Labeled:
    """Labelled images with the pixels and labels of these classes, drawn for each, copied from their partners."""
    if labeled.partner is None:
        return labeled
    each = zip(labeled.partner.labels, drawn, strict=True)
    where = torch.stack([class_region(labels, classes) for labels, classes in each])
    images = paste(labeled.images, labeled.partner.images, where)
    return replace(labeled, images=images, labels=paste(labeled.labels, labeled.partner.labels, where))


def half_of_the_classes(labels: Tensor, valid: Tensor, rng: np.random.Generator) -> Tensor:
    """(B, H, W) bool, in each image the valid pixels of half of its classes, rounded down (ClassMix, Olsson 2021)."""
    regions = []
    for image, known in zip(labels, valid, strict=True):
        present = image[known].unique().tolist()
        chosen = rng.permutation(present)[: len(present) // 2].tolist()
        regions.append(class_region(image, chosen) & known)
    return torch.stack(regions)


def paste(values: Tensor, other: Tensor, where: Tensor) -> Tensor:
    """The values with those of `other` pasted in; (B, H, W) maps and (B, C, H, W) images with a (B, H, W) region."""
    return torch.where(where if values.dim() == where.dim() else where[:, None], other, values)


def paste_partner(values: Tensor, boxes: Tensor) -> Tensor:
    """Each item with the box of its partner pasted in; the partner is the same place in the reversed batch.

    Works on (B, H, W) maps and on (B, C, H, W) images with (B, H, W) boxes. A batch of one is its own partner.
    """
    return paste(values, values.flip(0), boxes)


def erase(images: Tensor, boxes: Tensor) -> Tensor:
    """Normalised images (B, C, H, W) with nothing but the mean colour inside the boxes, (B, H, W) bool."""
    return images.masked_fill(boxes[:, None], 0)
