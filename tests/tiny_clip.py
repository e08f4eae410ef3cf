"""A CLIP of a few thousand numbers, with a tokenizer of single letters, saved to a folder."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch

transformers: Any = pytest.importorskip("transformers")

LETTERS = [*ascii_lowercase, *(f"{letter}</w>" for letter in ascii_lowercase)]
START, END = "<|startoftext|>", "<|endoftext|>"
VOCABULARY = {token: number for number, token in enumerate([*LETTERS, START, END])}
PATCH, WIDTH = 8, 16


def save_clip(folder: Path, *, text_width: int = 12, layers: int = 4, seed: int = 0) -> str:
    """A random CLIP in a folder; «a photo» is read letter by letter."""
    size = {"hidden_size": WIDTH, "intermediate_size": 32, "num_attention_heads": 2, "projection_dim": text_width}
    ends = {"bos_token_id": VOCABULARY[START], "eos_token_id": VOCABULARY[END], "pad_token_id": VOCABULARY[END]}
    text = {**size, **ends, "num_hidden_layers": 2, "vocab_size": len(VOCABULARY), "max_position_embeddings": 32}
    vision = {**size, "num_hidden_layers": layers, "image_size": 32, "patch_size": PATCH}
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=text_width)
    torch.manual_seed(seed)
    model = transformers.CLIPModel(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder)
    transformers.CLIPTokenizer(vocab=VOCABULARY, merges=[]).save_pretrained(folder)
    return str(folder)
