"""Messages that look as an SDK's do, without the SDK: for readers, which import none."""

from __future__ import annotations

from typing import Any

from streamguard.signals import SIGNALS, Progress, Signal


def said_by(backend: Any, message: object) -> list[Signal]:
    """The signals of a message, None being Progress."""
    signals = backend.read(message)
    if signals is None:
        return [Progress()]
    return [signals] if isinstance(signals, SIGNALS) else list(signals)


def kind_named(name: str, module: str, base: type = object) -> type:
    """A class as some package would define it."""
    return type(name, (base,), {"__module__": module})


class Model:
    """A pydantic model, as far as readers look: declared fields, and extras beside them."""

    __slots__ = ("__dict__", "__pydantic_extra__")

    def __init__(self, fields: dict[str, Any], extras: dict[str, Any] | None = None) -> None:
        self.__dict__.update(fields)
        self.__pydantic_extra__ = extras


def as_model(value: Any) -> Any:
    """`value` with every dict in it as a model with these fields."""
    if isinstance(value, dict):
        return Model({name: as_model(each) for name, each in value.items()})
    return [as_model(each) for each in value] if isinstance(value, list) else value
