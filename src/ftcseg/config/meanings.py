"""What a setting means, for listings: the docstring under its field, where the field itself is written down."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, its default as a plain value, and what it means."""

    name: str
    default: Any
    meaning: str


def settings_of(kind: type) -> list[Setting]:
    """The fields of a settings class in their order; each needs a default."""
    told = _docstrings(kind)
    example = kind()
    return [
        Setting(item.name, _plain(getattr(example, item.name)), told.get(item.name, ""))
        for item in dataclasses.fields(kind)
    ]


def _docstrings(kind: type) -> dict[str, str]:
    """Field name -> the string that stands right under it, on one line; empty where the source is not at hand."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, TypeError):
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(str(below.value.value).split())  # type: ignore[attr-defined]
    return found


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value
