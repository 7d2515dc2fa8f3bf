"""What a part that cannot work on Windows says there, when it is imported, in place of an error from within. Imports nothing."""


def not_here(what: str) -> ImportError:
    """The error to raise."""
    return ImportError(
        f"{what}: this needs processes, locks and owners of files as Linux and macOS have them, and cannot work on "
        "Windows; use it within WSL. What works on Windows are guards without process=, in code: "
        "idle_guard, guarded_call, scope, retries"
    )
