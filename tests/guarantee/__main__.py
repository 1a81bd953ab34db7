"""`make guarantee`: print what was tried against a host that checks signatures, and what held."""

import logging
import sys
import tempfile
from pathlib import Path

from tests.guarantee.attacked_host import open_attacked_host
from tests.guarantee.campaign import print_service_table, print_table
from tests.guarantee.signed_host import SignedHost

if __name__ == "__main__":
    # The table says what the attacked service refused.
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="keyturn-guarantee-") as directory:
        host = SignedHost(Path(directory))
        held = print_table(host)
    print("\nThrough a stolen Keyturn, over sshd and sudo:")
    with open_attacked_host() as attacked:
        held = print_service_table(attacked) and held
    sys.exit(0 if held else 1)
