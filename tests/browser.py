"""Drive a headless Chromium over two pipes: what a page says on its console, what it computes, how it looks."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: Nothing that is asked here takes longer, even on a busy machine.
LIMIT_S = 60.0


def find_browser() -> str | None:
    """Return the browser that is installed; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """Hold a browser with one page open; ``complaints`` are the errors and warnings that it has logged so far."""

    def __init__(self, program: str) -> None:
        self.home = tempfile.TemporaryDirectory()
        (low_in, self.out), (self.into, low_out) = os.pipe(), os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4: ours must be none of the two.
        theirs_in, theirs_out = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (low_in, low_out))
        words = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--remote-debugging-pipe", "--no-first-run", "--disable-extensions", "--disable-background-networking"),
            f"--user-data-dir={self.home.name}",
        ]
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for descriptor in (low_in, low_out, theirs_in, theirs_out):
            os.close(descriptor)
        self.numbers, self.rest, self.session = itertools.count(1), b"", None
        self.events: list[dict[str, Any]] = []
        self.complaints: list[str] = []

    def __enter__(self) -> Browser:
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and all that it has started."""
        for descriptor in (self.out, self.into):
            os.close(descriptor)
        try:
            self.process.wait(10)  # it ends by itself once nobody asks
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.home.cleanup()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command, and return its answer; what happens meanwhile goes to ``events``."""
        number = next(self.numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + LIMIT_S
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                found: dict[str, Any] = answer["result"]
                return found
            self._happened(answer)

    def _receive(self, end: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self.into, 1 << 20)
            assert more, "the browser has ended"
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _happened(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])

    def open(self, file: Path, *, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a file in a window of so many CSS pixels, and wait until it is there."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", media="", features=scheme)
        self.events.clear()
        self.ask("Page.navigate", url=file.resolve().as_uri())
        end = time.monotonic() + LIMIT_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._happened(self._receive(end))

    def value(self, expression: str) -> Any:
        """Return what an expression of the page's language comes to."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for since it was opened."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [told["request"]["url"] for told in sent]

    def point_at(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Save how the page looks, down to its end or only the window."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def printed(self) -> bytes:
        """Return the page as a printer would get it: a PDF."""
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=False)["data"])
