"""The page of licences is that of what is installed; unknown and forbidden ones are found; audits say what they saw."""

from __future__ import annotations

import re

import audit
import licences
import pytest
from distributions import CORE, asked_for, closure, installed


def listed() -> dict[str, dict[str, str]]:
    """The licences on the page, by section and package."""
    found: dict[str, dict[str, str]] = {}
    for part in licences.PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, rest = part.partition("\n")
        rows = re.findall(r"^\| ([\w.-]+) \| [\w.+-]+ \| ([^|]+) \|", rest, re.MULTILINE)
        found[title.removeprefix("The extra ").strip("`")] = {
            name: licence for name, licence in rows if name != "package"
        }
    return {CORE: found.pop("The core"), **found}


def test_what_is_installed_is_allowed() -> None:
    found, _ = licences.sections(installed())
    assert licences.faults(found) == []


def test_the_page_lists_what_comes_along_with_the_same_licences() -> None:
    page, there = listed(), installed()
    assert page.keys() == asked_for().keys(), "run «make licences»"
    for extra, asked in asked_for().items():
        brought = closure(asked, there)
        own = brought.keys() - (closure(asked_for()[CORE], there).keys() if extra else set())
        assert own <= page[extra].keys(), f"{extra or 'core'}: run «make licences»"
        for name in own:
            if (one := brought[name]) is not None:
                assert licences.package(name, one).licence == page[extra][name], name


def test_the_page_holds_nothing_that_is_not_allowed() -> None:
    for extra, rows in listed().items():
        for name, licence in rows.items():
            assert licences.allowed(licence, extra), f"{name} in {extra or 'core'}: {licence}"


@pytest.mark.parametrize(
    ("metadata", "classifiers", "licence"),
    [
        ({"License-Expression": "MIT AND BSD-3-Clause", "License": "odd"}, [], "MIT AND BSD-3-Clause"),
        ({"License": "Apache 2.0"}, [], "Apache-2.0"),
        ({"License": "Copyright (c) 2001\nAll rights"}, ["License :: OSI Approved :: BSD License"], "BSD"),
        ({"License": "UNKNOWN"}, ["Topic :: Maths"], None),
        ({"License-Expression": "Apache-2.0 WITH LLVM-exception"}, [], "Apache-2.0 WITH LLVM-exception"),
        ({"License-Expression": "AGPL-3.0-only"}, [], None),
        ({}, [], None),
    ],
)
def test_a_licence_is_read_from_what_tells_most(
    metadata: dict[str, str], classifiers: list[str], licence: str | None
) -> None:
    assert licences.licence_of("some-lib", metadata, classifiers) == licence


def test_programs_under_the_gpl_are_for_those_who_develop_only() -> None:
    gpl = licences.Package("tool", "1", "GPL-2.0-only")
    assert licences.faults({"dev": [gpl]}) == []
    assert licences.faults({CORE: [gpl]}) == ["tool 1 (core): GPL-2.0-only"]
    assert not licences.allowed("MIT AND GPL-2.0-only", "video")
    assert licences.faults({"onnx": [licences.Package("x", "2", None)]}) == ["x 2 (onnx): its licence is unknown"]


def test_the_bill_of_materials_is_closed() -> None:
    there = installed()
    found, _ = licences.sections(there)
    bill = licences.bill(found, there)
    refs = {one["bom-ref"] for one in bill["components"]}
    assert (bill["bomFormat"], len(refs)) == ("CycloneDX", len(bill["components"]))
    assert {need for one in bill["dependencies"] for need in one["dependsOn"]} <= refs
    (numpy,) = (one for one in bill["components"] if one["name"] == "numpy")
    assert (numpy["purl"], numpy["scope"]) == (f"pkg:pypi/numpy@{there['numpy'].version}", "required")
    assert all(one["licenses"] for one in bill["components"])


# ---------------------------------------------------------------- audits

GOOD = {"name": "good", "version": "1.0", "vulns": []}
BAD = {
    "name": "bad",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-1", "aliases": ["CVE-1"]}, {"id": "PYSEC-2", "aliases": []}],
}
UNSEEN = {"name": "unseen", "skip_reason": "Dependency not found on PyPI and could not be audited: unseen (3.0)"}


def test_a_database_that_answers_nothing_is_not_called_clean() -> None:
    for verdict in (None, audit.verdict_of({"dependencies": [UNSEEN, UNSEEN]})):
        code, (line,) = audit.told(verdict)
        assert code == audit.UNJUDGED
        assert "nothing was judged" in line


def test_what_is_weak_and_what_was_not_judged_are_named() -> None:
    assert audit.told(audit.verdict_of({"dependencies": [GOOD]}))[0] == audit.CLEAN
    code, lines = audit.told(audit.verdict_of({"dependencies": [GOOD, BAD, UNSEEN]}))
    assert code == audit.WEAK
    assert lines[0] == "bad 2.0: PYSEC-1, PYSEC-2"
    assert lines[1].endswith("unseen")
    assert lines[2] == "2 versions were judged; 1 have known weaknesses."
    assert audit.told(audit.verdict_of({"dependencies": [GOOD, UNSEEN]}))[0] == audit.UNJUDGED


def test_an_advisory_that_is_explained_does_not_count() -> None:
    explained = {"CVE-1": "we do not call it", "PYSEC-2": "Windows only"}
    assert audit.told(audit.verdict_of({"dependencies": [BAD]}, explained))[0] == audit.CLEAN
    assert audit.verdict_of({"dependencies": [BAD]}, {"CVE-1": "..."}).weak == {"bad 2.0": ["PYSEC-2"]}
