"""The incident that streamguard was made for, in small: `streamguard demo`.

agent   a command line of our own that speaks as a coding agent's does, works, and hangs
show    guards it, shows what happens, and draws the report

Uses the public API alone, as a user's program would. Nothing imports it but the command.
"""
