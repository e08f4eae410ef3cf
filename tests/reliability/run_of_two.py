"""A run of two processes whose second meets trouble: python run_of_two.py TROUBLE SET FOLDER [SETTING ...].

The second process is this script again, as `start_others` starts it; it alone arms the trouble.
"""

from __future__ import annotations

import os
import signal
import sys

from ftcseg import api
from ftcseg.errors import FtcsegError, ImageError
from ftcseg.train import fellows
from ftcseg.types import SemiBatch
from ftcseg.views.loader import BatchMaker

AT = 3
"""The second process's batch that the trouble comes with."""


def arm(trouble: str) -> None:
    make, calls = BatchMaker.__getitem__, iter(range(1000))

    def troubled(self: BatchMaker, step: int) -> SemiBatch:
        if next(calls) == AT:
            if trouble == "error":
                raise ImageError("frame_0007.png ends in its middle.", remedy="Copy it again.")
            os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[trouble])
        return make(self, step)

    BatchMaker.__getitem__ = troubled  # type: ignore[method-assign]


def main(trouble: str, frames: str, folder: str, *settings: str) -> None:
    if os.environ.get("LOCAL_RANK") == "1" and trouble != "none":
        arm(trouble)
    fellows.QUIET_SECONDS = 3.0 if trouble == "stop" else fellows.QUIET_SECONDS
    try:
        api.train(frames, method="supervised", labels=6, steps=6, out=folder, settings=settings)
    except FtcsegError as error:
        print(f"{type(error).__name__} {error.exit_code}: {error}", flush=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
