"""A RunConfig to objects. Below this file nobody has heard of configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch
from pydantic import TypeAdapter
from torch import Tensor

from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.evaluate.windows import nearest_multiple
from ftcseg.methods import find_method
from ftcseg.methods.base import Method
from ftcseg.methods.kit import Kit
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.opr_start import needs_data, start_prototypes
from ftcseg.nets.segmenter import Segmenter
from ftcseg.nets.weights import WeightsReport
from ftcseg.rng import seed_for
from ftcseg.teaching.thresholds.atc import ATC
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.teaching.thresholds.fixed import Fixed
from ftcseg.teaching.thresholds.flexmatch import FlexThresholds
from ftcseg.teaching.thresholds.freematch import FreeThresholds
from ftcseg.types import ClassTable
from ftcseg.views.geometry import GeometryParams, fit_channels, lay_image, lay_labels, whole
from ftcseg.views.loader import ViewParams


@dataclass(frozen=True, slots=True)
class Network:
    """A fresh network, how images are handed to it, and what became of its weights file."""

    net: Segmenter
    spec: ModelSpec
    weights: WeightsReport


def build_network(config: RunConfig, classes: ClassTable, in_channels: int) -> Network:
    """The network of a run; the same seed gives the same start."""
    torch.manual_seed(config.seed)
    net, report = build_model(
        config.model.encoder,
        config.model.head,
        len(classes),
        opr=config.opr,
        weights=config.model.weights,
        in_channels=in_channels,
        encoder_mode=config.model.mode,
        head_features=config.model.features,
        checkpointing=config.model.checkpointing,
    )
    encoder: Encoder = net.encoder
    spec = ModelSpec(
        encoder=config.model.encoder,
        head=config.model.head,
        head_features=config.model.features,
        classes=classes,
        mean=encoder.mean,
        std=encoder.std,
        in_channels=in_channels,
        opr=asdict(config.opr),
        short_side=config.data.short_side,
        multiple=encoder.multiple,
    )
    return Network(net, spec, report)


def build_method(
    config: RunConfig,
    network: Network,
    labeled: Dataset,
    pixels: Tensor,
    images: Tensor | None = None,
    *,
    resumed: bool = False,
) -> Method:
    """The method around a network; `resumed` as in `Kit`.

    `pixels` are the labelled pixels of each class, `images` the labelled images that show it.
    """
    _start_opr(config, network, labeled, pixels)
    kit = Kit(
        net=network.net,
        another=partial(_another, config, network.spec, labeled, pixels),
        thresholds=build_thresholds(config, pixels, images),
        teaching=config.teaching,
        classes=network.spec.classes,
        pixels=pixels,
        steps=config.steps,
        seed=config.seed,
        view=(network.spec.in_channels, *_crop(config, network.spec)) if config.data.crop else None,
        resumed=resumed,
    )
    entry = find_method(config.method)
    return entry.build(kit, TypeAdapter(entry.params).validate_python(config.params))


def _another(config: RunConfig, spec: ModelSpec, labeled: Dataset, pixels: Tensor, number: int) -> Segmenter:
    seed = seed_for(config.seed, "network", number) % 2**32
    made = build_network(replace(config, seed=seed), spec.classes, spec.in_channels)
    _start_opr(config, made, labeled, pixels)
    return made.net


def _start_opr(config: RunConfig, network: Network, labeled: Dataset, pixels: Tensor) -> None:
    """Prototypes that start from data, and the prior that judges them; nothing without OPR."""
    if network.net.opr is None:
        return
    if needs_data(config.opr):
        start_prototypes(network.net.opr, _labeled_maps(network, labeled))
    if config.opr.prior_correction:
        for _, stage in network.net.opr:
            stage.set_prior(pixels / pixels.sum())


RULES: Mapping[str, Callable[[RunConfig, Tensor, Tensor | None], Thresholds]] = {
    "fixed": lambda config, pixels, _: Fixed(len(pixels), config.tau),
    "atc": lambda config, pixels, images: ATC(len(pixels), config.atc, pixels, images),
    "flexmatch": lambda config, pixels, _: FlexThresholds(len(pixels), config.flexmatch),
    "freematch": lambda config, pixels, _: FreeThresholds(len(pixels), config.freematch),
}
"""What each value of the setting `thresholds` builds."""


def build_thresholds(config: RunConfig, pixels: Tensor, images: Tensor | None = None) -> Thresholds:
    """The threshold rule of a run, before it has seen anything; `pixels` and `images` as in `build_method`."""
    return RULES[config.thresholds](config, pixels, images)


@torch.no_grad()
def _labeled_maps(network: Network, labeled: Dataset) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Encoder maps and labels of every labelled image, as it is evaluated."""
    net, spec = network.net, network.spec
    was, _ = net.training, net.eval()
    for sample in labeled:
        height, width = sample.image.shape[:2]
        factor = spec.short_side / min(height, width) if spec.short_side else 1.0
        size = (
            nearest_multiple(round(height * factor), spec.multiple),
            nearest_multiple(round(width * factor), spec.multiple),
        )
        window = whole(height, width, size)
        image = lay_image(fit_channels(sample.image, spec.in_channels, sample.id), window, size)[None]
        mean, std = (image.new_tensor(v).view(1, -1, 1, 1) for v in (spec.mean, spec.std))
        assert sample.labels is not None
        yield net.features((image - mean) / std), lay_labels(sample.labels, window, size)[None]
    net.train(was)


def view_params(config: RunConfig, spec: ModelSpec) -> ViewParams:
    """How training views are made; crops fit the encoder."""
    geometry = GeometryParams(_crop(config, spec), config.data.short_side, config.data.scale, config.data.flip)
    return ViewParams(
        geometry,
        config.photometric,
        config.cutmix,
        config.data.labeled_batch,
        config.data.unlabeled_batch,
        spec.mean,
        spec.std,
        spec.in_channels,
    )


def _crop(config: RunConfig, spec: ModelSpec) -> tuple[int, int]:
    assert config.data.crop is not None, "resolve() chooses one"
    height, width = (nearest_multiple(side, spec.multiple) for side in config.data.crop)
    return height, width
