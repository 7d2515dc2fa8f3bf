"""What becomes long or many over a run: attempts, events, lines of evidence, sessions of a report, runs of `top`."""

from __future__ import annotations

from benchmarks.growth.curve import Growth

ROWS: tuple[Growth, ...] = ()
