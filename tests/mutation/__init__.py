"""Small faults put into the code that decides, one at a time, to see whether a test notices: `python -m tests.mutation`.

mutants      what can be changed in a module's text, and how
decisions    the modules that decide, and the rooms of tests that are theirs
mapping      which tests run which line: made by one run of all tests, for hours of mutants
forks        a pytest that has collected once, and is forked for each mutant
accounted    what no test can notice, with the reason of each: `accounted.toml`
record       what was noticed by whom, and when: `record.json`
"""
