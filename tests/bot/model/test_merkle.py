"""Merkle trees have the roots of RFC 6962, however the leaves arrive."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from bot.model.merkle import Tile, Tree, hash_children, hash_leaf

# The leaves and roots of the tests of certificate-transparency and transparency-dev/merkle.
_LEAVES = [
    bytes.fromhex(leaf)
    for leaf in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
_ROOTS = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def test_roots_are_those_of_certificate_transparency():
    roots = [Tree().add_leaves(map(hash_leaf, _LEAVES[:n])).root.hex() for n in range(9)]
    assert tuple(roots) == _ROOTS


def _compute_root(leaves: list[bytes]) -> bytes:
    """Return the root by the definition in RFC 6962, section 2.1."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hash_children(_compute_root(leaves[:split]), _compute_root(leaves[split:]))


def _make_leaves(count: int) -> list[bytes]:
    return [hash_leaf(str(n).encode()) for n in range(count)]


@given(st.integers(0, 600), st.integers(0, 600))
def test_leaves_that_arrive_in_parts_have_the_root_of_the_definition(count: int, first: int):
    leaves = _make_leaves(count)
    tiles: list[Tile] = []
    tree = Tree().add_leaves(leaves[:first], tiles).add_leaves(leaves[first:], tiles)
    assert (tree.size, tree.root) == (count, _compute_root(leaves))
    assert tiles == [
        Tile(1, n, _compute_root(leaves[256 * n : 256 * n + 256])) for n in range(count // 256)
    ]


def test_edge_of_a_level_covers_its_incomplete_tile():
    leaves = _make_leaves(66_000)
    tiles: list[Tile] = []
    tree = Tree().add_leaves(leaves, tiles)
    below = [tile.hash for tile in tiles if tile.level == 1]
    assert [(tile.level, tile.number) for tile in tiles if tile.level > 1] == [(2, 0)]
    assert tree.get_edge_of_level(0) == Tree().add_leaves(leaves[256 * 257 :]).edge
    assert tree.get_edge_of_level(1) == Tree().add_leaves(below[256:]).edge
    assert tree.get_edge_of_level(2) == (tiles[255 + 1].hash,)
