"""What is in force where nobody says otherwise: each default once, times in seconds.

The presets' numbers are in `presets`, a circuit's in `breaker.circuit`, the delays for other
failures than hangs in `retry.policy`. Imports nothing: the command's start pays for it.
"""

TOOLS = 7200.0  # how long a piece of work may pause `idle`
AFTER_SLEEP = 30.0  # how long a silence may last on when this machine has slept
HOLD = 3600.0  # … and a hold, or a wait that the backend has announced
DISCONNECT_TIMEOUT = 30.0  # how long all disconnects together may take
KILL_GRACE = 5.0  # between asking a process tree to end, and killing it
QUIET = 900.0  # how long a sub-agent that has spoken may say nothing, before that is told
REPEATS = 20  # how often the same work may have the same outcome, before that is told
HOOK = 30.0  # how long a command of `--on-warn` or `--on-end` may take
EXIT_GRACE = 30.0  # how long a command of `streamguard run` may stay after its result
HEARTBEAT = 10.0  # how often its `--heartbeat` file is renewed
HEARTBEAT_OLD = 60.0  # … and how old it may be for `streamguard healthy`

# Hangs: how often one is retried, and how long is waited before each retry.
RETRIES = 2
BACKOFF = (0.0, 5.0, 15.0)
MAX_RECONNECTS = 50  # in a session's whole life

LONGEST_LINE = 16 * 1024 * 1024  # bytes; an image in a tool's result is a line of several MB
