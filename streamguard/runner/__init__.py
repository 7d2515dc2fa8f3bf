"""`streamguard run`'s machine: one command, supervised by one poll loop (D4, D7).

| module | responsible for |
|---|---|
| `options` | what was asked for |
| `run` | what all attempts share |
| `poll_loop` | the poll loop of the front: bytes, limits, signals |
| `keeper_link` | the front's end of its keeper |
| `keeper`, `offspring` | the keeper: the command started, ended with all that it started, and proven gone |
| `child`, `kernel` | starting the command |
| `aside` | processes of ours beside the command |
| `wakeups`, `_signal`, `outbox` | signals and pipes, as something that can be polled |
| `notices`, `github`, `hooks` | who is told of concerns and of the end, beside the log |
| `lock` | `--lock`: one run at a time |
| `parked` | whether a silent command waits for its input |
| `conduit`, `stdin`, `terminal` | bytes out, bytes in, and where they are typed |
| `judge`, `json_lines`, `transcript` | limits: what the output means to the library's `watch` |
| `again` | whether there is another attempt |
| `pulse`, `notify`, `heartbeat` | signs of life: when, for systemd, for probes |
| `result`, `words`, `status` | exit codes, what is said, the status file |
| `record`, `clerk` | `--record`: the front's end, and the process that writes |
| `kept` | modules that may be needed later, read before the command starts |

Nothing that can block is done by the front: it is done by a process of ours that nobody waits for
without a bound. Standard library only, no event loop; `judge` and `offspring` are imported once the
command runs, because with them come the library's own modules. Nothing but `cli` imports it.
"""

import sys

if sys.platform == "win32":
    from streamguard._base.posix import not_here

    raise not_here("streamguard run")
