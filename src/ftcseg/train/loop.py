"""The only loop. It knows no method by name, and everything that happens in one step is visible here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeAlias

from ftcseg.methods.base import Method
from ftcseg.train.events import Emit, Evaluated, RolledBack, RunDone, RunStarted, Saved, Scores, Skipped, StepDone
from ftcseg.train.guard import Guard, NotFinite
from ftcseg.train.keeper import Keeper
from ftcseg.train.microbatch import Feed, Stream, detached, merged
from ftcseg.train.optim import Optim
from ftcseg.train.signals import Interrupted
from ftcseg.types import Clock, SemiBatch, StepResult

Judge: TypeAlias = Callable[[Method, Clock], Scores]
"""Scores every predictor and leaves the method as it was; raises Interrupted when asked to stop half way."""


def run(  # noqa: PLR0913, the loop's whole world, each thing by its name
    method: Method,
    stream: Stream,
    optim: Optim,
    keeper: Keeper,
    guard: Guard,
    emit: Emit,
    clock: Clock,
    judge: Judge,
    stop: Callable[[], bool],
) -> Clock:
    """Train until the clock runs out or somebody asks to stop; the place is saved either way."""
    keeper.begin(clock)  # a good state to return to, before the first risk is taken
    emit(RunStarted(clock, keeper.note))
    feed = Feed(stream, optim.accumulate)
    while not stop():
        try:
            if keeper.owes_scores(clock):
                guard.check_all()  # what is judged is kept
                score(method, keeper, emit, clock, judge)
            if clock.step >= clock.total:
                break
            guard.remember()  # a step that fails must leave no trace
            result = learn(method, feed.at(clock), optim, clock)
            norm = optim.collect()  # gradients agreed over processes, unscaled
            guard.check_step(result, norm)  # loss, gradient, statistics: still time to skip
            pace = method.pace(clock)
            optim.step(pace)  # clip, update, schedule
            guard.check_student()  # before a teacher can swallow a bad weight
            method.after_update(clock)  # teachers follow, queues turn
            guard.check_rest()
            rates = optim.rates(pace)
            clock = clock.tick()
            if method.pace(clock).step == 0:
                optim.forget()  # a student that begins anew has no past
            emit(StepDone(clock, result, norm, rates, len(feed.ids), feed.unreadable))
            if keeper.is_due(clock):
                keeper.save(clock)
                emit(Saved(clock, "last"))
        except NotFinite as trouble:
            clock = recover(trouble, feed.ids, optim, keeper, guard, emit, clock)
        except Interrupted:
            break
    feed.close()
    if keeper.save_where_it_stands(clock):
        emit(Saved(clock, "last"))
    guard.check_all()  # results are made of what is in memory
    emit(RunDone(clock, finished=clock.step >= clock.total and not keeper.owes_scores(clock)))
    return clock


def learn(method: Method, batches: Iterable[SemiBatch], optim: Optim, clock: Clock) -> StepResult:
    """Loss and gradients of one update, one batch at a time, so that only one graph is ever alive."""
    results = []
    for batch in batches:
        with optim.machine.precision():
            result = method.step(optim.machine.move(batch), clock)
        optim.backward(result.loss)
        results.append(detached(result))
    return merged(results)


def score(method: Method, keeper: Keeper, emit: Emit, clock: Clock, judge: Judge) -> None:
    """Have the predictors judged, and keep them."""
    began = time.perf_counter()
    scores = judge(method, clock)
    best = keeper.is_best(clock, scores)
    emit(Evaluated(clock, scores, best, time.perf_counter() - began))
    for name in keeper.worth_keeping(best=best):
        keeper.save(clock, name)
        emit(Saved(clock, name))


def recover(  # noqa: PLR0913, as above
    trouble: NotFinite, ids: tuple[str, ...], optim: Optim, keeper: Keeper, guard: Guard, emit: Emit, clock: Clock
) -> Clock:
    """Skip the step; where that does not help, go back to the last good state; where that does not help, stop."""
    ids = tuple(chain.from_iterable(optim.machine.gather(ids)))  # the bad file may be another process's
    blameless = optim.drop()
    if guard.may_skip(trouble, ids, blameless=blameless):
        clock = clock.tick()  # a skipped step is over: the place in the stream depends on the clock alone
        emit(Skipped(clock, trouble.what, ids))
        return clock
    guard.count_roll_back(trouble, clock)  # TrainingError when there have been too many
    back = keeper.roll_back()
    emit(RolledBack(back, clock.step, trouble.what, ids, guard.lr_scale))
    return back
