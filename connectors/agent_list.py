"""Which user agents a web server refuses by a list of ours, whichever server it is. No I/O."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Agents:
    """What our file refuses. heeding: servers that include the file. servers: all there are.

    Agents are told in their order in the file, as people gave them.
    """

    refused: tuple[str, ...]
    heeding: int
    servers: int
