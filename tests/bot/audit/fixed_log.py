"""A log that is the same each time, for what programs of others said about it."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.audit.change_log import Entry
from bot.audit.events import Claimed, KeyAdded
from bot.db.database import Database
from bot.model.canonical import encode_canonical
from bot.model.signing import SigningKey
from tests.bot.rewritten_log import rehash, rewrite

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
_BEGIN = 1_790_000_000_000_000


def write_fixed_log(database: Database, size: int) -> None:
    """Write a log of this many entries, under checkpoints of KEY."""
    key = encode_canonical(KeyAdded(public=KEY.public_key).encode())
    entries = [Entry(1, _BEGIN, KeyAdded.kind, None, "", "", key, "")]
    for n in range(2, size + 1):
        body = encode_canonical(Claimed(worker="wörker", fence=n).encode())
        entries.append(Entry(n, _BEGIN + n, Claimed.kind, n, "dora", "lb1", body, ""))
    rewrite(database, rehash(entries), KEY)
