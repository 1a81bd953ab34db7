"""Merkle trees as in RFC 6962, section 2.1: many hashes under one root.

A tree is known by the roots of its perfect subtrees, one for each bit of its size. That is enough
to add leaves and to compute the root, so ten million leaves need 24 hashes in memory.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Tiles have 256 hashes, as in https://c2sp.org/tlog-tiles.
TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT


def hash_leaf(content: bytes) -> bytes:
    """Return the hash of a leaf, 32 bytes."""
    return hashlib.sha256(b"\0" + content).digest()


def hash_children(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


@dataclass(frozen=True, slots=True)
class Tile:
    """The root of a complete tile: of 256 hashes of the level below. Leaves are level 0."""

    level: int
    number: int
    """Its position among those of its level, from 0 on."""
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of this many leaves."""

    size: int = 0
    edge: tuple[bytes, ...] = ()
    """The roots of its perfect subtrees, the largest first."""

    @property
    def root(self) -> bytes:
        if not self.edge:
            return hashlib.sha256(b"").digest()
        root = self.edge[-1]
        for left in self.edge[-2::-1]:
            root = hash_children(left, root)
        return root

    def add_leaves(self, leaves: Iterable[bytes], tiles: list[Tile] | None = None) -> "Tree":
        """Return the tree with these hashes of leaves behind its own.

        tiles: receives the tiles that they complete.
        """
        size, edge = self.size, list(self.edge)
        for leaf in leaves:
            size += 1
            node, rest, height = leaf, size, 0
            while not rest & 1:
                node = hash_children(edge.pop(), node)
                rest >>= 1
                height += 1
                if tiles is not None and not height % TILE_HEIGHT:
                    tiles.append(Tile(height // TILE_HEIGHT, rest - 1, node))
            edge.append(node)
        return Tree(size, tuple(edge))

    def get_edge_of_level(self, level: int) -> tuple[bytes, ...]:
        """Return the part of the edge that covers the tile which is not complete on this level."""
        heights = [n for n in range(self.size.bit_length()) if self.size >> n & 1][::-1]
        lowest = level * TILE_HEIGHT
        pairs = zip(heights, self.edge, strict=True)
        return tuple(one for n, one in pairs if lowest <= n < lowest + TILE_HEIGHT)


def is_consistent(
    old_size: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether a proof shows that a tree continues an older one (RFC 9162, 2.1.4.2)."""
    if not 0 < old_size < size:
        return not proof and (not old_size or (old_size, old_root) == (size, root))
    # The largest perfect subtree at the end of the older tree begins both ways.
    is_perfect = not old_size & (old_size - 1)
    nodes = [old_root, *proof] if is_perfect else [*proof]
    if not nodes:
        return False
    index, last = old_size - 1, size - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    old_node = node = nodes[0]
    for sibling in nodes[1:]:
        if not last:
            return False
        if index & 1 or index == last:
            old_node, node = hash_children(sibling, old_node), hash_children(sibling, node)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            node = hash_children(node, sibling)
        index, last = index >> 1, last >> 1
    return not last and (old_node, node) == (old_root, root)
