"""The guard of one stream: operators as values, the pull, the block, a verdict's way, teardown.

knobs, modes, plan      what was written, checked and merged
operators, guarded      `stream | operator`, and the `async for` over it
sources                 how any source is asked and closed
attempt, way            one attempt, and the table of a verdict's way
monitor                 the block's task group; the monitor beside a loop
teardown, supervision   ending a backend; the process behind it
"""
