"""What OPR adds to any method: its losses, and a look at how it is doing."""

from __future__ import annotations

import torch
from torch import Tensor

from ftcseg.nets.segmenter import Segmenter


def feature_losses(student: Segmenter, maps: list[Tensor], labels: Tensor) -> dict[str, Tensor]:
    """Weighted L_O and the probes' cross-entropy; nothing without OPR."""
    if student.opr is None:
        return {}
    params = student.opr.params
    return {
        "ortho": params.lambda_o * student.overlap(),
        "probe": params.probe_weight * student.probe_loss(maps, labels),
    }


class FeatureWatch:
    """Keeps the last step's encoder maps, so that the log can say what OPR does to them. Nothing of it is saved."""

    def __init__(self) -> None:
        self._maps: list[Tensor] = []

    def see(self, maps: list[Tensor]) -> None:
        """Remember these maps, without their graph."""
        self._maps = [m.detach() for m in maps]

    def facts(self, student: Segmenter) -> dict[str, Tensor]:
        """Per OPR stage, shallow to deep: open gates, the size of the correction, prototype overlap."""
        if student.opr is None or not self._maps:
            return {}
        stages = student.diagnostics(self._maps)
        return {
            "open_gates": torch.tensor([s.open_gates for s in stages]),
            "change": torch.tensor([s.change for s in stages]),
            "overlap": torch.tensor([s.overlap for s in stages]),
        }
