"""`python -m tests.runner.fuzz`: random runs, for as long as one likes."""

import sys

from tests.runner.fuzz.explore import main

if __name__ == "__main__":
    sys.exit(main())
