"""Losses that compare answers instead of labels."""

from __future__ import annotations

from torch import Tensor


def consistency(logits: Tensor, teacher_logits: Tensor, valid: Tensor) -> Tensor:
    """Mean squared distance of the two networks' probabilities over valid pixels and classes (Mean Teacher).

    Logits are (B, C, H, W), `valid` (B, H, W) bool. No gradient reaches the teacher; no valid pixel costs nothing.
    """
    distance = (logits.softmax(1) - teacher_logits.detach().softmax(1)).square().mean(1)
    return (distance * valid).sum() / valid.sum().clamp(min=1)
