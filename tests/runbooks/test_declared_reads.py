"""Which commands a page may read with: those that neither change nor run anything."""

import pytest

from runbooks._declared_reads import refuse_change


@pytest.mark.parametrize(
    "arguments",
    [
        "/ -xdev -name *.log -size +10M -printf %p,%s\\n",
        "/srv -type f -mtime +7 -print",
        "-H /srv ! -type l ! -user app -print -quit",
        "/srv ( -type d ! -perm -0755 -o ! -type d -perm /022 ) -print -quit",
        "/srv -perm -u=s,g+w -newer /etc/hosts",
        "/srv /opt -maxdepth 1 -type d,f -newermt 2026-01-01",
        "{path} -user {owner} -mtime +{days} -perm {mode}",
    ],
)
def test_find_reads(arguments: str):
    refuse_change(["/usr/bin/find", *arguments.split()])


@pytest.mark.parametrize(
    "arguments",
    [
        "-delete",
        "-exec rm {} ;",
        "-exec rm {} +",
        "-execdir rm {} ;",
        "-ok rm {} ;",
        "-okdir rm {} ;",
        "-fprint /x",
        "-fprint0 /x",
        "-fprintf /x %p",
        "-fls /x",
        "-files0-from /x",
        "-regex .*",
        # A test without its word leaves an action.
        "-name -delete",
        "-user -delete",
        "-newer -delete",
        "-type f,-delete",
        "-maxdepth -delete",
        "-size -delete",
        "-perm -delete",
        "-perm -fls",
        "-printf -delete",
        "-printf %p -delete",
        "-print -delete",
        "( -delete )",
        "! -delete",
    ],
)
def test_find_with_what_writes_or_runs_is_refused(arguments: str):
    for path in ("/srv", "/", "/srv -type f", "{path}"):
        with pytest.raises(ValueError, match="does not know that `find "):
            refuse_change(["find", *path.split(), *arguments.split()])


@pytest.mark.parametrize(
    "words",
    [
        ["find"],
        ["find", "-delete"],
        ["find", "-files0-from", "/x"],
        ["find", "-D", "exec", "/x"],
        ["find", "/x\n-delete"],
        ["find", "/x", "-name", "a\n-delete"],
        # sudo joins the words of a rule with blanks, so that one word could arrive as two.
        ["find", "/x", "-name", "a -delete"],
        ["find", "/x", "-printf", "%p -delete"],
        ["/tmp/find", "/x"],
    ],
)
def test_find_with_odd_words_is_refused(words: list[str]):
    with pytest.raises(ValueError, match=r"only reads|where programs of the system are"):
        refuse_change(words)


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "-e", r"/^\[main\]/,/^\[/p", "--", "/etc/app.ini"],
        ["-n", "-E", "-e", "1,5p", "--", "/etc/a", "/etc/b"],
        ["-n", "-e", "/^{name}$/,$p", "--", "{path}"],
    ],
)
def test_sed_prints(words: list[str]):
    refuse_change(["/usr/bin/sed", *words])


@pytest.mark.parametrize(
    "code",
    ["p;w /x", "1w /x", "1pw /x", "1e", "e id", "1p;e", "s/a/b/w /x", "s/a/b/e", "s/a/b/", "1d",
     "1i x", "/a/w /x/p", "/a/,/b/w/x/p", "/a b/p", "/[/,/]/p", "/a/e", "/a/I,/b/p", r"\,a,p",
     "1,w/x/p", "/a\\/p", "/a\\nb/p", "1r /x", "1p\nw /x", "/a\n/p", "$!p", "1{p}", "p", ""],
)  # fmt: skip
def test_sed_with_what_writes_runs_or_is_not_known_is_refused(code: str):
    for words in (["-n", "-e", code, "--", "/x"], ["-n", code, "/x"], ["-e", code, "--", "/x"]):
        with pytest.raises(ValueError, match="does not know that `sed "):
            refuse_change(["sed", *words])


@pytest.mark.parametrize(
    "words",
    [
        ["-i", "-n", "-e", "1p", "--", "/x"],
        ["-n", "-i", "-e", "1p", "--", "/x"],
        ["-n", "-e", "1p", "-i", "--", "/x"],
        ["-n", "-e", "1p", "/x", "-i"],
        ["-n", "-e", "1p", "--", "/x", "-i"],
        ["-n", "-e", "1p", "-e", "1w/x", "--", "/x"],
        ["-n", "-f", "/x", "--", "/x"],
        ["-n", "-s", "-e", "1p", "--", "/x"],
        ["-n", "-e", "1p", "--"],
    ],
)
def test_sed_with_other_options_is_refused(words: list[str]):
    with pytest.raises(ValueError, match="does not know that `sed "):
        refuse_change(["sed", *words])
