"""A real browser for tests: Chromium through its driver, spoken to in the W3C protocol, with nothing to install."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


class Browser:
    """One window."""

    def __init__(self, driver: str, width: int, height: int, is_phone: bool) -> None:
        self._driver = driver
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # the driver is on this machine
        options: dict[str, Any] = {"args": [*ARGUMENTS, f"--window-size={width},{height}"]}
        if is_phone:
            metrics = {"width": width, "height": height, "pixelRatio": 2.0, "mobile": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def visit(self, page: Path) -> None:
        self._ask("POST", f"{self._session}/url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """What a script returns that looks at the page."""
        return self._ask("POST", f"{self._session}/execute/sync", {"script": f"return {script}", "args": []})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._ask("POST", f"{self._session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self) -> list[str]:
        """What the browser's console shows."""
        return [entry["message"] for entry in self._log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self._log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def picture(self, path: Path) -> None:
        """The whole page, as tall as it is."""
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_out(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.devtools("Page.printToPDF", printBackground=True)["data"]))

    def close(self) -> None:
        self._ask("DELETE", self._session)

    def _log(self, kind: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self._ask("POST", f"{self._session}/se/log", {"type": kind})
        return entries

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._driver + path, data, {"Content-Type": "application/json"}, method=method)
        with self._open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]


@contextmanager
def open_browser(width: int, height: int = 900, is_phone: bool = False) -> Iterator[Browser]:
    """A window of its own with a driver of its own; both are gone afterwards."""
    process = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        browser = Browser(f"http://127.0.0.1:{_port(process)}", width, height, is_phone)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        process.terminate()
        process.communicate()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"started successfully on port (\d+)", line):
            return int(found[1])
    raise RuntimeError("chromedriver did not start")
