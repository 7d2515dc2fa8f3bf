"""`python -m streamguard`: the same as the `streamguard` command."""

import sys

from streamguard.cli import main

if __name__ == "__main__":
    sys.exit(main())
