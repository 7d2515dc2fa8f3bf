"""Chromium without a window, driven by its DevTools protocol over a pair of pipes: nothing to install."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0  # seconds: of a busy machine, not of the page
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root, and the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "about:blank",
)


def find() -> str | None:
    """The browser that there is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser, with one page after the other."""

    def __init__(self, path: str, home: Path) -> None:
        reading, its_output = _pipe()
        its_input, writing = _pipe()
        null = os.open(os.devnull, os.O_RDWR)
        self.pid = os.posix_spawn(
            path,
            [path, f"--user-data-dir={home}", *FLAGS],
            {**os.environ, "HOME": str(home)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
                (os.POSIX_SPAWN_DUP2, its_input, 3),
                (os.POSIX_SPAWN_DUP2, its_output, 4),
            ],
        )
        for fd in (null, its_input, its_output):
            os.close(fd)
        self._reading, self._writing = reading, writing
        self._buffer = b""
        self._calls = 0
        self.events: list[dict[str, Any]] = []

    def close(self) -> None:
        """End it, and wait until it has."""
        with suppress(OSError, EOFError):  # it may be quicker than its answer
            self.call("Browser.close")
        os.close(self._writing)
        os.close(self._reading)
        os.waitpid(self.pid, 0)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        """What the browser answers; what it tells meanwhile goes to `events`."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writing, data) :]
        while (answer := self._next()).get("id") != self._calls:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait(self, method: str) -> None:
        """Until it tells of `method`, or has."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            if not select.select([self._reading], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {PATIENCE:g} s")
            data = os.read(self._reading, 1 << 20)
            if not data:
                raise EOFError("the browser is gone")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


class Page:
    """One page in it, and the hands of its user."""

    def __init__(self, browser: Browser, *, width: int = 1280, height: int = 900) -> None:
        self.browser = browser
        browser.events.clear()
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method: str, **parameters: Any) -> Any:
        return self.browser.call(method, self._session, **parameters)

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, file: Path) -> None:
        self.browser.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.browser.wait("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """The value of `expression` in the page, awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait, frame by frame, until `condition` holds."""
        held = self.ask(
            f"""new Promise((done) => {{
                const end = performance.now() + {PATIENCE * 500};
                const look = () => ({condition}) ? done(true)
                    : performance.now() > end ? done(false) : requestAnimationFrame(look);
                look();
            }})"""
        )
        assert held, f"never came true: {condition}"

    def settle(self) -> None:
        """Let what was asked for be drawn."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.mouse("mousePressed", *start, **held)
        self.mouse("mouseMoved", *end, **held)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def press(self, key: str, modifiers: int = 0) -> None:
        known = {"key": key, "modifiers": modifiers}
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key)
        if len(key) == 1:
            known["text"] = key
        if key == "Enter":
            known["text"] = "\r"
        if code is not None:
            known["windowsVirtualKeyCode"] = code
        self.call("Input.dispatchKeyEvent", type="keyDown", **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)
        self.settle()

    def requests(self) -> list[str]:
        """What was asked of anywhere."""
        self.settle()
        return [
            event["params"]["request"]["url"]
            for event in self.browser.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[Any]:
        """Errors, violations of the page's policy, dialogues, and what was printed."""
        self.settle()
        bad = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
        return [
            event["params"]
            for event in self.browser.events
            if event.get("method") in (*bad, "Page.javascriptDialogOpening")
        ]

    def named(self) -> list[tuple[str, str]]:
        """The accessibility tree: each role with its name."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are none of the numbers that the browser wants for its own."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
