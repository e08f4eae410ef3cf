"""CLIP's image encoder as MaskCLIP reads it, and CLIP's words: maps that can be compared with text at every place.

In the last block every place listens to itself alone: the value and output projections stay, queries and keys do not.
So its dense embeddings keep their places and still lie in the space of the text embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ftcseg.errors import FetchError, FtcsegError, UsageError
from ftcseg.nets.encoders.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Encoder,
    Options,
    fit_input,
    fit_stats,
    park_unused,
    require_multiple,
    together,
)
from ftcseg.nets.encoders.hub import library, place_of, quiet, read_config, stats_of
from ftcseg.nets.weights import HUB, KeyMap, WeightsError, WeightsReport, hub_remedy, load_weights

MODEL_TYPES = ("clip", "clip_vision_model")
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
LEAST_LAYERS = 3  # two whose maps are read, and the last
OTHER_KEYS = r"^(text_model|text_projection|logit_scale|vision_model\.embeddings\.position_ids)"
"""Keys of a published CLIP that its image encoder has no use for."""
INPUT = "vision_model.embeddings.patch_embedding.weight"


class Block(nn.Module):
    """One block of the encoder, made of transformers' parts."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = (
            layer.layer_norm1,
            layer.self_attn,
            layer.layer_norm2,
            layer.mlp,
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, 1 + places, width) as it came."""
        heard: Tensor = tokens + self.attention(self.norm1(tokens))[0]
        added: Tensor = self.mlp(self.norm2(heard))
        return heard + added


class Dense(Block):
    """The last block, in which nobody listens to anybody else, and the way into the space of text."""

    def __init__(self, layer: Any, norm: nn.Module, projection: nn.Module) -> None:
        super().__init__(layer)
        self.norm, self.projection = norm, projection

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, 1 + places, text width)."""
        heard: Tensor = tokens + self.attention.out_proj(self.attention.v_proj(self.norm1(tokens)))
        dense: Tensor = self.projection(self.norm(heard + self.mlp(self.norm2(heard))))
        return dense


class ClipEncoder(Encoder):
    """Maps of the first block, of the blocks after a third and two thirds of the way (0, 4 and 8 of 12), and dense.

    All have the size of the patches; the deepest one is as wide as a text embedding.
    """

    input_weight = "embeddings.patch_embedding.weight"

    def __init__(self, model: Any, stats: tuple[Sequence[float], Sequence[float]], source: str) -> None:
        super().__init__()
        vision = model.vision_model
        layers = list(vision.encoder.layers)
        self.source = source
        self.embeddings, self.norm = vision.embeddings, vision.pre_layrnorm
        self.layers = nn.ModuleList(Block(layer) for layer in layers[:-1])
        self.last = Dense(layers[-1], vision.post_layernorm, model.visual_projection)
        self.taps = (0, len(layers) // 3, min(2 * len(layers) // 3, len(layers) - 2))
        patch: nn.Conv2d = self.embeddings.patch_embedding
        self.multiple, self.text_width = int(patch.kernel_size[0]), int(model.visual_projection.out_features)
        self.channels = (patch.out_channels,) * len(self.taps) + (self.text_width,)
        self.mean, self.std = (fit_stats(values, patch.in_channels) for values in stats)
        names = (f"last.attention.{part}_proj.{kind}" for part in "qk" for kind in ("weight", "bias"))
        self.unused = frozenset(names)
        park_unused(self)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Four maps at the size of the patches."""
        require_multiple(images, self.multiple)
        size = [side // self.multiple for side in images.shape[-2:]]
        tokens = self.norm(self.embeddings(images, True))  # with positions for images of any size
        maps = []
        for index, layer in enumerate(self.layers):
            tokens = layer(tokens)
            maps += [tokens] * self.taps.count(index)
        return [_laid_out(t, size) for t in (*maps, self.last(tokens))]

    def blocks(self) -> list[nn.Module]:
        """The patches, then every block."""
        return [together(self.embeddings, self.norm), *self.layers, self.last]

    def train_attention_only(self) -> None:
        """Take everything out of training but attention and positions: SemiVL's «spatial» fine-tuning."""
        for name, parameter in self.named_parameters():
            if ".attention." not in name and "position_embedding" not in name:
                parameter.requires_grad_(False)


def is_clip(name: str) -> bool:
    """Whether a folder or a name on the hub is a CLIP."""
    with quiet():
        return str(read_config(name, place_of(name)).model_type) in MODEL_TYPES


def build(name: str, weights: object, options: Options) -> tuple[ClipEncoder, WeightsReport]:
    """The encoder with its own weights ("default"), those of a file with the same names, or random ones (None)."""
    place = place_of(name)
    kind = library().CLIPVisionModelWithProjection
    with quiet():
        config = library().CLIPVisionConfig.from_pretrained(place)
        if config.num_hidden_layers < LEAST_LAYERS:
            raise UsageError(f"{name} has {config.num_hidden_layers} layers; at least {LEAST_LAYERS} are needed.")
        stats = _stats(place)
        source = place if weights == "default" else weights
        config.num_channels = options.in_channels
        model, report = kind(config), WeightsReport("no weights")
        if source is not None:
            keys = KeyMap(ignored=(OTHER_KEYS,), reshapes={INPUT: fit_input})
            where = f"{HUB}{place}" if weights == "default" and name.startswith(HUB) else str(source)
            report = load_weights(model, where, keys)
    return ClipEncoder(model, stats, name), report


@torch.no_grad()
def embed_texts(name: str, texts: Sequence[str]) -> Tensor:
    """What CLIP makes of each text, (len(texts), text width), at length one."""
    place = place_of(name)
    with quiet(), _named(name, place):
        read_config(name, place)  # refuses what names code of its own
        local = not name.startswith(HUB)
        words = library().AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=local)
        model, info = library().CLIPTextModelWithProjection.from_pretrained(
            place, output_loading_info=True, weights_only=True, dtype=torch.float32, local_files_only=local
        )
        if info["missing_keys"]:
            raise WeightsError(
                f"{name} holds no text model: {len(info['missing_keys'])} of its tensors are missing.",
                remedy="Give a whole CLIP, image and text.",
            )
        tokens = words(list(texts), padding=True, return_tensors="pt")
        room = int(model.config.max_position_embeddings)
        if tokens["input_ids"].shape[1] > room:
            longest = max(texts, key=len)
            raise UsageError(f"The prompt {longest!r} is longer than the {room} tokens that {name} reads. Shorten it.")
        embeddings: Tensor = model.eval()(**tokens).text_embeds
    return F.normalize(embeddings, dim=1)


def _laid_out(tokens: Tensor, size: Sequence[int]) -> Tensor:
    """(B, 1 + places, width) as (B, width, h, w), without the class token."""
    places = tokens[:, 1:].transpose(1, 2)
    return places.reshape(*places.shape[:2], *size)


def _stats(place: str) -> tuple[Sequence[float], Sequence[float]]:
    found = stats_of(place)
    return (CLIP_MEAN, CLIP_STD) if found == (IMAGENET_MEAN, IMAGENET_STD) else found  # none were published


@contextmanager
def _named(name: str, place: str) -> Iterator[None]:
    """Whatever goes wrong in reading CLIP's words, said with its name."""
    try:
        yield
    except FtcsegError:
        raise
    except Exception as error:  # a tokenizer that is not there, a connection that is not, a file that is no CLIP's
        if name.startswith(HUB):
            raise FetchError(hub_remedy(place)) from error
        raise WeightsError(
            f"The words of {name} cannot be read ({type(error).__name__}: {error}).",
            remedy="A CLIP's folder holds config.json, model.safetensors and the files of its tokenizer.",
        ) from error
