"""What a stream is called in the evidence."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

if TYPE_CHECKING:
    from streamguard.activity import Activity

_numbers: Final = itertools.count(1)
_names: Final[WeakKeyDictionary[Activity, str]] = WeakKeyDictionary()
_holders: Final[WeakValueDictionary[str, Activity]] = WeakValueDictionary()


def stream_of(activity: Activity) -> str:
    """The name that people know a stream by, with a number if another one has it, too."""
    if (known := _names.get(activity)) is not None:
        return known
    name = activity.display_name
    if name in _holders:
        name = f"{name}#{next(_numbers)}"
    _names[activity], _holders[name] = name, activity
    return name
