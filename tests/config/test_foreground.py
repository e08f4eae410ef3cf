"""Which classes OPR takes for foreground, and the mistakes that can be made on purpose."""

from __future__ import annotations

import pytest

from ftcseg.config.load import draft_for
from ftcseg.config.resolve import Facts, resolve
from ftcseg.errors import UsageError

FACTS = Facts(frame=(32, 32), part="val", foreground=(1, 2, 3), background=(0,), rarest=2)


def _ids(*overrides: str, facts: Facts = FACTS) -> tuple[tuple[int, ...] | None, str]:
    draft = draft_for("ftc", "cpu", overrides)
    return resolve(draft, facts).opr.foreground, draft.why["opr.foreground"]


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("objects", (1, 2, 3)),
        ("everything", (0, 1, 2, 3)),
        ("without_rarest", (1, 3)),
        ("everything_without_rarest", (0, 1, 3)),
    ],
)
def test_words_become_ids_of_the_set(word: str, ids: tuple[int, ...]) -> None:
    found, why = _ids(f"foreground={word}")
    assert found == ids
    assert ("wrong on purpose" in why) == (word != "objects")


def test_ids_named_by_the_user_win() -> None:
    assert _ids("foreground=everything", "opr.foreground=[3]") == ((3,), "set by the user")


def test_a_set_whose_only_object_is_left_out_is_told() -> None:
    alone = Facts(frame=(32, 32), part="val", foreground=(1,), background=(0,), rarest=1)
    with pytest.raises(UsageError, match="single object class"):
        _ids("foreground=without_rarest", facts=alone)
    assert _ids("foreground=everything_without_rarest", facts=alone)[0] == (0,)


def test_an_unknown_word_is_told() -> None:
    with pytest.raises(UsageError, match="foreground cannot be 'all'"):
        _ids("foreground=all")
