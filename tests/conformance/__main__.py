"""`make conformance`: print what tools of others say about our log, and whether it is right."""

import logging
import sys
import tempfile
from pathlib import Path

from tests.conformance.campaign import run_campaign
from tests.conformance.foreign_tools import install_tools

if __name__ == "__main__":
    tools = Path(sys.argv[1]).absolute()
    if why := install_tools(tools):
        print(f"conformance is skipped: {why}")
        sys.exit(0)
    logging.disable()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="keyturn-conformance-") as directory:
        for what, said, is_good in run_campaign(tools, Path(directory)):
            is_right = (not said) == is_good
            failures += not is_right
            print(f"{'ok   ' if is_right else 'WRONG'} {what}: {said or 'accepted'}")
    sys.exit(1 if failures else 0)
