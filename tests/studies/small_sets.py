"""The embedded set of a study, made small."""

from __future__ import annotations

from functools import partial

import pytest

from ftcseg import api
from ftcseg.studies import drawing, sets


def shrink(patch: pytest.MonkeyPatch, frames: int) -> None:
    """Few frames, small ones, and figures that are coarse: what studies do with them is the same."""
    patch.setattr(sets, "FRAMES", frames)
    patch.setattr(api, "simulate", partial(api.simulate, size=(96, 96), workers=1))
    patch.setitem(drawing._STYLE, "savefig.dpi", 40)
