"""The words in which a backend says that it does not know the session it was to resume (R3).

Each has been seen of the real command line. The session's id is in them, or they are a whole line, so that
nothing else is taken for them: neither an error of another kind nor what somebody quotes of another session. What
says them in a message is told by its reader (`Failed.session_unknown`), which asks here, too.
"""

from __future__ import annotations

import re
from typing import Final

from streamguard.errors import StreamGuardError

_WORDS: Final = (
    # Claude's: in the `errors` of its result, in the SDK's error, and on stderr.
    "No conversation found with session ID: {}",
    # Codex's: on stderr, and in the app-server's error.
    "no rollout found for thread id {}",
    # On stderr: Gemini's, where its folder has sessions; Qwen's; Kimi's; Copilot's.
    'Error resuming session: Invalid session identifier "{}".',
    "No saved session found with ID {}.",
    'error: failed to run prompt: Session "{}" not found.',
    "Error: No session, task, or name matched '{}'.",
)
# Whole lines: Gemini's, where its folder has no session at all, and Opencode's, in colours.
_LINES: Final = re.compile(
    r"^(?:Error resuming session: No previous sessions found for this project\."
    r"|(?:\x1b\[\d+m)*Error: (?:\x1b\[0m)?Session not found)\r?$",
    re.MULTILINE,
)
_MOST: Final = 100_000  # characters of a text that are looked at


def is_said_in(text: str, token: str) -> bool:
    """Whether `text` says of the session `token` that the backend does not know it."""
    said = text[-_MOST:]
    if _LINES.search(said) is not None:
        return True
    # Another session's id may begin as this one's does.
    patterns = (re.escape(words.replace("{}", token)) for words in _WORDS)
    return any(re.search(rf"{pattern}(?![\w:-])", said) for pattern in patterns)


def is_told_by(error: BaseException, token: str) -> bool:
    """Whether `error`, or what caused it, says so: in its text, or in what the process wrote last."""
    from streamguard.retry.links import nearest

    def ask(link: BaseException, _is_cause: bool) -> bool | None:
        return any(is_said_in(text, token) for text in _texts_of(link)) or None

    return bool(nearest(error, ask, any))


def _texts_of(error: BaseException) -> tuple[str, ...]:
    if isinstance(error, StreamGuardError):
        return () if error.tail is None else (error.tail.stderr,)
    try:
        return (str(error),)
    except Exception:  # noqa: BLE001 - a foreign error may fail at anything
        return ()
