"""A real Chromium: Debian's, or the one that RAILSEARCH_CHROMIUM names."""

import json
import os
import shutil
from importlib import resources
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

VARIABLE = "RAILSEARCH_CHROMIUM"
ADVICE = "`make browser` installs what the tests of the explorer need"


def find_chromium() -> str:
    """Return the path of Chromium; skip the test if there is none."""
    pytest.importorskip("playwright", reason=f"playwright is not installed; {ADVICE}")
    found = os.environ.get(VARIABLE) or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip(f"no chromium was found, and {VARIABLE} is not set; {ADVICE}")
    return found


def launch(playwright: "Playwright") -> "Browser":
    """Start Chromium without a window; root needs it without a sandbox."""
    return playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])


def accessibility_violations(page: "Page") -> list[str]:
    """Return what axe-core finds, by rule and element.

    The script is evaluated by the debugger: the policy of the page would forbid to add it as an element.
    """
    pytest.importorskip("axe_playwright_python", reason=f"axe-core is not installed; {ADVICE}")
    script = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    debugger = page.context.new_cdp_session(page)
    debugger.send("Runtime.evaluate", {"expression": script})
    report = (
        "axe.run().then(found => JSON.stringify(found.violations.flatMap(each => each.nodes.map(node =>"
        " `${each.id}: ${node.target.join(' ')} ${node.failureSummary}`))))"
    )
    answer = debugger.send("Runtime.evaluate", {"expression": report, "awaitPromise": True})
    violations: list[str] = json.loads(answer["result"]["value"])
    return violations
