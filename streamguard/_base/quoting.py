"""Text from elsewhere, made fit for a line of ours: for a log, an error, a terminal or a table.

A tool's name, a path, a key of a file: whoever chose it must neither command the terminal that shows
it, nor forge a line of the log, nor turn its words around, nor fill the screen. What a program reads
(JSON, the fields of events) keeps the true text. Imports nothing.
"""

from __future__ import annotations

# How much is shown: of a name that stands in a sentence, and of a sentence.
NAME = 200
LINE = 4000
_CUT = "..."


def quoted(text: object, most: int = LINE) -> str:
    r"""`text` on one line, and at most `most` characters of it; of what is longer, the middle is left out.

    What is printable stays as it is, in every script. The rest is written as Python writes it in a
    string: `\n`, `\x1b`, `\u202e`, `\udcff`. What is quoted already stays as it is.
    """
    shown = text if isinstance(text, str) else str(text)
    if len(shown) > most:
        shown = _cut(shown, most)
    if shown.isprintable():
        return shown
    return _cut("".join(c if c.isprintable() else repr(c)[1:-1] for c in shown), most)


def name(text: object) -> str:
    """`quoted` for a name that stands in a sentence with others."""
    return quoted(text, NAME)


def in_shell(text: str) -> str:
    """`text` as one word of a shell's, to be pasted."""
    if text and all(c.isalnum() or c in "_@%+=:,./-" for c in text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    behind = most // 3  # of a path, the end tells most
    return f"{text[: most - len(_CUT) - behind]}{_CUT}{text[len(text) - behind :]}"
