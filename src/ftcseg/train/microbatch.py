"""The batches of one update, and their results as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import torch

from ftcseg.errors import UsageError
from ftcseg.types import Clock, PseudoCounts, SemiBatch, StepResult

Stream: TypeAlias = Callable[[int], Iterator[SemiBatch]]
"""`stream(n)` yields the batches from the n-th on, for ever, and always the same ones."""


class Feed:
    """Hands out the batches that belong to a step, wherever the clock jumps."""

    ids: tuple[str, ...] = ()
    """The files handed out for the step, so far."""
    unreadable: tuple[str, ...] = ()
    """Files the stream could not read and replaced."""

    def __init__(self, stream: Stream, accumulate: int = 1) -> None:
        self._stream = stream
        self._accumulate = accumulate
        self._batches: Iterator[SemiBatch] = iter(())
        self._step = -1  # the step the open iterator comes to next

    def at(self, clock: Clock) -> Iterator[SemiBatch]:
        """The step's batches, one by one; a step always gets the same ones, however often it is taken."""
        if clock.step != self._step:
            self.close()
            self._batches = self._stream(clock.step * self._accumulate)
        self._step, self.ids, self.unreadable = clock.step + 1, (), ()
        for _ in range(self._accumulate):
            batch = next(self._batches, None)
            if batch is None:
                raise UsageError(f"The stream of batches ended at step {clock.step} of {clock.total}; it must not end.")
            self.ids += batch.ids
            self.unreadable += batch.skipped
            yield batch

    def close(self) -> None:
        """Let the stream put its workers away."""
        if hasattr(self._batches, "close"):
            self._batches.close()


@torch.no_grad()
def merged(results: Sequence[StepResult]) -> StepResult:
    """One result for the whole update: losses averaged, pixels counted together, no graph held."""
    names = {name: None for result in results for name in result.parts}  # a dict keeps the order
    return StepResult(
        loss=torch.stack([result.loss for result in results]).mean(),
        parts={
            name: torch.stack([result.parts[name] for result in results if name in result.parts]).mean()
            for name in names
        },
        pseudo=_together([result.pseudo for result in results if result.pseudo is not None]),
    )


def detached(result: StepResult) -> StepResult:
    """The same numbers without the graph that made them."""
    parts = {name: part.detach() for name, part in result.parts.items()}
    return StepResult(result.loss.detach(), parts, result.pseudo)


def _together(counts: Sequence[PseudoCounts]) -> PseudoCounts | None:
    if not counts:
        return None
    return PseudoCounts(
        seen=torch.stack([c.seen for c in counts]).sum(0),
        kept=torch.stack([c.kept for c in counts]).sum(0),
        conf=torch.stack([c.conf for c in counts]).sum(0),
    )
