"""`python -m tests.models`: the explorers, for as long as one likes."""

import sys

from tests.models.explorer import main

sys.exit(main())
