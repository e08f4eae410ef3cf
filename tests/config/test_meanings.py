"""What settings mean, read from under their fields."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from ftcseg.config.meanings import Setting, settings_of
from ftcseg.methods import METHODS


@dataclass(frozen=True, kw_only=True)
class Inner:
    depth: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Settings of nobody."""

    size: tuple[int, int] = (3, 4)
    """Height and width,
    in pixels."""
    plain: float | None = None
    inner: Inner = field(default_factory=Inner)
    """A group."""


def test_names_defaults_and_meanings() -> None:
    assert settings_of(Example) == [
        Setting("size", [3, 4], "Height and width, in pixels."),
        Setting("plain", None, ""),
        Setting("inner", {"depth": 2}, "A group."),
    ]


def test_a_class_without_source_has_defaults_all_the_same() -> None:
    names: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Made:\n    size: int = 1\n    'Told.'", names)
    made = names["Made"]
    assert isinstance(made, type)
    assert [(s.name, s.default) for s in settings_of(made)] == [("size", 1)]


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_every_method_is_explained(name: str) -> None:
    assert all(setting.meaning for setting in settings_of(METHODS[name].params))
