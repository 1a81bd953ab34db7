"""The command line that is sent over SSH, run by every installed shell, and its answer."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.command import Answer, Shell
from connectors.errors import CommandTimeoutError, SetupError, UnknownOutcomeError
from connectors.wrapper import StreamBuffer, WrappedCommand

SHELLS = [name for name in ("sh", "dash", "bash", "zsh", "tcsh", "fish") if shutil.which(name)]
NASTY = [
    *(
        "",
        " ",
        "'",
        '"',
        "\\",
        "\\\\",
        "\\'",
        "'\\''",
        "!",
        "!!",
        "!$",
        "a!b",
        "$x",
        "${x}",
        "$(id)",
    ),
    *(
        "`id`",
        "*",
        "?",
        "[a-z]",
        "~",
        "~root",
        "{a,b}",
        "#",
        "&",
        "&&",
        "|",
        ";",
        "<",
        ">",
        "^a^b",
    ),
    *(
        "=ls",
        "%1",
        "-n",
        "-e",
        "--",
        "a=b",
        "{{7*7}}",
        "%s",
        "\\n",
        "\\x41",
        "\\0101",
        "{0.x}",
        "é",
    ),
    *(
        "日本",
        "😀",
        "keyturn",
        "$0",
        "$@",
        "${#}",
        "x'; touch canary; '",
        "(",
        ")",
        "1>&2",
        "%",
        "@",
    ),
]


# All that `clean` lets through.
_CLEAN = st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
WORDS = st.lists(st.text(_CLEAN, max_size=30), min_size=1, max_size=60)


def _run_by_shell(shell: str, command: Shell, **environment: str) -> tuple[Answer, WrappedCommand]:
    """Run a command as sshd would with that login shell."""
    wrapped = WrappedCommand(command)
    ended = subprocess.run(
        [shell, "-c", wrapped.line],
        input=wrapped.word_line + command.stdin.encode(),
        capture_output=True,
        check=False,
        timeout=30,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    wrapped.out.add(ended.stdout)
    wrapped.err.add(ended.stderr)
    return wrapped.read_answer(seconds=0), wrapped


def _list_seen_arguments(shell: str, words: list[str]) -> list[str]:
    command = Shell(("printf", "%s\\0", *words))
    return _run_by_shell(shell, command)[0].out.split("\0")[:-1]


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_arguments_reach_a_program_unchanged_by_every_shell(shell: str):
    assert _list_seen_arguments(shell, NASTY) == NASTY


@pytest.mark.parametrize("shell", SHELLS)
@given(words=WORDS)
@settings(max_examples=40)
def test_generated_arguments_reach_a_program_unchanged_by_every_shell(
    shell: str, words: list[str]
):
    assert _list_seen_arguments(shell, words) == words


def test_without_quoting_an_argument_is_executed_by_the_shell():
    wrapped = WrappedCommand(Shell(("echo", "a;echo b")))
    unquoted = wrapped.line.replace("'a;echo b'", "a;echo b")
    assert unquoted != wrapped.line
    result = subprocess.run(
        ["sh", "-c", unquoted], input=wrapped.word_line, capture_output=True, check=False
    )
    assert result.stdout.endswith(b"b\n")


@pytest.mark.parametrize("shell", SHELLS)
def test_exit_status_and_both_streams_are_returned_by_every_shell(shell: str):
    answer, _ = _run_by_shell(
        shell, Shell(("sh", "-c", "cat; echo no >&2; exit 3"), stdin="yes\n")
    )
    assert answer == Answer(3, "yes\n", "no\n")


def test_output_without_a_final_newline_is_returned_unchanged():
    assert _run_by_shell("sh", Shell(("printf", "x")))[0].out == "x"


def test_secret_word_that_ends_the_output_is_hidden_from_the_command():
    answer, wrapped = _run_by_shell("sh", Shell(("env",)), kt_word="exported by the login")
    word = wrapped.word_line.decode().strip()
    assert len(word) == 32
    assert word not in wrapped.line
    assert word not in answer.out
    assert "kt_" not in answer.out


def _create_logger(directory: Path, script: str) -> str:
    """Return a PATH on which `logger` is this script."""
    program = directory / "logger"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"{directory}:/usr/bin:/bin"


def test_note_is_written_to_the_host_log_before_the_command_runs(tmp_path: Path):
    note_file = tmp_path / "told"
    path = _create_logger(tmp_path, f'printf "%s|" "$@" > {note_file}; echo noise; echo noise >&2')
    note = "run 1 step 2: it's $HOME !x"
    answer, _ = _run_by_shell("sh", Shell(("cat", str(note_file)), note=note), PATH=path)
    assert answer == Answer(0, f"-t|keyturn|{note}|")


@pytest.mark.parametrize("script", ["exit 1", "cat", "kill -9 $$"])
def test_command_runs_when_logger_fails(tmp_path: Path, script: str):
    shell = Shell(("cat",), stdin="mine\n", note="run 1 step 2")
    answer, _ = _run_by_shell("sh", shell, PATH=_create_logger(tmp_path, script))
    assert answer == Answer(0, "mine\n")


def test_command_runs_on_a_host_without_logger(tmp_path: Path):
    for program in ("timeout", "cat"):
        (tmp_path / program).symlink_to(f"/usr/bin/{program}")
    (tmp_path / "sh").symlink_to("/bin/sh")
    wrapped = WrappedCommand(Shell(("cat",), stdin="mine\n", note="run 1 step 2"))
    # The script adds directories of its own to PATH: where they are, so is logger.
    line = wrapped.line.replace("/usr/local/sbin:/usr/sbin:/sbin", "/nowhere")
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        input=wrapped.word_line + b"mine\n",
        capture_output=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    wrapped.out.add(ended.stdout)
    wrapped.err.add(ended.stderr)
    assert wrapped.read_answer(seconds=0) == Answer(0, "mine\n")


def test_logger_is_not_run_without_a_note(tmp_path: Path):
    note_file = tmp_path / "told"
    _run_by_shell("sh", Shell(("true",)), PATH=_create_logger(tmp_path, f"touch {note_file}"))
    assert not note_file.exists()


def test_commands_run_with_the_c_locale():
    assert "LC_ALL=C\n" in _run_by_shell("sh", Shell(("env",)), LC_ALL="de_DE.UTF-8")[0].out


def test_command_is_not_run_on_a_host_without_timeout(tmp_path: Path):
    shutil.copy("/bin/sh", tmp_path / "sh")
    wrapped = WrappedCommand(Shell(("touch", str(tmp_path / "canary"))))
    line = wrapped.line.replace(":/usr/local/sbin:/usr/sbin:/sbin", "")
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        input=wrapped.word_line,
        capture_output=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    wrapped.out.add(ended.stdout)
    wrapped.err.add(ended.stderr)
    with pytest.raises(SetupError, match="install coreutils"):
        wrapped.read_answer(seconds=0)
    assert not (tmp_path / "canary").exists()


# --- reading ---


def _add_output(out: bytes, err: bytes, deadline: int = 30) -> WrappedCommand:
    wrapped = WrappedCommand(Shell(("x",), deadline=deadline), "f00d")
    wrapped.out.add(out)
    wrapped.err.add(err)
    return wrapped


@pytest.mark.parametrize(
    ("out", "err"),
    [
        (b"", b""),
        (b"f00d begins\n", b"f00d begins\n"),
        (b"f00d begins\nall fine\n", b"f00d begins\nf00d 0\n"),
        (b"f00d begins\nall fine\nf00d 0\n", b"f00d begins\n"),
        (b"f00d begins\nall fine\nf00d 0", b"f00d begins\nf00d 0\n"),
        (b"f00d begins\nall fine\nf00d 0\n", b"f00d begins\nf00d 1\n"),
        (b"f00d begins\ndead 0\n", b"f00d begins\ndead 0\n"),
        (b"f00d begins\nf00d 0\nmore", b"f00d begins\nf00d 0\n"),
    ],
)
def test_truncated_or_forged_output_has_unknown_outcome(out: bytes, err: bytes):
    wrapped = _add_output(out, err)
    assert not wrapped.has_ended
    with pytest.raises(UnknownOutcomeError) as error:
        wrapped.read_answer(seconds=1)
    assert error.value.started is None


def test_complete_output_is_an_answer():
    wrapped = _add_output(b"f00d begins\nall fine\nf00d 0\n", b"f00d begins\nf00d 0\n")
    assert wrapped.has_ended
    assert wrapped.read_answer(seconds=1) == Answer(0, "all fine\n", "")


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_output_between_the_markers_is_returned_unchanged(out: bytes, err: bytes):
    wrapped = _add_output(
        b"f00d begins\n" + out + b"f00d 0\n", b"noise\nf00d begins\n" + err + b"f00d 0\n"
    )
    answer = wrapped.read_answer(seconds=1)
    assert answer.out == out.decode("utf-8", "backslashreplace")
    assert answer.err == err.decode("utf-8", "backslashreplace")


def test_login_banner_is_not_part_of_the_answer():
    wrapped = _add_output(b"Welcome!\nf00d begins\n5\nf00d 0\n", b"motd\nf00d begins\nf00d 0\n")
    assert wrapped.read_answer(seconds=1) == Answer(0, "5\n", "")


def test_message_of_a_refusing_login_shell_is_quoted():
    wrapped = _add_output(b"This account is currently not available.\n", b"")
    with pytest.raises(UnknownOutcomeError, match="This account is currently not available"):
        wrapped.read_answer(seconds=0)


@pytest.mark.parametrize("status", [124, 137])
def test_exit_status_of_timeout_at_the_deadline_is_a_timeout(status: int):
    end = f"f00d begins\nf00d {status}\n".encode()
    with pytest.raises(CommandTimeoutError, match="at its deadline of 9 s"):
        _add_output(end, end, deadline=9).read_answer(seconds=9.01)


def test_exit_status_124_before_the_deadline_belongs_to_the_program():
    end = b"f00d begins\nf00d 124\n"
    assert _add_output(end, end, deadline=9).read_answer(seconds=8).status == 124


@pytest.mark.parametrize(
    ("status", "name"), [(137, "SIGKILL"), (139, "SIGSEGV"), (143, "SIGTERM")]
)
def test_command_ended_by_a_signal_has_unknown_outcome(status: int, name: str):
    end = f"f00d begins\nf00d {status}\n".encode()
    with pytest.raises(UnknownOutcomeError, match=name) as error:
        _add_output(end, end).read_answer(seconds=0)
    assert error.value.started is None
    assert not isinstance(error.value, CommandTimeoutError)


# --- what is kept ---


def test_long_output_keeps_its_beginning_and_end_and_names_the_gap():
    mebibyte = 1024 * 1024
    kept = StreamBuffer()
    for letter in (b"a", b"b", b"c", b"d", b"e", b"f", b"g"):
        kept.add(letter * mebibyte)
    lines, left_out = kept.read_after(b"")
    assert left_out == 3 * mebibyte
    gap = f"\n[… {left_out} bytes omitted …]\n".encode()
    assert lines == b"".join([letter * mebibyte for letter in (b"a", b"b", b"c")]) + gap + (
        b"g" * mebibyte
    )


@given(st.lists(st.integers(0, 40), max_size=40))
def test_output_below_the_limit_is_kept_whole_in_any_chunks(sizes: list[int]):
    kept = StreamBuffer()
    whole = b""
    for number, size in enumerate(sizes):
        kept.add(bytes([number]) * size)
        whole += bytes([number]) * size
    assert kept.read_after(b"")[0] == whole


def test_end_marker_across_the_buffer_limit_is_recognised():
    room = 3 * 1024 * 1024
    wrapped = WrappedCommand(Shell(("x",)), "f00d")
    wrapped.err.add(b"f00d begins\nf00d 0\n")
    wrapped.out.add(b"f00d begins\n")
    wrapped.out.add(b"x" * (room - 12 - 3) + b"f00d 0\n")
    assert wrapped.has_ended
    answer = wrapped.read_answer(seconds=0)
    assert (len(answer.out), answer.omitted_bytes) == (room - 15, 0)


@pytest.mark.parametrize("stdin", ["", "some"])
def test_wrapper_script_has_no_characters_that_shells_read_differently(stdin: str):
    line = WrappedCommand(Shell(("x",), stdin=stdin)).line
    script = line.removeprefix("sh -c '").partition("' keyturn ")[0]
    assert "begins" in script
    assert not set("'\\!\n") & set(script)


def test_stdin_is_empty_by_default_and_is_read_to_its_end_when_given():
    assert _run_by_shell("sh", Shell(("cat",)))[0].out == ""
    unread = WrappedCommand(Shell(("true",), stdin="x"))
    ended = subprocess.Popen(
        ["sh", "-c", unread.line],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert ended.stdin is not None
    with ended:
        # A pipe that nobody reads would break.
        ended.stdin.write(unread.word_line + b"x" * 1_000_000)
    assert ended.returncode == 0
