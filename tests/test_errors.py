"""Errors say what, where and what to do, also after a journey between processes."""

from __future__ import annotations

import pickle

import pytest

from ftcseg.errors import (
    DataError,
    FetchError,
    FtcsegError,
    ImageError,
    LayoutError,
    MaskError,
    UnsafePathError,
    UsageError,
    unknown_name,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (DataError, "data"),
        (LayoutError, "layout"),
        (ImageError, "image"),
        (MaskError, "mask"),
        (UnsafePathError, "unsafe-path"),
    ],
)
def test_an_error_about_data_has_a_kind_and_a_remedy(error: type[DataError], kind: str) -> None:
    plain = error("It is broken.", remedy="Mend it.")
    assert (str(plain), plain.what, plain.remedy, plain.kind) == (
        "It is broken. Mend it.",
        "It is broken.",
        "Mend it.",
        kind,
    )
    assert error("It is broken.", kind="odd").kind == "odd"
    assert str(error("It is broken.")) == "It is broken."


def test_an_error_comes_back_whole_from_a_worker() -> None:
    sent = MaskError("m.png holds 38.", remedy="Add it.", kind="unknown-value")
    back = pickle.loads(pickle.dumps(sent))
    assert type(back) is MaskError
    assert (str(back), back.what, back.remedy, back.kind) == (str(sent), sent.what, sent.remedy, sent.kind)


def test_every_error_of_ours_ends_a_command_with_2() -> None:
    for error in (UsageError, DataError, LayoutError, ImageError, MaskError, UnsafePathError, FetchError):
        assert issubclass(error, FtcsegError)
        assert error.exit_code == 2


def test_an_unknown_name_is_told_with_the_nearest_or_with_all() -> None:
    known = ["speckle", "gaussian", "fog"]
    assert str(unknown_name("kind", "spekle", known)) == "There is no kind called 'spekle'. Did you mean speckle?"
    assert str(unknown_name("kind", "zzz", known)) == "There is no kind called 'zzz'. Known: fog, gaussian, speckle."
