import pytest

from connectors import mounts
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.mounts import Mount, parse_exports, parse_mount
from tests.connectors.storage import recorded
from tests.connectors.understanding import is_understood


def test_nfs_exports_are_parsed_with_their_clients():
    exports = parse_exports(recorded("exportfs-s"))
    assert [(export.path, export.clients) for export in exports] == [
        ("/export/projects", "192.0.2.7"),
        ("/export/projects", "10.0.0.0/8"),
        ("/export/with space", "10.0.0.0/8"),
        ("/export/mp", "10.0.0.0/8"),
        ("/export/fast", "10.0.0.0/8"),
        ("/export/home/sub", "10.0.0.0/8"),
        ("/srv/onroot", "10.0.0.0/8"),
        ("/export/home/sub", "*"),
    ]
    assert "ro" in exports[0].options


def test_nfs_export_path_with_non_ascii_letters_is_decoded():
    assert parse_exports("/export/café\\040é  *(rw)\n")[0].path == "/export/café é"


def test_empty_exportfs_output_has_no_exports():
    assert parse_exports("") == ()


@pytest.mark.parametrize(
    "answer",
    [
        "exportfs: something\n",
        "/export\n",
        "/export *\n",
        recorded("exportfs-v"),
        "/a\\012b  *(rw)\n",
        "/a\\377  *(rw)\n",
        "/a\\000  *(rw)\n",
    ],
)
def test_invalid_nfs_export_is_not_understood(answer: str):
    assert not is_understood(lambda: parse_exports(answer))


def test_exportfs_permission_error_with_exit_status_0_is_a_failure():
    query = mounts.query_exports()
    output = (
        "exportfs: could not open /var/lib/nfs/.etab.lock for locking: "
        "errno 13 (Permission denied)\n"
    )
    assert find_failure(query.command, Answer(0, "", output), query.statuses) is not None
    assert find_failure(query.command, Answer(0, "", ""), query.statuses) is None


def test_missing_exportfs_is_named_with_its_package():
    output = "timeout: failed to run command 'exportfs': No such file or directory"
    error = find_failure(mounts.query_exports().command, Answer(127, "", output), frozenset({0}))
    assert "nfs-kernel-server" in str(error)


@pytest.mark.parametrize(
    ("name", "mount"),
    [
        ("lvm", Mount("/export/projects", "/dev/mapper/vg0-export", "ext4", "253:0")),
        ("part", Mount("/export/home", "/dev/sdc1", "ext4", "8:33")),
        ("nvme", Mount("/export/fast", "/dev/nvme0n1p1", "xfs", "259:1")),
        ("raid10", Mount("/export/md1", "/dev/md1", "ext4", "9:1")),
        ("multipath", Mount("/export/mp", "/dev/mapper/mpatha", "ext4", "253:0")),
        ("tmpfs", Mount("/srv/onroot", "tm", "tmpfs", "0:34")),
    ],
)
def test_mount_of_a_path_is_parsed(name: str, mount: Mount):
    assert parse_mount(recorded(f"findmnt-{name}")) == mount


@pytest.mark.parametrize("answer", ["", "{}", '{"filesystems": []}', '{"filesystems": [{}]}'])
def test_invalid_mount_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        parse_mount(answer)


def test_mount_query_reports_a_path_that_does_not_exist():
    assert "no such path" in str(
        find_failure(mounts.query_mount("/x").command, Answer(1, ""), frozenset({0}))
    )
