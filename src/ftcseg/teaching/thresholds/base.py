"""What every threshold rule can do: look at a step, then say which pixels to learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, get_args, get_origin, get_type_hints

from torch import Tensor, nn

from ftcseg.errors import UsageError
from ftcseg.teaching.pseudo import pseudo_labels
from ftcseg.types import PseudoLabels


class Thresholds(nn.Module, ABC):
    """One confidence threshold per class. Whatever a rule remembers is a buffer, equal on all ranks.

    A step calls `observe` first and `accept` afterwards (reading B9).
    """

    needs_soft: bool = False
    """Whether `observe` wants `soft`, so that a method need not count it in vain."""
    asks_teacher: bool = False
    """Whether `observe` wants the teacher's logits on labelled images; the student's come for free."""

    def labels_of(self, logits: Tensor, valid: Tensor) -> PseudoLabels:
        """What the teacher says, (B, C, H, W), as pseudo-labels; a rule may be less sure of them than the teacher."""
        return pseudo_labels(logits, valid)

    @abstractmethod
    def observe(self, *, target: Tensor, logits: Tensor, pseudo: PseudoLabels, soft: Tensor | None = None) -> None:
        """Learn from one step, before anything is mixed.

        Args:
            target: (B, H, W) labels of the labeled images.
            logits: (B, C, H, W) answers to the same images, the teacher's for rules that say `asks_teacher`.
            pseudo: the teacher's opinion of the unlabeled images.
            soft: (C,) `soft_counts` of the teacher's logits, for rules that say `needs_soft`.
        """

    @abstractmethod
    def tau(self) -> Tensor:
        """The threshold of each class, (num_classes,) float."""

    def accept(self, pseudo: PseudoLabels) -> Tensor:
        """Which pixels to learn from, (B, H, W) bool: valid, and at least as sure as their class asks (reading B7).

        Hand in pseudo-labels after mixing: a pasted pixel keeps the threshold of its own class.
        """
        return (pseudo.conf >= self.tau()[pseudo.labels]) & pseudo.valid

    def facts(self) -> dict[str, Tensor]:
        """What the log should know, each (num_classes,) or a single number."""
        return {"tau": self.tau()}


def check_choices(params: object) -> None:
    """Refuse a parameter whose value is none of its Literal's, naming those that are."""
    for name, hint in get_type_hints(type(params)).items():
        if get_origin(hint) is Literal and getattr(params, name) not in get_args(hint):
            known = ", ".join(str(choice) for choice in get_args(hint))
            raise UsageError(f"{name} cannot be {getattr(params, name)!r}. Choose one of: {known}.")
