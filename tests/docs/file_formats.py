"""Formats."""


def pages() -> dict[str, str]:
    return {"files.md": "# Files and their formats\n"}
