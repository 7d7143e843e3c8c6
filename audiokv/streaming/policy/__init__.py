"""The AudioKV eviction policy and its peers: pure numpy, deterministic, without tensors or a clock.

A model loop opens a ``PolicyDriver`` (``assembly.open_driver``), appends the marks of new slots,
feeds it the attention they receive, and drops from its cache exactly what the driver plans.
"""
