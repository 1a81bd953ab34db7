"""Which lines of a shell only read: nothing that could change a host is taken for such a line."""

import pytest

from bot.features.importing.shell.reads import only_reads


@pytest.mark.parametrize(
    "code",
    [
        "awk -F: '{print $1}' /etc/passwd",
        "awk -F: '($3 > 1000 || $4 == 0) {print $1}' /etc/passwd | grep -wv root",
        "find / -xdev \\( -nouser -o -nogroup \\)",
        "sort -u -k 2 -t: x | uniq -c | cut -d' ' -f2 | tr a b",
        "sed -n -e 's/^x=\\(.*\\)$/\\1/p' /etc/x",
        "sed '/a/,$d;s|b|c|g' /etc/x",
        'passwd -S root | grep -E "root P"',
        'cat /lib/modules/$(uname -r)/modules.builtin | grep -c "squashfs"',
        "set -o pipefail && mount | grep /var | awk '{print $3}' | tac",
        "mount | awk '{print $1, $3}'\n",
        "command -v podman || which docker",
        "k3s --version",
        "sudo LC_ALL=C apt-cache policy nginx 2>/dev/null",
        "echo 'a > b; c'",
        "cut -d: -f1 /etc/passwd\ngrep x \\\n  /etc/group",
    ],
)
def test_line_of_known_readers_only_reads(code: str):
    assert only_reads(code)


@pytest.mark.parametrize(
    "code",
    [
        "awk '{print $1 > \"/x\"}' y",
        "awk '{print $1 | \"sh\"}' y",
        "awk '{system(\"rm \" $1)}' y",
        "awk -i inplace '{print}' y",
        "awk -f program y",
        "find / -delete",
        "find / -name x -exec rm {} \\;",
        "find / -fprint x",
        "sort -o x y",
        "sort --output=x y",
        "sort -uo x y",
        "uniq a b",
        "sed -i s/a/b/ x",
        "sed -n 's|a|b|e' x",
        "sed 's/a/b/w x' y",
        "sed 's/a/b/;w x' y",
        "sed '1r x' y",
        "passwd -d root",
        "mount /x",
        "modprobe x",
        "dpkg -i x.deb",
        "apt-key add x",
        "useradd -D -f 30",
        "cat a | tee b",
        "echo a > b",
        "echo a > /dev/null/b",
        "echo a 2>&1b",
        "cat <<E\na\nE",
        "cat $(ls)",
        'echo "$(rm x)"',
        "echo `rm x`",
        "grep x y\nrm z",
        "ls;rm x",
        "ls & rm x",
        "test -f x || rm y",
        "grep \"a'b\" ; rm 'x'",
        "echo a \\\\\nrm b",
        "df | xargs rm",
        "sudo -u x rm y",
        "X=a rm y",
        "if true; then rm x; fi",
        "unknown",
        "-x",
    ],
)
def test_line_that_may_change_something_does_not_only_read(code: str):
    assert not only_reads(code)
