"""The environment variables that mean something here. Imports nothing."""

MODE = "STREAMGUARD_MODE"  # the kill switch: `enforce`, `warn`, `off`
IDLE = "STREAMGUARD_IDLE"
CONFIG = "STREAMGUARD_CONFIG"
FLEET = "STREAMGUARD_FLEET"  # where a fleet's sessions are; the address may hold a password
MARK = "STREAMGUARD_TREE"  # what a process was started with says whose tree it is of
