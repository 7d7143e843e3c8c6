from __future__ import annotations

import numpy as np

from audiokv.streaming.policy.ledger import SlotLedger
from audiokv.streaming.policy.marks import SlotMarks
from audiokv.streaming.policy.recency_policies import FifoPolicy, LruPolicy, StreamingLlmPolicy


def stream(n_audio: int, n_prompt: int = 0, n_sinks: int = 2) -> SlotLedger:
    ledger = SlotLedger(n_sinks=n_sinks)
    ledger.append([SlotMarks(0, 0, is_prompt=True)] * n_prompt)
    ledger.append([SlotMarks(at * 20, at * 20 + 20) for at in range(n_audio)])
    return ledger


def test_fifo_evicts_the_oldest_sinks_and_all() -> None:
    assert FifoPolicy().choose(stream(6, n_prompt=1), 3).tolist() == [1, 2, 3]


def test_streaming_llm_keeps_sinks_and_recent() -> None:
    assert StreamingLlmPolicy().choose(stream(6, n_prompt=1), 3).tolist() == [3, 4, 5]
    assert StreamingLlmPolicy().choose(stream(6, n_prompt=1), 5).tolist() == [1, 3, 4, 5, 6]
    assert StreamingLlmPolicy().choose(stream(6, n_sinks=0), 3).tolist() == [0, 1, 2]


def test_lru_evicts_what_was_used_longest_ago() -> None:
    ledger = stream(4)
    ledger.attention.observe(np.array([0.1, 0.1, 0.4, 0.4]), 0.3)
    ledger.attention.observe(np.array([0.1, 0.1, 0.1, 0.7]), 0.3)
    ledger.append([SlotMarks(80, 100)])
    assert LruPolicy().choose(ledger, 1).tolist() == [0]
    assert LruPolicy().choose(ledger, 3).tolist() == [0, 1, 2]
    # The newcomer counts as used at the second probe, like slot 3, and slot 3 is the older.
    assert LruPolicy().choose(ledger, 4).tolist() == [0, 1, 2, 3]
