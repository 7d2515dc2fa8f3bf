"""A network on the way to a server that can go black: all is accepted and acknowledged, and nothing is passed on."""

from __future__ import annotations

import selectors
import socket
import threading


class SilentProxy:
    """Listens on a port of this machine, and passes on to a unix socket what comes, unless it `is_black`.

    `black`: the ways that are: "up", to the server, and "down". What is there when `forsake` is called stays black for
    ever, and what comes after it does not.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self.black: frozenset[str] = frozenset()
        self.swallowed = threading.Event()
        """Set as soon as something was not passed on."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._others: dict[socket.socket, socket.socket] = {}
        self._ways: dict[socket.socket, str] = {}
        self._forsaken: set[socket.socket] = set()
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

    @property
    def is_black(self) -> bool:
        return bool(self.black)

    @is_black.setter
    def is_black(self, value: bool) -> None:
        self.black = frozenset({"up", "down"} if value else ())

    def forsake(self) -> None:
        """All that is connected now stays black, and whatever connects from now on gets through."""
        self._forsaken |= set(self._others)
        self.is_black = False

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        for each in (self._listener, *self._others):
            each.close()
        self._selector.close()

    def _serve(self) -> None:
        while not self._is_over:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._others:
                    self._pass_on(key.fileobj)

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self._target)
        except OSError:
            near.close()
            far.close()
            return
        for one, other, way in ((near, far, "up"), (far, near, "down")):
            self._others[one] = other
            self._ways[one] = way
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        is_black = source in self._forsaken or self._ways[source] in self.black
        try:
            data = source.recv(65536)
            if is_black and data:
                self.swallowed.set()
                return
            if data:
                self._others[source].sendall(data)
                return
        except OSError:
            pass
        if not is_black:  # an end is not passed on either
            self._drop(self._others[source])
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        if self._others.pop(one, None) is not None:
            self._selector.unregister(one)
            self._ways.pop(one)
            one.close()
