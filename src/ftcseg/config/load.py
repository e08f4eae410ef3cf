"""Defaults, presets and overrides to one RunConfig, remembering where every value came from."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from ftcseg.config.schema import RunConfig, refuse_no_numbers, shown
from ftcseg.errors import LayoutError, UsageError, unknown_name
from ftcseg.files import parse_yaml, read_yaml
from ftcseg.methods import find_method

PRESETS = ("cpu", "gpu", "ftc", "ftc-paper", "ftc-released")
"""Shipped files; a method without one says in its table entry what it wants."""
VARIANTS = {"ftc-paper": "ftc", "ftc-released": "ftc"}
"""Named readings of a method: `--method ftc-paper` is `ftc` with another preset."""
_MEANS = {
    "method": "It is the name of a method; «ftcseg methods» lists them.",
    "params": "It holds settings of the method, such as params.NAME=VALUE; «ftcseg methods NAME» lists them.",
}


@dataclass(slots=True)
class Draft:
    """Values so far as nested plain mappings, and why each was chosen."""

    values: dict[str, Any] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def set(self, key: str, value: object, why: str) -> None:
        """Set one dotted key."""
        *path, last = key.split(".")
        place = self.values
        for name in path:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise UsageError(f"There is no setting {key}: {name} is a value of its own.")
        place[last] = value
        self.why[key] = why

    def given(self, key: str) -> bool:
        """Whether somebody set this key."""
        return key in self.why

    def add(self, values: Mapping[str, Any], why: str, prefix: str = "") -> None:
        """Set every leaf of a nested mapping."""
        for name, value in values.items():
            key = f"{prefix}{name}"
            if isinstance(value, Mapping):
                self.add(value, why, f"{key}.")
            else:
                self.set(key, value, why)

    def build(self) -> RunConfig:
        """The checked configuration; a typo or a wrong type is a UsageError that names it."""
        _known_keys(self.values, RunConfig, "")
        # Laid over the run's own defaults: a group of which one value is set would take its class's for the others.
        whole = Draft(as_mapping(RunConfig()))
        whole.add(self.values, "")
        method, own = whole.values["method"], self.values.get("params", {})
        if not isinstance(method, str) or not isinstance(own, Mapping):
            key, value = ("params", own) if isinstance(method, str) else ("method", method)
            raise UsageError(f"{key} cannot be {shown(value)}. {_MEANS[key]}")
        whole.values["params"] = _own_settings(method, own)
        config: RunConfig = _checked(RunConfig, whole.values)
        return config


def draft_for(method: str, hardware: str, overrides: Sequence[str]) -> Draft:
    """Hardware preset, then the method's own, then the user's `key=value`."""
    draft = Draft()
    draft.add(preset(hardware), f"preset {hardware}")
    draft.add(shipped(method), f"preset {method}")
    draft.set("method", VARIANTS.get(method, method), "asked for")
    for text in overrides:
        key, value = parse_override(text)
        if isinstance(value, Mapping):  # opr={layers: 2} says nothing about the other settings of opr
            draft.add(value, "set by the user", f"{key}.")
        else:
            draft.set(key, value, "set by the user")
    return draft


def hardware_here() -> str:
    """Which preset suits this machine."""
    return "gpu" if torch.cuda.is_available() else "cpu"


def shipped(method: str) -> Mapping[str, Any]:
    """What a method, or a named reading of one, comes with."""
    entry = find_method(VARIANTS.get(method, method), also=tuple(VARIANTS))
    return preset(method) if method in PRESETS else entry.preset


def draft_of_run(path: Path) -> Draft:
    """The settings that a run wrote down: its config.yaml."""
    written = read_yaml(path)
    values = written.get("config") if isinstance(written, Mapping) else None
    if not isinstance(values, Mapping):
        raise LayoutError(f"{path} holds no settings under «config».", remedy="Is it the file of a run?")
    draft = Draft()
    draft.add(values, "the run's own")
    return draft


def preset(name: str) -> Mapping[str, Any]:
    """A shipped preset by name."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    with as_file(files("ftcseg.config") / "presets" / f"{name}.yaml") as path:
        return dict(read_yaml(path) or {})


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Every leaf of a nested mapping by its dotted key."""
    draft = Draft()
    draft.add(values, "")
    return {key: _at(draft.values, key) for key in draft.why}


def _at(values: Mapping[str, Any], key: str) -> Any:
    for name in key.split("."):
        values = values[name]
    return values


def parse_override(text: str) -> tuple[str, object]:
    """`opr.layers=2` as ("opr.layers", 2)."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"{text!r} is no setting. Write key=value, such as opr.layers=2.")
    return key.strip(), parse_yaml(value)


def settings(of: object, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a configuration as (dotted key, value)."""
    for item in dataclasses.fields(of):  # type: ignore[arg-type]
        value = getattr(of, item.name)
        if dataclasses.is_dataclass(value):
            yield from settings(value, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}", list(value) if isinstance(value, tuple) else value


def as_mapping(config: RunConfig) -> dict[str, Any]:
    """The configuration as nested plain values."""
    draft = Draft()
    for key, value in settings(config):
        draft.set(key, value, "")
    return draft.values


def _own_settings(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting of a method's own, checked, with its default where nobody set it."""
    kind = find_method(method).params
    known = [item.name for item in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            has = f"Its own settings: {', '.join(known)}." if known else "It has no settings of its own."
            raise UsageError(f"The method {method} has no setting params.{name}. {has}")
    checked = _checked(kind, dict(values), "params.")
    refuse_no_numbers(checked, "params.")
    return dict(settings(checked))


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    """What checks values of a kind; building it takes far longer than using it."""
    return TypeAdapter(kind)


def _checked(kind: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    try:
        return _adapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        names = [part for part in first["loc"] if isinstance(part, str)]  # a number is a place in a list
        where = ".".join(part for part in names if not part.startswith(("literal", "int", "str")))
        raise UsageError(f"{prefix}{where} cannot be {shown(first['input'])}: {first['msg']}.") from error


def _known_keys(values: Mapping[str, Any], kind: type, prefix: str) -> None:
    hints = {f.name: f for f in dataclasses.fields(kind)}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(f"{prefix}{name}", _all_keys(), n=3, cutoff=0.4)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise UsageError(f"There is no setting {prefix}{name}.{hint}")
        inner = hints[name].default_factory
        example = inner() if inner is not dataclasses.MISSING else None
        if dataclasses.is_dataclass(example):
            if not isinstance(value, Mapping):
                raise UsageError(f"{prefix}{name} holds settings of its own, such as {_example(f'{prefix}{name}.')}.")
            _known_keys(value, type(example), f"{prefix}{name}.")


def _all_keys() -> list[str]:
    return [key for key, _ in settings(RunConfig())]


def _example(prefix: str) -> str:
    return next(key for key in _all_keys() if key.startswith(prefix))
