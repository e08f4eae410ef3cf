"""Ask the databases of known weaknesses about every version of constraints.txt, by pip-audit.

.venv/bin/python scripts/audit.py

Ends with 0 where every version was judged and nothing is known of it that is not explained below, with 1 where
something is, and with 3 where not every version could be judged: pip-audit alone calls that clean.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributions import ROOT

TOOL = "pip-audit==2.10.1"
HOME = ROOT / ".venv" / "audit"
"""Its own environment: what it brings along is not ours to run with."""
SERVICES = ("pypi", "osv")
EXPLAINED: Mapping[str, str] = {}
"""Advisories that do not touch ftcseg, by id, each with the reason."""
CLEAN, WEAK, UNJUDGED = 0, 1, 3


@dataclass(frozen=True)
class Verdict:
    """What one service said."""

    judged: int = 0
    skipped: tuple[str, ...] = ()
    """Names it knows nothing about."""
    weak: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Advisories by name and version, the explained ones left out."""


def verdict_of(report: Mapping[str, Any], explained: Mapping[str, str] = EXPLAINED) -> Verdict:
    """What pip-audit's JSON says."""
    judged = [one for one in report["dependencies"] if "vulns" in one]
    weak = {}
    for one in judged:
        ids = [found["id"] for found in one["vulns"] if not {found["id"], *found.get("aliases", ())} & explained.keys()]
        if ids:
            weak[f"{one['name']} {one['version']}"] = ids
    skipped = tuple(one["name"] for one in report["dependencies"] if "vulns" not in one)
    return Verdict(len(judged), skipped, weak)


def told(verdict: Verdict | None) -> tuple[int, list[str]]:
    """The exit code and the lines for a user; None where no service answered."""
    if verdict is None or not verdict.judged:
        return UNJUDGED, ["No database of known weaknesses can be reached from here: nothing was judged."]
    lines = [f"{name}: {', '.join(ids)}" for name, ids in verdict.weak.items()]
    if verdict.skipped:
        lines.append(f"Not judged, since the database does not know them: {', '.join(verdict.skipped)}")
    lines.append(f"{verdict.judged} versions were judged; {len(verdict.weak)} have known weaknesses.")
    return (WEAK if verdict.weak else UNJUDGED if verdict.skipped else CLEAN), lines


def asked(python: Path, service: str) -> Verdict | None:
    """What a service says of constraints.txt; None where it does not answer."""
    command = [str(python), "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps"]
    command += ["--disable-pip", "--vulnerability-service", service, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    try:
        return verdict_of(json.loads(done.stdout))
    except ValueError:
        print(f"{service} did not answer: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:200]}")
        return None


def prepared() -> Path:
    """The Python that has pip-audit, which is installed the first time."""
    python = HOME / "bin" / "python"
    if not python.exists():
        venv.create(HOME, with_pip=True)
    if subprocess.run([python, "-c", "import pip_audit"], capture_output=True, check=False).returncode:  # noqa: S603
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOOL]
        subprocess.run(command, check=True)  # noqa: S603
    return python


def main() -> int:
    """Ask one service after the other until one has judged something."""
    python = prepared()
    verdict = None
    for service in SERVICES:
        verdict = asked(python, service)
        if verdict is not None and verdict.judged:
            break
        print(f"{service} judged nothing.")
    code, lines = told(verdict)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
