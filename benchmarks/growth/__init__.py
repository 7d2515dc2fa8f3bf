"""How costs grow: with streams, messages, operators, work in flight, attempts, lines of evidence, ...

`curve` says what a curve is, how it is measured and which law it must keep. The rows are in `streams` (what there may be many of),
`one_stream` (what one stream may have much of) and `records` (attempts, events, evidence, reports, what `top` reads).
"""

from __future__ import annotations

from benchmarks.figures import Figure
from benchmarks.growth import one_stream, records, streams
from benchmarks.growth.curve import Growth, measured

ROWS: tuple[Growth, ...] = (*streams.ROWS, *one_stream.ROWS, *records.ROWS)


def measure(rounds: int, left_out: int = 0) -> list[Figure]:
    """Each curve's law and its last point. The largest sizes are `left_out` for a look."""
    curves = [
        curve
        for row in ROWS
        for loop in row.loops
        for curve in measured(row, loop, rounds, left_out)
    ]
    return [*(each.law_kept() for each in curves), *(each.at_most() for each in curves)]
