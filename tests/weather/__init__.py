"""Weather: thousands of sessions with real processes, and all that happens to such, for minutes or hours.

    python -m tests.weather --for 2m                       # says its seed; exits with 1 if anything was wrong
    python -m tests.weather --seed 7 --for 1h --plot weather.svg
    python -m tests.weather --again 7:trio:311             # one of its sessions once more, alone

    plans      what happens to session number N of a seed: drawn, and written down as plain data
    backend    the agent, a real process: says its messages, and does what its plan says of this attempt
    sessions   one session through the library, with everything around it
    runs       one through `streamguard run`
    judge      what was seen against what really happened, which the agents write into a file
    gauges     memory, descriptors, tasks, threads and processes, over time
    station    a process with one loop, in which sessions run side by side

What is judged is never what was planned but what really happened: a busy machine that keeps an agent from writing for as
long as its limit is has made a true silence.
"""
