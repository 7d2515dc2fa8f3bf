"""The incidents that streamguard was made for, in small: `streamguard demo`, and `streamguard fleet demo`.

    agent          a command line of our own that speaks as a coding agent's does, works, and hangs
    show           guards it, shows what happens, and draws the report
    fleet_agent    one that works step by step, and can go on from any
    fleet_handler  what a fleet's workers run for each session of it
    fleet_show     starts two workers, kills one, and shows how the other goes on
    screen         where they say it

Uses the public API alone, as a user's program would. Nothing imports it but the command.
"""
