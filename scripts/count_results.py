"""Adds up JUnit files: prints "N passed, N failed" and exits 1 when something failed.

usage: count_results.py FOLDER FAILED_STAGES
A stage that failed without a failed test (a build, a program that ended early) counts as one failure.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def main() -> int:
    folder, failed_stages = Path(sys.argv[1]), int(sys.argv[2])
    passed = failed = skipped = 0
    for path in sorted(folder.glob("*.xml")):
        for case in ET.parse(path).getroot().iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
                failed += 1
                print(f"failed: {path.stem}: {case.get('classname')} {case.get('name')}")
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    failed = max(failed, failed_stages)
    if passed == 0 and failed == 0:
        failed = 1  # nothing ran: never a success
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
