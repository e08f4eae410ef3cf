"""How fast this machine is, measured: training steps and what they consist of, options, curves, records that compare.

    spread.py    a median and the middle half; ratios of what was taken in the same round
    machine.py   the processor, the versions, and how fast it multiplies matrices
    record.py    what was measured, as a file: rows with a unit, and everything they depend on
    compare.py   two such files: what was lost, what was gained
    case.py      what is to be measured, in plain values that travel to another process
    rig.py       a run whose real loop takes one step at a time
    parts.py     where the time of a step goes: the loop's own functions, wrapped while it is watched
    flops.py     multiplications of a step
    plain_step.py  the same step as a textbook writes it, to compare with
    fresh.py     measurements that need a process of their own: peak memory, several processes
    step.py      `ftcseg bench step`
    scaling.py   `ftcseg bench scaling`
    ways.py      how a trained network can be asked: torch, compiled, ONNX Runtime, OpenVINO, 8 bits
    infer.py     `ftcseg bench infer`
    words.py bar.py page.py  what it comes to, in the terminal and on a page

To add a measurement: take its times with `spread.Spread` and `spread.ratios`, alternating
what is compared; ask `machine.RateMeter` in every round; say each result as a `record.Row` with its unit and which
way is better; hand rows and details to `record.record(kind, ...)`, `interrupted` among the details. Then `ftcseg bench
compare` and its exit code work for it without another line. What would disturb its neighbours (peak memory) goes
through `fresh.elsewhere`: add a line to its table ERRANDS. The command is a function in cli/bench.py; `with_record`
there prints, says what was written, and ends with 130 after Ctrl-C.
"""
