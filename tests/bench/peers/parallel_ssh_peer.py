# pyright: basic
# It runs where parallel-ssh is installed, which is not here.
"""parallel-ssh (libssh2 and gevent): USER KEYFILE LINE HOST:PORT…"""

import json
import resource
import sys
import time
from statistics import median

from pssh.clients import ParallelSSHClient  # pyright: ignore[reportMissingImports] - as above
from pssh.config import HostConfig  # pyright: ignore[reportMissingImports] - as above

USER, KEY, LINE, *PLACES = sys.argv[1:]


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(client: ParallelSSHClient) -> float:
    began = time.perf_counter()
    outputs = client.run_command(LINE)
    client.join(outputs)
    for output in outputs:
        # By the word that frames it: `exit_code` is None at times, though the status has come.
        first, *_, last = output.stdout
        assert last.split()[0] == first.split()[0]
    return time.perf_counter() - began


def opened(places: list[str]) -> ParallelSSHClient:
    hosts = [HostConfig(port=int(place.split(":")[1])) for place in places]
    return ParallelSSHClient(
        [place.split(":")[0] for place in places],
        user=USER,
        pkey=KEY,
        host_config=hosts,
        allow_agent=False,
        identity_auth=False,
        pool_size=len(places),
    )


def main() -> None:
    client = opened(PLACES)
    cold = run(client)
    before = cpu()
    warm = median(run(client) for _ in range(3))
    used = (cpu() - before) / len(PLACES) / 3
    single = opened(PLACES[:1])
    run(single)
    one = [run(single) for _ in range(10)]
    print(json.dumps({"cold": cold, "warm": warm, "cpu": used, "one": one}))


main()
