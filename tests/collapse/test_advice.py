"""Advice for a loss that nobody knows: it names nothing that only losses of Trivet have."""

from __future__ import annotations

import re

from trivet.collapse.advice import class_advice, harm_advice, network_advice, noise_advice


def test_a_pretrained_network_is_not_to_be_replaced_by_one() -> None:
    assert "or start from a pretrained network if this one is not." in " ".join(network_advice(None)[1])
    assert "pretrained" not in " ".join(network_advice(None, pretrained=True)[1])


def test_advice_for_any_loss_names_no_option_of_trivet() -> None:
    advice = [network_advice(None), class_advice(None), noise_advice(None), ("", harm_advice())]
    for cause, changes in advice:
        assert 1 <= len(changes) <= 3
        assert not re.search(
            r"semi-?hard|hard negatives|easy positives|samples_per_class| = ", " ".join([cause, *changes])
        )
