"""Random runs of `streamguard run`, each against a naive model of what may come of it.

| module | what it does |
|---|---|
| `child` | the command: a program that follows a list of steps and keeps a journal of what it did |
| `draws` | scenarios, plain JSON values; and smaller ones of a scenario that failed |
| `world` | one run: starts it, reads or does not read it, sends it signals, looks for who is left |
| `model` | which ends were possible, and what had to come out: written from the rules alone |
| `explore` | many runs, in several processes; shrinking; cases that are kept; the command |

    python -m tests.runner.fuzz --runs 500 --seed 7 --jobs 4
    python -m tests.runner.fuzz --again 7:113

Everything goes through the command line. Real time is in every run, so the model judges orders and
possibilities, never how long something took, but for a bound that no working machine reaches.
"""
