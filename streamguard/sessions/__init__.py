"""Sessions that outlive their connections: detect, tear down for real, go on only when safe.

    Session ──enter──> Chat ──iterate, ask──> Turn ──pull──> Slot <──put── Owner (one per attempt)
                                               │                             │ opens, iterates, closes
                                               └── retry.decide <── failure ─┘ through a GuardedIterator

`points` are the values a user gives and gets, `session` the block, `turns` what is decided in the
consumer's pulls, `owner` the task that has a connection (`opened`) and `warden` what sees that it ends,
`slot` the hand-over between consumer and owner, `ledger` and `replay` what was done and delivered so far.
"""
