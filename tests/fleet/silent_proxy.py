"""A network on the way to a server that can go black: all is accepted and acknowledged, and nothing is passed on."""

from __future__ import annotations

import selectors
import socket
import threading


class SilentProxy:
    """Listens on a port of this machine, and passes on to a unix socket what comes, unless it `is_black`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.is_black = False
        self.swallowed = threading.Event()
        """Set as soon as something was not passed on."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._others: dict[socket.socket, socket.socket] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread.start()

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
        for one, other in ((near, far), (far, near)):
            self._others[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(65536)
            if self.is_black and data:
                self.swallowed.set()
                return
            if data:
                self._others[source].sendall(data)
                return
        except OSError:
            pass
        if not self.is_black:  # an end is not passed on either
            self._drop(self._others[source])
        self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        if self._others.pop(one, None) is not None:
            self._selector.unregister(one)
            one.close()
