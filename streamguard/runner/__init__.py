"""`streamguard run`'s machine: one command, supervised by one poll loop (D4, D7).

| module | responsible for |
|---|---|
| `settings` | what was asked for |
| `run` | what all attempts share; whether there is another one |
| `attempt` | the poll loop |
| `ending` | asking a command to end, and seeing to it |
| `child`, `kernel` | starting the command |
| `wakeups`, `_signal` | signals, as something that can be polled |
| `output`, `stdin`, `terminal` | bytes out, bytes in, and where they are typed |
| `judge` | limits: what the output means to the library's `watch` |
| `tree`, `sentinel` | everything that the command ever started, ended; also when we are killed |
| `outcome` | exit codes, what is said, the status file |
| `evidence` | `--record` |

Standard library only, no event loop; `judge`, `tree` and `sentinel` are imported once the command
runs, because with them come the library's own modules. Nothing but `cli` imports it.
"""
