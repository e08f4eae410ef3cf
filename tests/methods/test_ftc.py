"""What FTC-Seg has beyond the paper: labelled objects in unlabelled frames."""

from __future__ import annotations

import pytest
import torch

from ftcseg.errors import UsageError
from ftcseg.losses.pixel import kept_loss
from ftcseg.methods.ftc import FTCParams
from ftcseg.teaching.pseudo import pseudo_labels
from ftcseg.types import IGNORE, PseudoLabels
from tiny_methods import LATE, Variant, batch_for

PASTE = Variant("ftc", rule="closed", params={"paste": 0.5, "strong_views": 1})


def test_the_method_asks_for_objects_as_often_as_it_is_told() -> None:
    assert PASTE.build().views.paste == 0.5
    assert Variant("ftc").build().views.paste == 0


def test_where_no_threshold_is_reached_only_what_was_pasted_teaches() -> None:
    # No confidence reaches 1.1, not even certainty; at 1.0 a pasted pixel does and a guess does not.
    method, batch = PASTE.build(), batch_for(PASTE.build().views)
    assert method.step(batch, LATE).parts["unsup"] == 0
    method.pair.thresholds.level.fill_(1.0)
    unsup = method.step(batch, LATE).parts["unsup"]
    assert batch.unlabeled is not None
    assert batch.unlabeled.pasted is not None
    view, pasted, box = batch.unlabeled.strong[0], batch.unlabeled.pasted, batch.unlabeled.boxes[0]
    shown = torch.where(box[:, None], view.flip(0), view)
    known = torch.where(box, pasted.flip(0), pasted)
    # Labelled and strong views go through the network together, as batch statistics are of both.
    logits = PASTE.build().pair.student(torch.cat([batch.labeled.images, shown]))[len(batch.labeled.images) :]
    certain = PseudoLabels(known.clamp(min=0), torch.ones_like(known, dtype=torch.float), torch.ones_like(box))
    assert unsup.item() > 0
    assert unsup.item() == pytest.approx(kept_loss(logits, certain, known != IGNORE).item(), rel=1e-5)


def test_statistics_are_of_what_the_teacher_saw_and_not_of_what_was_pasted() -> None:
    variant = Variant("ftc", rule="atc", params={"paste": 0.5})
    method, batch = variant.build(), batch_for(variant.build().views)
    assert batch.unlabeled is not None
    with torch.no_grad():
        seen = pseudo_labels(method.pair.labeler(batch.unlabeled.weak), batch.unlabeled.valid).labels
    before = method.pair.thresholds.predicted.clone()
    result = method.step(batch, LATE)
    shares = torch.bincount(seen.flatten(), minlength=3) / seen.numel()
    assert torch.allclose(method.pair.thresholds.predicted, (before + shares) / 2)  # momentum 0.5
    assert result.pseudo is not None
    assert result.pseudo.seen.tolist() == torch.bincount(seen.flatten(), minlength=3).tolist()


@pytest.mark.parametrize("chance", [-0.1, 1.5])
def test_a_chance_is_from_none_to_certainty(chance: float) -> None:
    with pytest.raises(UsageError, match=r"params\.paste"):
        FTCParams(paste=chance)
