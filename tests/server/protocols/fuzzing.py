"""What the parsers of foreign protocols are attacked with."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# Structured messages, few and shrunk where they fail; tests/server/test_parsers_fuzzed.py has the
# many. $AUDIOKV_FUZZ_EXAMPLES asks for more.
FUZZED = settings(
    max_examples=int(os.environ.get("AUDIOKV_FUZZ_EXAMPLES", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.text(max_size=20),
    st.sampled_from(["1", "true", "16000", "\ud800", 10**400, "9" * 5_000]),
)
ANYTHING = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.text(max_size=5), SCALARS, max_size=2),
    st.just([[[{"a": [{}]}]]]),
)


def objects(*names: str) -> st.SearchStrategy[dict[str, object]]:
    """Return objects with some of the fields a protocol knows, whatever their values."""
    return st.dictionaries(st.sampled_from(names), ANYTHING, max_size=4)
