"""Let scim2-tester judge a server, and print its results as JSON.

    python -m tests.bot.features.scim.judge ADDRESS <<< TOKEN

A process of its own: its models search all modules of the process for their source, one by one,
which takes ten seconds where the tests have loaded theirs.
"""

import json
import sys

import httpx2
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import check_server


def main() -> None:
    headers = {"Authorization": f"Bearer {sys.stdin.readline().strip()}"}
    with httpx2.Client(base_url=sys.argv[1], headers=headers, timeout=60) as client:
        results = check_server(SyncSCIMClient(client))
    found = [
        {
            "status": one.status.name,
            "title": one.title,
            "resource": one.resource_type,
            "reason": one.reason,
        }
        for one in results
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
