from __future__ import annotations

import numpy as np

from audiokv.streaming.policy.keydiff import KeyDiffPolicy
from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks


def test_the_most_ordinary_keys_leave_and_the_prompt_stays() -> None:
    ledger = SlotLedger()
    ledger.append([SlotMarks(0, 0, is_prompt=True)])
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(4)])
    ledger.attention.observe_keys(np.array([1.0, 0.2, 0.9, -0.5, 0.95]))
    assert KeyDiffPolicy().choose(ledger, 2).tolist() == [2, 4]
    assert KeyDiffPolicy().choose(ledger, 4).tolist() == [1, 2, 3, 4]
