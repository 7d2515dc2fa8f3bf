"""What pip calls this package, which Python calls `streamguard`: the words of every hint to install it. Imports nothing."""

NAME = "agent-streamguard"


def install(*extras: str) -> str:
    """The command that brings it, with these extras."""
    return f"pip install '{NAME}[{','.join(extras)}]'" if extras else f"pip install {NAME}"
