"""What reads bytes from elsewhere, fed with bytes that nobody would write: `python -m tests.fuzzing`.

    targets       what is fed, each with an oracle: what must hold of any bytes at all
    seeds         bytes to begin with, of each target
    search        the search itself, of one target
    corpus_files  where and how the inputs are kept
    corpus/       what the search has kept: inputs that ran something new, and all that ever failed
    test_corpus   replays the corpus on every Python, and shows that the oracles can fail

The search is guided by coverage and needs atheris (`pip install -e '.[fuzz]'`); the replay needs nothing.
"""
