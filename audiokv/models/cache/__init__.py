"""Key/value caches under a budget, for any decoder of transformers.

The one place that touches transformers' cache interface. Importing it offers the attention
"audiokv" to transformers; a model that is to use these caches is loaded with it.
"""

from audiokv.models.cache.attention import ATTENTION, register
from audiokv.models.cache.budgeted import BudgetedCache
from audiokv.models.cache.slot_cache import SlotCache

__all__ = ["ATTENTION", "BudgetedCache", "SlotCache"]

register()
