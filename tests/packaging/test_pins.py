"""Ranges, pins and hashes: they agree, they are complete, and they keep out what is known to be malicious."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import lock
import pytest
from distributions import CORE, asked_for, closure, installed, pins
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

MALICIOUS = {
    "lightning-fabric": ("2.6.2", "2.6.3"),
    "lightning": ("2.6.2", "2.6.3"),
    "pytorch-lightning": ("2.6.2", "2.6.3"),
    "ultralytics": ("8.3.41", "8.3.42", "8.3.45", "8.3.46"),
}
"""Releases that carried malware, and the packages released together with them."""
WEAK = {"torch": ("2.5.1", "2.9.1")}
"""Whose loader of weights could be made to run code, or to write over memory."""
SYSTEMS = (
    ("linux", "Linux", "x86_64"),
    ("linux", "Linux", "aarch64"),
    ("darwin", "Darwin", "arm64"),
    ("win32", "Windows", "AMD64"),
)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def ranges_of(name: str) -> list[SpecifierSet]:
    return [one.specifier for asked in asked_for().values() for one in asked if canonicalize_name(one.name) == name]


@pytest.mark.parametrize(("name", "version"), [(n, v) for n, vs in (MALICIOUS | WEAK).items() for v in vs])
def test_versions_known_to_be_harmful_are_outside_every_range(name: str, version: str) -> None:
    assert not [found for found in ranges_of(name) if version in found]
    assert name not in pins() or pins()[name].version != version


def test_nothing_asks_for_the_packages_that_were_malicious_without_a_range() -> None:
    assert ranges_of("lightning-fabric")  # this one we ask for, and the range above is why
    ranged = {str(canonicalize_name(one.name)) for asked in asked_for().values() for one in asked}
    brought = {name for asked in asked_for().values() for name in closure(asked, installed())}
    assert not (brought - ranged) & MALICIOUS.keys()


def test_every_dependency_has_a_lower_bound() -> None:
    loose = [str(one) for asked in asked_for().values() for one in asked if not one.specifier]
    assert not loose


def test_pins_are_within_the_ranges() -> None:
    exact = pins()
    core_and_dev = [*asked_for()[CORE], *asked_for()["dev"]]
    for asked in core_and_dev:
        assert exact[str(canonicalize_name(asked.name))].version in asked.specifier, str(asked)
    for asked in (one for extra in asked_for().values() for one in extra):
        pin = exact.get(str(canonicalize_name(asked.name)))
        assert pin is None or pin.version in asked.specifier, str(asked)


@pytest.mark.parametrize(("system", "python"), list(product(SYSTEMS, PYTHONS)), ids=str)
def test_everything_that_an_install_brings_along_is_pinned(system: tuple[str, str, str], python: str) -> None:
    """With --no-deps a dependency of one system alone would otherwise be missing there."""
    platform, name, machine = system
    place = {"sys_platform": platform, "platform_system": name, "platform_machine": machine}
    place |= {"os_name": "nt" if platform == "win32" else "posix", "python_version": python}
    place |= {"python_full_version": f"{python}.0"}
    brought = closure([*asked_for()[CORE], *asked_for()["dev"]], installed(), place)
    assert sorted(brought.keys() - pins().keys()) == []


def test_the_lock_holds_the_same_versions_with_hashes() -> None:
    found = lock.locked(lock.LOCK.read_text(encoding="utf-8"))
    wanted = {(pin.name, pin.version) for name, pin in pins().items() if name not in lock.UNHASHED}
    assert found.keys() == wanted, "run «make lock»"
    assert min(found.values()) > 0


def test_the_lock_names_no_place() -> None:
    text = lock.LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index-url" not in text
    assert lock.LOCK.stat().st_size < 250_000


# ---------------------------------------------------------------- reading an index

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
PAGE = f"""<!DOCTYPE html><html><body>
<a href="https://files.example/x/some_lib-1.2-py3-none-any.whl#sha256={A}">some_lib-1.2-py3-none-any.whl</a>
<a href="../y/some_lib-1.2.tar.gz#sha256={B}" data-yanked="">some_lib-1.2.tar.gz</a>
<a href="../y/some_lib-1.1.tar.gz#md5=1234">some_lib-1.1.tar.gz</a>
<a href="../z/some_lib-1.2.win32-py2.4.exe#sha256={C}">an installer</a>
</body></html>"""


def test_a_page_of_links_is_read() -> None:
    wheel, sdist, exe = lock.files_on(PAGE, "text/html")  # without a SHA-256 there is no file
    assert wheel == lock.File("some_lib-1.2-py3-none-any.whl", A, False)
    assert sdist == lock.File("some_lib-1.2.tar.gz", B, True)
    assert exe.name == "some_lib-1.2.win32-py2.4.exe"


def test_a_page_in_json_is_read() -> None:
    text = f'{{"files": [{{"filename": "x-1.tar.gz", "hashes": {{"sha256": "{A}"}}, "yanked": "broken"}}]}}'
    assert lock.files_on(text, lock.JSON) == [lock.File("x-1.tar.gz", A, True)]


@pytest.mark.parametrize(
    ("file", "taken"),
    [
        ("x-1.2-py3-none-any.whl", True),
        ("x-1.2-py2.py3-none-any.whl", True),
        ("x-1.2-py2-none-any.whl", False),
        ("x-1.2-cp311-cp311-win_amd64.whl", True),
        ("x-1.2-cp314-cp314t-macosx_11_0_arm64.whl", True),
        ("x-1.2-cp310-cp310-win_amd64.whl", False),
        ("x-1.2-cp39-cp39-win_amd64.whl", False),
        ("x-1.2-cp39-abi3-win_amd64.whl", True),
        ("x-1.2-pp311-pypy311_pp73-win_amd64.whl", False),
        ("x-1.2.tar.gz", True),
        ("x-1.2.1.tar.gz", False),
        ("x-1.2.win32-py2.4.exe", False),
    ],
)
def test_files_for_a_python_that_we_support_are_taken(file: str, taken: bool) -> None:
    assert lock.installable(file, "1.2") is taken


def test_a_version_that_is_gone_or_withdrawn_is_refused() -> None:
    pin = lock.Pin("some-lib", "1.2")
    listed = lock.files_on(PAGE, "text/html")
    assert lock.hashes_of(pin, listed) == [A, B]  # one of two withdrawn is still a release
    with pytest.raises(lock.Refused, match=r"some-lib 1\.2 was withdrawn"):
        lock.hashes_of(pin, listed[1:])
    with pytest.raises(lock.Refused, match=r"no file of some-lib 1\.3"):
        lock.hashes_of(lock.Pin("some-lib", "1.3"), listed)


def test_what_is_written_is_what_is_read() -> None:
    text = lock.HEAD + lock.lines_for(lock.Pin("a_b", "1.2", 'sys_platform == "win32"'), [A, B])
    assert text.splitlines()[-3] == 'a_b==1.2 ; sys_platform == "win32" \\'
    assert lock.locked(text) == {("a_b", "1.2"): 2}
    assert lock.locked(text.replace("b" * 64, "b" * 63)) == {("a_b", "1.2"): 1}  # half a hash is none


def test_constraints_are_in_order_and_once(request: pytest.FixtureRequest) -> None:
    lines = (Path(request.config.rootpath) / "constraints.txt").read_text(encoding="utf-8").splitlines()
    names = [str(canonicalize_name(line.split("==")[0])) for line in lines if not line.startswith("#")]
    assert names == sorted(set(names))
