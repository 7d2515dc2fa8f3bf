"""`warn`: a warning at the line of whoever wrote what is warned of, outside of this package."""

from __future__ import annotations

import sys
import warnings

from streamguard._base.quoting import quoted


class StreamGuardWarning(UserWarning):
    """Two written values contradict each other, or one is most likely a mistake."""


def warn(text: str) -> None:
    """Warn of `text`, quoted, where it was written."""
    ours = ("streamguard.", "dataclasses")
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(ours):
        frame, level = frame.f_back, level + 1
    warnings.warn(quoted(text), StreamGuardWarning, stacklevel=level + 1)
