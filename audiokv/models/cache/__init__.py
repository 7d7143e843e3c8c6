"""Key/value caches under a budget, for any decoder of transformers.

The one place that touches transformers' cache interface. Importing it offers the attention
"audiokv" to transformers; a model that is to use these caches is loaded with it.
"""

from audiokv.models.cache.attention import ATTENTION, register
from audiokv.models.cache.budgeted import BudgetedCache
from audiokv.models.cache.head_limits import limits_by_scores
from audiokv.models.cache.slot_cache import SlotCache
from audiokv.models.head_scores.score_files import load_head_scores

__all__ = ["ATTENTION", "BudgetedCache", "SlotCache", "limits_by_scores", "load_head_scores"]

register()
