"""Weights for a category that no label names: one transformer layer, asked pixel by pixel (VC, Chen et al. 2024).

    w_vc(x) = first token of Layer([x, w_1, ..., w_C])

x is what the classifier reads at a pixel, w_c are the classifier's weights.
"""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn


class WeightGenerator(nn.Module):
    """Makes for every pixel the weights of a class of its own."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        # No dropout: the weights are to say what the pixel is, not what it might be.
        self.layer = nn.TransformerEncoderLayer(width, 1, hidden, dropout=0.0, batch_first=True)

    def forward(self, embedding: Tensor, weights: Tensor) -> Tensor:
        """w_vc, (B, width, h, w), of a map of that shape beside (C, width) weights, as long as the shortest of these.

        Neither gets a gradient: only the layer learns to make weights. Only the first token is computed, since nobody
        asks for the others; the weights' keys and values are then the same for all pixels.
        """
        pixels, weights = embedding.detach().movedim(1, -1).flatten(0, 2), weights.detach()
        layer = self.layer
        tokens = layer.norm1(pixels + self._attend(pixels, weights))
        tokens = layer.norm2(tokens + layer.linear2(F.relu(layer.linear1(tokens))))
        made = F.normalize(tokens, dim=1) * weights.norm(dim=1).min()
        maps: Tensor = made.reshape(len(embedding), *embedding.shape[2:], weights.shape[1])
        return maps.movedim(-1, 1)

    def _attend(self, pixels: Tensor, weights: Tensor) -> Tensor:
        attention = self.layer.self_attn
        matrix, bias = attention.in_proj_weight, attention.in_proj_bias
        width = pixels.shape[1]
        query, key, value = F.linear(pixels, matrix, bias).chunk(3, dim=1)
        keys, values = F.linear(weights, matrix[width:], bias[width:]).chunk(2, dim=1)
        own = (query * key).sum(1, keepdim=True) / math.sqrt(width)
        others = query @ keys.T / math.sqrt(width)
        most = others.amax(1, keepdim=True).maximum(own)
        own, others = (own - most).exp(), (others - most).exp()
        read = (own * value + others @ values) / (own + others.sum(1, keepdim=True))
        answer: Tensor = attention.out_proj(read)
        return answer
