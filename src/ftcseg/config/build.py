"""A RunConfig to objects. Below this file nobody has heard of configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from ftcseg.config.schema import RunConfig
from ftcseg.data.dataset import Dataset
from ftcseg.errors import UsageError
from ftcseg.evaluate.windows import nearest_multiple
from ftcseg.methods import METHODS
from ftcseg.methods.base import Method
from ftcseg.nets.build import build_model
from ftcseg.nets.encoders.base import Encoder
from ftcseg.nets.folder import ModelSpec
from ftcseg.nets.opr_start import needs_data, start_prototypes
from ftcseg.nets.segmenter import Segmenter
from ftcseg.nets.weights import WeightsReport
from ftcseg.teaching.pair import Pair
from ftcseg.teaching.thresholds.atc import ATC
from ftcseg.teaching.thresholds.base import Thresholds
from ftcseg.teaching.thresholds.fixed import Fixed
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
    if config.model.checkpointing:
        raise UsageError("No network of a run trades time for memory yet. Leave out model.checkpointing.")
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


def build_method(config: RunConfig, network: Network, labeled: Dataset, pixels: Tensor) -> Method:
    """The method around a network; `pixels` are the labelled pixels of each class."""
    net = network.net
    if net.opr is not None:
        if needs_data(config.opr):
            start_prototypes(net.opr, _labeled_maps(network, labeled))
        if config.opr.prior_correction:
            for _, stage in net.opr:
                stage.set_prior(pixels / pixels.sum())
    pair = Pair(net, _thresholds(config, pixels), config.teaching)
    return METHODS[config.method].build(pair, config.seed)


def _thresholds(config: RunConfig, pixels: Tensor) -> Thresholds:
    if config.thresholds == "atc":
        if config.atc.acc_model != "student":  # a Pair hands over the student's answers, whatever is set
            raise UsageError("No method asks its teacher about labels yet. Leave out atc.acc_model.")
        return ATC(len(pixels), config.atc, pixels)
    return Fixed(len(pixels), config.tau)


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
    assert config.data.crop is not None, "resolve() chooses one"
    height, width = (nearest_multiple(side, spec.multiple) for side in config.data.crop)
    geometry = GeometryParams((height, width), config.data.short_side, config.data.scale, config.data.flip)
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
