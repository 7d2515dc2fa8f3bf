"""What a line of output is: an object, or text."""

from __future__ import annotations

import pytest

from streamguard.runner.json_lines import object_in


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"type": "result"}\n', {"type": "result"}),
        (b'  {"type": "result"}\r\n', {"type": "result"}),
        (b'{"type": "result", "result": "caf\xe9"}\n', {"type": "result", "result": "caf\ufffd"}),
        (b'{"a": "\xed\xa0\x80"}', {"a": "\ufffd\ufffd\ufffd"}),
        (b"[1]", None),
        (b"{", None),
        (b'{"a": ' + b"[" * 100_000, None),
        (b'{"a": ' + b"1" * 10_000 + b"}", None),
        (b"", None),
    ],
)
def test_an_object_is_one_whatever_bytes_its_texts_have(line, found):
    assert object_in(line) == found
