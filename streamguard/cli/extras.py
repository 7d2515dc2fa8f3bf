"""What may be installed beside streamguard, and whether it is: for `streamguard doctor`.

The extras of backends are the packages of `backends.facts`; a test compares both with pyproject.toml.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final, NamedTuple

from streamguard._base import distribution

_NEEDED: Final = re.compile(r"([\w.-]+)(?:\[[^]]*\])?\s*>=\s*([\w.]+)")


class Extra(NamedTuple):
    """An extra, the package that it brings, and what that is for."""

    name: str
    package: str
    gives: str


EXTRAS: Final = (
    Extra("trio", "trio", "guards on the trio event loop"),
    Extra("uvloop", "uvloop", "a faster loop for asyncio"),
    Extra("aiostream", "aiostream", "guards within aiostream's pipelines"),
    Extra("yaml", "ruamel.yaml", "flow specs in YAML"),
    Extra("psutil", "psutil", "process trees where there is no /proc"),
    Extra("postgres", "psycopg", "a fleet's store in PostgreSQL"),
    Extra("temporal", "temporalio", "a fleet on Temporal"),
)
OBSERVERS: Final = (
    Extra("prometheus", "prometheus-client", "PrometheusObserver"),
    Extra("opentelemetry", "opentelemetry-api", "OpenTelemetryObserver"),
    Extra("structlog", "structlog", "StructlogObserver"),
)


def version_of(package: str) -> str | None:
    """Which version is installed; None for none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def too_old(package: str, version: str) -> str | None:
    """What is needed at least, if that version is older; None if it will do, or if nobody knows."""
    minimum = _minima().get(_key(package))
    return minimum if minimum and numbers(version) < numbers(minimum) else None


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, to compare it by."""
    found: list[int] = []
    for part in version.split("."):
        digits = re.match(r"\d*", part, re.ASCII)
        if not (digits and digits[0]):
            break
        found.append(int(digits[0]))
        if digits[0] != part:  # a release candidate counts as what it is to become
            break
    return tuple(found)


def _minima() -> dict[str, str]:
    """What this installation asks for at least, by package; empty where it runs from its source."""
    try:
        asked = metadata.requires(distribution.NAME) or []
    except metadata.PackageNotFoundError:
        return {}
    return {_key(found[1]): found[2] for each in asked if (found := _NEEDED.match(each))}


def _key(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()
