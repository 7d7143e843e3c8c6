"""The thinker of Qwen3-Omni, on a live stream."""
