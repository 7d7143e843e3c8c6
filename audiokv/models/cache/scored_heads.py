"""From a model's head scores to what its cache needs: one score a managed key head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from audiokv.streaming.errors import ConfigError
from audiokv.streaming.policy.audiokv import AudioKvPolicy
from audiokv.streaming.policy.audiokv_heads import AudioKvHeadsPolicy
from audiokv.streaming.policy.smoothing import MedianTrendSmoother

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from audiokv.streaming.policy.assembly import DriverOptions
    from audiokv.streaming.policy.protocol import EvictionPolicy

    Floats = NDArray[np.float64]


def policy_by_head_scores(
    policy: EvictionPolicy, scores: Floats, shape: tuple[int, int], options: DriverOptions
) -> AudioKvHeadsPolicy:
    """Return the AudioKV policy with budgets that follow the heads' scores.

    Args:
        policy: The AudioKV policy for one set of slots.
        scores: Of every managed layer's query heads or key heads, at least 0.
        shape: Managed layers, and key heads of each.
        options: Kind of speech and the smoother.

    Raises:
        ConfigError: Another policy, or scores of another model.
    """
    if not isinstance(policy, AudioKvPolicy):
        raise ConfigError(
            "head_scores_unused",
            f"The policy {policy.name!r} does not go by head scores.",
            'Use policy="audiokv", or leave head_scores out.',
        )
    profile = options.profile
    return AudioKvHeadsPolicy(
        shared=policy,
        head_scores=by_key_head(scores, shape),
        smoother=options.smoother or MedianTrendSmoother(profile.median_slots),
        voice_weight=profile.voice_weight,
    )


def by_key_head(scores: Floats, shape: tuple[int, int]) -> Floats:
    """Add up the scores of the query heads that share a key head.

    Args:
        scores: Shape (layers, query heads) or (layers, key heads).
        shape: Layers and key heads.

    Returns:
        Of that shape.

    Raises:
        ConfigError: The scores are of another model.
    """
    n_layers, n_heads = shape
    if np.ndim(scores) != 2 or len(scores) != n_layers or scores.shape[1] % n_heads:  # noqa: PLR2004  layers and heads
        raise ConfigError(
            "head_scores_misfit",
            f"Head scores of shape {np.shape(scores)} were given for {n_layers} layers "
            f"of {n_heads} key heads.",
            "Calibrate the model itself, or leave head_scores out.",
        )
    grouped: Floats = scores.reshape(n_layers, n_heads, -1).sum(axis=-1)
    return grouped
