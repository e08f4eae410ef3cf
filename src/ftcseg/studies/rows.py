"""The rows that several studies share, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ftcseg.studies.plan import Ask, Rows
from ftcseg.studies.results import Evidence, Result
from ftcseg.studies.statistics import Summary, summary
from ftcseg.studies.tables import Column

LABELS_ONLY, BASELINE, WITH_OPR, WITH_ATC, FTC = "M1 labels only", "M2 EMA", "M3 EMA+OPR", "M4 EMA+ATC", "M5 FTC-Seg"
EMBEDDED_SETTINGS = ("data.short_side=96", "evaluation.every=100", "evaluation.audit_images=40", "log_every=10")
"""What `ftcseg demo` trains with, so that its runs are cells of a study."""

_NO_OPR, _NO_ATC = "opr.layers=0", "thresholds=fixed"


def calibration_rows(ask: Ask) -> Rows:
    """M1 to M5 of the paper. M2 to M5 share everything but OPR and ATC: one reading of FTC-Seg with parts taken out."""
    return {
        LABELS_ONLY: ("supervised", ()),
        BASELINE: (ask.ftc, (_NO_OPR, _NO_ATC)),
        WITH_OPR: (ask.ftc, (_NO_ATC,)),
        WITH_ATC: (ask.ftc, (_NO_OPR,)),
        FTC: (ask.ftc, ()),
    }


def over_seeds(results: Sequence[Result], value: Callable[[Result], float | None]) -> Summary | None:
    """A number of these runs; None where no run has it."""
    values = [found for result in results if (found := value(result)) is not None]
    return summary(values) if values else None


def in_group(name: str) -> Callable[[Result], float | None]:
    """Reads the mean IoU of a group's classes."""
    return lambda result: result.group(name)


def column(
    heading: str,
    evidence: Evidence,
    value: Callable[[Result], float | None],
    dataset: str,
    labels: str,
    *,
    low: bool = False,
) -> Column:
    """What each row's runs on one set and label amount give; `low` where the lowest is best."""
    rows = evidence.rows()
    values = {row: over_seeds(evidence.of(row, dataset, labels), value) for row in rows}
    return Column(heading=heading, values=values, best="low" if low else "high")
