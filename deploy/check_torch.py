# ruff: noqa: INP001  a script, no module
"""Says whether the installed PyTorch is built for a device: ``check_torch.py cpu|cuda``."""

from __future__ import annotations

import sys

import torch


def verdict(device: str, cuda_version: str | None) -> tuple[int, str]:
    """Return exit status and message.

    Args:
        device: ``cpu`` or ``cuda``, as asked for.
        cuda_version: CUDA version that PyTorch was built for, or None for a CPU build.
    """
    if device not in {"cpu", "cuda"}:
        return 2, f"DEVICE is {device!r}. Set it to cpu or cuda."
    if device == "cuda" and cuda_version is None:
        return 1, "This PyTorch is a CPU build. Set TORCH_INDEX to the index with a CUDA build."
    if device == "cpu" and cuda_version is not None:
        return 1, (
            "This PyTorch is a CUDA build of several GB. Set TORCH_INDEX to the index with the CPU "
            "build that PyTorch's installation page names, or DEVICE=cuda to keep it."
        )
    return 0, f"PyTorch is built for {cuda_version or 'the CPU'}."


if __name__ == "__main__":
    status, message = verdict(sys.argv[1], torch.version.cuda)
    sys.stderr.write(f"{message}\n")
    sys.exit(status)
