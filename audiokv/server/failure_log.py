"""Logging of errors whose texts may quote what was said."""

from __future__ import annotations

import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import logging


def log_failure(logger: logging.Logger, subject: str, error: BaseException) -> None:
    """Log what failed, the kind of the error and its place in the code; never the error's text.

    Args:
        logger: Where to.
        subject: What failed, by its public name.
        error: The error; of a group, the first one inside is logged.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    logger.error("%s failed: %s at %s", subject, type(error).__name__, place)
