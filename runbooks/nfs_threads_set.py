from typing import Annotated

from pydantic import Field

from connectors import nfsd
from connectors.command import QueryRunner
from runbooks import Change, Host, Plan, Refused, Step, make_host_field


class SetNfsThreads(
    Change[int],
    words="nfs threads set",
    example="nas1 64",
    undo="sets the previous number",
    sets="nfs threads",
):
    """Set how many requests the NFS server handles at once, until it is next started."""

    host: Host = make_host_field("nfs")
    threads: Annotated[
        int, Field(ge=1, le=nfsd.MAX_THREADS, description=f"Threads, from 1 to {nfsd.MAX_THREADS}")
    ]

    def read(self, run_query: QueryRunner) -> int:
        return run_query(self.host, nfsd.query_threads())

    def plan(self, current: int) -> Plan:
        if current == self.threads:
            return Plan(f"the NFS server has {current} threads")
        if not current:
            raise Refused("the NFS server is stopped: start nfs-server first")
        step = Step(
            f"Set the NFS server's threads to {self.threads}",
            self.host,
            do=nfsd.set_threads(self.threads),
            undo=nfsd.set_threads(current),
            before=f"{current} threads",
            after=f"{self.threads} threads",
        )
        notes = [
            "Requests that are being handled are not interrupted.",
            "The next start of the server sets `threads` of [nfsd] in /etc/nfs.conf: change it "
            "there too.",
        ]
        return Plan(f"the NFS server has {current} threads", [step], notes)
