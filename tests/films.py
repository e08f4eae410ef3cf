"""Small films, written frame by frame."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray


def film(path: Path, frames: Iterable[NDArray[np.uint8]], codec: str = "ffv1", kept_as: str = "gray") -> Path:
    """A film of (H, W) or (H, W, 3) frames, ten a second; by default it keeps every grey value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = None
        for pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="gray" if pixels.ndim == 2 else "rgb24")
            if stream is None:
                stream = container.add_stream(codec, rate=10)
                stream.width, stream.height, stream.pix_fmt = frame.width, frame.height, kept_as
            container.mux(stream.encode(frame))
        assert stream is not None
        container.mux(stream.encode())
    return path


def plain_frames(*values: int, size: tuple[int, int] = (24, 32)) -> list[NDArray[np.uint8]]:
    """One frame of a single grey for each value."""
    return [np.full(size, value, np.uint8) for value in values]
