"""How much of a campaign runs: all of it in `make chaos`, a sample in `make test`."""

import os

# The number of event orders to try, as the Makefile explains it; 0 in `make test`.
CHAOS = int(os.environ.get("KEYTURN_CHAOS", "0"))
