"""Rules of the project that no linter checks."""

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import paramiko
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler

from bot.audit import events
from bot.cli.runbook_kit.lint import lint_runbook
from bot.cli.runbook_kit.shell_lint import has_scripts, is_installed, lint_scripts
from bot.model.request_form import list_form_fields
from runbooks import load_catalogue
from runbooks._lists import LISTS

ROOT = Path(__file__).parent.parent
PACKAGES = ("bot", "runbooks", "connectors")
SHAPELESS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager"}

# Spelled in pieces, so that this file does not hold what it looks for.
REGISTRIES = tuple(
    "".join(pieces)
    for pieces in (
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("registry.", "npmjs"),
        ("registry.", "yarnpkg"),
        ("proxy.", "golang.org"),
        ("crates", ".io"),
        ("deb.", "debian.org"),
    )
)
INDEX_OPTIONS = tuple(
    "".join(pieces)
    for pieces in (
        ("index", "-url"),
        ("INDEX", "_URL"),
        ("DEFAULT", "_INDEX"),
        ("trusted", "-host"),
        ("--", "registry"),
        ("registry", "="),
        ("find", "-links "),
    )
)
BUILD_FOLDERS = re.compile(r"(?<![\w.*})-])/(?:work|root|farm|home/\w+)/")


def _read_pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _list_modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def _list_committed_files() -> list[tuple[str, str]]:
    """Return the path and the text of every committed file that is text."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        (name, (ROOT / name).read_bytes().decode(errors="replace"))
        for name in listing.stdout.split("\0")
        if (ROOT / name).is_file()
    ]


def _find_lines_with(wanted: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in _list_committed_files()
        if wanted.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if wanted.search(line)
    ]


def _match_any_of(words: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)))


def _read_pins(name: str) -> dict[str, str]:
    """Return the versions that a lock file pins, by package; each must come with a hash."""
    return _parse_pins(name, (ROOT / "requirements" / name).read_text())


def _parse_pins(name: str, text: str) -> dict[str, str]:
    pins: dict[str, str] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            package, _, version = line.split()[0].partition("==")
            assert version, f"requirements/{name} does not pin {package}"
            assert "--hash=sha256:" in line, f"requirements/{name} has no hash for {package}"
            pins[canonicalize_name(package)] = version
    return pins


def _list_unlocked(wanted: Sequence[str], pins: dict[str, str]) -> list[str]:
    requirements = map(Requirement, wanted)
    return [
        str(requirement)
        for requirement in requirements
        if not requirement.specifier.contains(pins.get(canonicalize_name(requirement.name), "0"))
        or canonicalize_name(requirement.name) not in pins
    ]


# --- the shape of the code ---


def test_imports_keep_their_contracts() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    verdict = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr


def test_no_module_has_a_vague_name() -> None:
    parts = {part.strip("_") for path in _list_modules() for part in path.relative_to(ROOT).parts}
    stems = {part.removesuffix(".py").strip("_") for part in parts}
    assert stems & SHAPELESS == set()


# --- libraries are used by what they publish ---

LIBRARIES = {
    *("aiohttp", "apscheduler", "authlib", "fastapi", "httpx2", "jinja2", "joserfc", "netmiko"),
    *("paramiko", "procrastinate", "slack_bolt", "slack_sdk", "sqlalchemy", "starlette"),
    "uvicorn",
}
# Documented: os._exit, and for named tuples and SQLAlchemy's rows what no column is called.
_DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_mapping", "_replace"}
_MANGLED = re.compile(r"_[A-Z]\w*__\w+")


def _is_private(name: str) -> bool:
    special = name.startswith("__") and name.endswith("__")
    return name.startswith("_") and not special and name not in _DOCUMENTED


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _list_private_uses(source: str) -> list[str]:
    """Return each use of a private name of something else than the class that uses it."""
    return [use for node in ast.walk(ast.parse(source)) for use in _iterate_private_names(node)]


def _iterate_private_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(value=value, attr=name) if _is_private(name):
            if not _is_own(value) or _MANGLED.fullmatch(name):
                yield ast.unparse(node)
        case ast.Import(names=names):
            yield from (one.name for one in names if _is_private_module(one.name))
        case ast.ImportFrom(module=str(module), names=names):
            yield from (
                name for one in names if _is_private_module(name := f"{module}.{one.name}")
            )
        case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=args):
            match args:
                case [_, ast.Constant(value=str(name)), *_] if _is_private(name):
                    yield ast.unparse(node)
                case _:
                    return
        case _:
            return


def _is_private_module(module: str) -> bool:
    library, *rest = module.split(".")
    return library in LIBRARIES and any(map(_is_private, rest))


def _iterate_own_classes() -> Iterator[type[Any]]:
    for path in _list_modules():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):
            members = vars(importlib.import_module(name)).values()
            yield from (one for one in members if isinstance(one, type) and one.__module__ == name)


def _iterate_names_shared_with_libraries(own: type[Any]) -> Iterator[str]:
    """Yield the private names that a class uses and that it inherits from a library's class."""
    bases = [base for base in own.__mro__ if base.__module__.partition(".")[0] in LIBRARIES]
    if not bases:
        return
    inherited = {name for base in bases for name in _list_private_names(base)}
    for name in sorted(_list_private_names(own) & inherited):
        yield f"{own.__module__}.{own.__qualname__}.{name}"


@cache
def _list_private_names(one: type[Any]) -> set[str]:
    """Return the private names that a class defines, or uses of itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(one)))
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _is_own(n.value)}
    (body,) = tree.body
    return {name for name in used | _names_of_body(body) if _is_private(name)}


def _names_of_body(body: ast.stmt) -> set[str]:
    names = set[str]()
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names.update(one.id for one in targets if isinstance(one, ast.Name))
            case _:
                continue
    return names


def test_no_module_reads_a_private_name_of_a_library() -> None:
    uses = {
        f"{path.relative_to(ROOT)}: {use}"
        for path in _list_modules()
        for use in _list_private_uses(path.read_text())
    }
    assert uses == set()


def test_no_class_overrides_a_private_name_of_a_library() -> None:
    classes = list(_iterate_own_classes())
    assert [use for own in classes for use in _iterate_names_shared_with_libraries(own)] == []


@pytest.mark.parametrize(
    "source",
    [
        "transport._auth",
        "self.transport._Transport__clear = 1",
        "self._Packetizer__dump_packets",
        "super()._can_retry_async()",
        "getattr(transport, '_auth', None)",
        "setattr(engine, '_pool', pool)",
        "import sqlalchemy.engine._py_row",
        "from starlette._utils import AwaitableOrContextManager",
        "from slack_sdk.web import _x",
    ],
)
def test_access_to_a_private_name_is_found(source: str) -> None:
    assert _list_private_uses(source)


@pytest.mark.parametrize(
    "source", ["self._own", "cls._own", "x.__class__", "row._asdict()", "from bot import _x"]
)
def test_own_private_name_may_be_used(source: str) -> None:
    assert _list_private_uses(source) == []


class _OverridesAMethod(AsyncConnectionErrorRetryHandler):
    async def _can_retry_async(self, **_: object) -> bool:
        return False


class _OverridesAnAttribute(paramiko.Transport):
    def stop(self) -> None:
        self._agreed = self._expected_packet = ()


@pytest.mark.parametrize(
    ("own", "name"),
    [(_OverridesAMethod, "_can_retry_async"), (_OverridesAnAttribute, "_expected_packet")],
)
def test_overridden_private_name_of_a_library_is_found(own: type[Any], name: str) -> None:
    names = list(_iterate_names_shared_with_libraries(own))
    assert names == [f"{own.__module__}.{own.__qualname__}.{name}"]


# --- dialects ---


def _list_connector_layers() -> list[set[str]]:
    """Return the modules of connectors that the contract names, the highest layer first."""
    contracts = _read_pyproject()["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each.get("containers") == ["connectors"]]
    return [set(re.findall(r"\w+", layer)) for layer in contract["layers"]]


def _list_connector_imports() -> dict[str, set[str]]:
    """Return, for each module of connectors, which others of them it imports."""
    wanted = re.compile(r"^\s*from connectors(?:\.(\w+))? import (\([^)]*\)|.*)$", re.MULTILINE)
    return {
        path.stem: {
            name
            for module, names in wanted.findall(path.read_text())
            for name in ([module] if module else re.findall(r"\w+", names))
        }
        for path in (ROOT / "connectors").glob("[!_]*.py")
    }


def _list_forbidden_imports(
    imports: Mapping[str, set[str]], layers: Sequence[set[str]]
) -> list[str]:
    """Say which dialect imports another or the wire, and who imports a dialect."""
    named = set[str]().union(*layers)
    (wire,) = [n for n, layer in enumerate(layers) if "ssh" in layer]
    below = set[str]().union(*layers[wire + 1 :])
    return [
        f"connectors.{module} imports connectors.{other}"
        for module, others in imports.items()
        for other in sorted(others & (imports.keys() | named))
        if other not in named or (module not in named and other not in below)
    ]


def test_connector_dialects_import_neither_each_other_nor_the_transport() -> None:
    imports = _list_connector_imports()
    assert "command" in imports["haproxy"]
    assert _list_forbidden_imports(imports, _list_connector_layers()) == []


@pytest.mark.parametrize("other", ["haproxy", "ssh", "ssh_pool", "fleet"])
def test_new_connector_dialect_that_imports_another_is_found(other: str) -> None:
    imports = {**_list_connector_imports(), "new": {"command", other}}
    problems = [f"connectors.new imports connectors.{other}"]
    assert _list_forbidden_imports(imports, _list_connector_layers()) == problems


def test_transport_module_that_imports_a_dialect_is_found() -> None:
    imports = {"fleet": {"haproxy", "sessions"}, "haproxy": {"command"}}
    problems = ["connectors.fleet imports connectors.haproxy"]
    assert _list_forbidden_imports(imports, _list_connector_layers()) == problems


# --- runbooks ---


@pytest.mark.parametrize("words", load_catalogue())
def test_every_runbook_passes_the_runbook_lint(words: str) -> None:
    runbook = load_catalogue()[words]
    assert [*lint_runbook(runbook), *lint_scripts(runbook)] == []
    assert is_installed() or not has_scripts(runbook)


def test_every_list_named_by_a_form_field_has_a_lister() -> None:
    fields = [
        field for runbook in load_catalogue().values() for field in list_form_fields(runbook)
    ]
    assert {field.lists for field in fields} - {""} == set(LISTS)


def test_every_runbook_has_a_test_file() -> None:
    modules = {runbook.__module__.rpartition(".")[2] for runbook in load_catalogue().values()}
    tests = ROOT / "tests" / "runbooks"
    assert {name for name in modules if not (tests / f"test_{name}.py").is_file()} == set()


def test_every_public_module_of_runbooks_is_a_runbook() -> None:
    modules = {path.stem for path in (ROOT / "runbooks").glob("[!_]*.*")}
    assert modules == {
        runbook.__module__.rpartition(".")[2] for runbook in load_catalogue().values()
    }


# --- what is committed ---


@pytest.mark.parametrize("pattern", [_match_any_of(REGISTRIES), _match_any_of(INDEX_OPTIONS)])
def test_no_file_names_a_package_registry(pattern: re.Pattern[str]) -> None:
    assert _find_lines_with(pattern) == []


def test_no_file_names_a_folder_of_the_build_machine() -> None:
    assert _find_lines_with(BUILD_FOLDERS) == []


@pytest.mark.parametrize("folder", ["/wo" + "rk/main", "/ro" + "ot/.ssh", "/ho" + "me/ada/src"])
@pytest.mark.parametrize("before", ["", " ", '"', "=", "file://"])
def test_folder_of_the_build_machine_is_found_after_any_prefix(folder: str, before: str) -> None:
    assert BUILD_FOLDERS.search(before + folder)


@pytest.mark.parametrize("text", ["https://example.org/work/1", "tests/work/", "{base}/home/x/"])
def test_other_paths_are_not_reported_as_build_folders(text: str) -> None:
    assert not BUILD_FOLDERS.search(text)


# --- locks and versions ---


def test_service_dependencies_are_locked_with_hashes() -> None:
    assert (
        _list_unlocked(_read_pyproject()["project"]["dependencies"], _read_pins("run.txt")) == []
    )


def test_development_dependencies_are_locked_with_hashes() -> None:
    project = _read_pyproject()["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    assert _list_unlocked(wanted, _read_pins("dev.txt")) == []


def test_build_dependencies_are_locked_with_hashes() -> None:
    assert (
        _list_unlocked(_read_pyproject()["build-system"]["requires"], _read_pins("build.txt"))
        == []
    )


@pytest.mark.parametrize("name", ["run.txt", "build.txt"])
def test_development_lock_has_the_same_versions_as_the_other_locks(name: str) -> None:
    assert _read_pins(name).items() <= _read_pins("dev.txt").items()


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").iterdir()), ids=lambda f: f.name)
def test_every_requirements_file_is_locked_with_hashes(file: Path) -> None:
    assert file.suffix == ".txt"
    assert _read_pins(file.name)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("left-pad==1.0", "has no hash"),
        ("left-pad>=1.0 --hash=sha256:00", "does not pin"),
        ("-r other.txt", "does not pin"),
        ("left-pad==1.0 --hash=md5:00", "has no hash"),
    ],
)
def test_requirement_without_a_hash_is_found(line: str, missing: str) -> None:
    with pytest.raises(AssertionError, match=missing):
        _parse_pins("some.txt", line)


AUDITOR = re.compile(r"\bpip" + r"[-_]audit\b")
STRICT = re.compile(r"\bpip" + r"[-_]audit\b.*\s--strict\b")


def _find_lenient_audits(lines: Sequence[str]) -> list[str]:
    """Return where the auditor is run so that it skips a package and finds all well."""
    return [line for line in lines if AUDITOR.search(line) and not STRICT.search(line)]


def test_every_dependency_audit_is_strict() -> None:
    names = ("Makefile", ".ci/", "Dockerfile", "pyproject.toml")
    where = [text for name, text in _list_committed_files() if name.startswith(names)]
    assert _find_lenient_audits([line for text in where for line in text.splitlines()]) == []


def test_dependency_audit_that_is_not_strict_is_found() -> None:
    auditor = "pip" + "-audit"
    lines = [f"{auditor} -r run.txt", f"{auditor} --strict -r run.txt", "pip audits"]
    assert _find_lenient_audits(lines) == lines[:1]


def test_dependency_that_is_not_locked_is_found() -> None:
    pins = {"left-pad": "1.0"}
    assert _list_unlocked(["left_pad>=1", "left-pad>=2", "right-pad"], pins) == [
        "left-pad>=2",
        "right-pad",
    ]


def test_front_end_packages_are_locked_with_hashes_and_without_addresses() -> None:
    wanted = json.loads((ROOT / "package.json").read_text())["dependencies"]
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["dependencies"] == wanted
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if "integrity" not in package] == []


def test_changelog_file_begins_with_the_project_version() -> None:
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == _read_pyproject()["project"]["version"]


# Words that are also a state or an ordinary word are found only where a kind is compared.
_KINDS = {each.kind for each in events.EVENT_TYPES}
_KINDS_OF_WORDS = {kind for kind in _KINDS if not kind.isalpha() and "_" not in kind}


def _list_kinds_in_literals(source: str) -> list[str]:
    """Return the kinds of log entries that a module spells instead of naming their class."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in _KINDS_OF_WORDS:
            found.append(str(node.value))
        if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("entry.kind"):
            compared = [one for other in node.comparators for one in ast.walk(other)]
            texts = [one.value for one in compared if isinstance(one, ast.Constant)]
            found += [str(text) for text in texts if text in _KINDS - _KINDS_OF_WORDS]
    return found


def test_kinds_of_log_entries_are_spelt_only_where_they_are_defined() -> None:
    modules = [path for path in _list_modules() if path != ROOT / "bot/audit/events.py"]
    found = {path.name: _list_kinds_in_literals(path.read_text()) for path in modules}
    # The label of a group of hosts, and the colour of the label of a state.
    assert {name: kinds for name, kinds in found.items() if kinds} == {
        "fanout_chart.py": ["on hold"],
        "terminal.py": ["on hold"],
    }


@pytest.mark.parametrize(
    "source",
    [
        'append(tx, "step sending")',
        'entry.kind == "approved"',
        'entry.kind in {"approved", "started"}',
        'select(x).where(tables.entry.kind == "started")',
    ],
)
def test_spelt_kind_of_a_log_entry_is_found(source: str) -> None:
    assert _list_kinds_in_literals(source)


# Names of texts that are made for people, and what would read facts back from them.
_TEXTS_FOR_PEOPLE = re.compile(
    r"\b(summary|reason|sentence|message|msg|detail|finding|title|label|why|note|notice|refusal|"
    r"explanation|outcome)\b(?!\()|\bstr\((error|refusal|refused|problem)\b"
)
_READS_OF_TEXT = {
    *("startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"),
    *("split", "index", "find"),
}
# What reads a text all the same, and why nothing better is known.
_READERS_OF_TEXT = {
    "str(error).removeprefix('Bad ')": "CronSim names the field that is wrong in its message only",
    "message.split(' ', 1)": "a validator of a whole runbook names its field with the first word",
    "startswith(f'Value error, {name} ')": "the same",
    "str(error).split()": "it only joins the lines of a message",
    "str(record.msg).partition": "messages of libraries' loggers, counted to suppress floods",
}


def _list_readers_of_text(source: str) -> list[str]:
    """Return where a module reads a text for people, or facts of an entry without its type."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        shown = ast.unparse(node) if isinstance(node, ast.Call | ast.Subscript) else ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            subject = ast.unparse(node.func.value)
            reads = node.func.attr in _READS_OF_TEXT
            # A text of any name that is held against one of these is read, too.
            sides = [subject, *map(ast.unparse, node.args)]
            is_text = any(
                re.search(rf"({_TEXTS_FOR_PEOPLE.pattern})[^.]*$", side) for side in sides
            )
            parts = node.func.attr in {"partition", "rpartition", "split"} and [
                one for one in node.args if isinstance(one, ast.Constant) and one.value == ": "
            ]
            if (
                (reads and is_text)
                or parts
                or (
                    shown.startswith(f"{subject}.get(")
                    and (subject.endswith(".facts") and not subject.startswith("self."))
                )
            ):
                found.append(shown)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("entry.facts"):
            found.append(shown)
    return found


def test_no_module_reads_facts_from_texts_that_are_made_for_people() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {shown}"
        for path in _list_modules()
        for shown in _list_readers_of_text(path.read_text())
        if not any(known in shown for known in _READERS_OF_TEXT)
    }
    assert found == set()


# Comparisons of what is no text of Keyturn for people: a name of a standard, what a device or a
# library returns, a choice of a form.
_COMPARISONS_OF_TEXT = {
    "label == 'userName'",
    "title == 'Create'",
    "note == 'none'",
    "'peers' in summary",
    "'recursion' in message",
    "outcome == 'succeeded'",
    "outcome not in {'succeeded', 'failed'}",
}


def _list_comparisons_of_text(source: str) -> list[str]:
    """Return where a module compares a text for people with a text of its own."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare)
        and any(
            isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value
            for side in (node.left, *node.comparators)
            for one in (side, *(side.elts if isinstance(side, ast.Tuple | ast.Set) else ()))
        )
        and any(
            re.search(rf"({_TEXTS_FOR_PEOPLE.pattern})$", ast.unparse(side))
            for side in (node.left, *node.comparators)
        )
    ]


def test_no_module_and_no_template_compares_texts_that_are_made_for_people() -> None:
    found = {
        shown for path in _list_modules() for shown in _list_comparisons_of_text(path.read_text())
    }
    assert found == _COMPARISONS_OF_TEXT
    compared = re.compile(rf"(?:{_TEXTS_FOR_PEOPLE.pattern}) *(?:==|!=|in) *[\"(]")
    templates = [*(ROOT / "bot").rglob("*.html")]
    assert len(templates) > 50
    assert [path.name for path in templates if compared.search(path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    ['label == "Run now"', 'run.summary in {"On hold", "Stale"}', '"frozen" in error.message'],
)
def test_comparison_of_a_text_for_people_is_found(source: str) -> None:
    assert _list_comparisons_of_text(source)


@pytest.mark.parametrize(
    "source",
    [
        'run.summary.startswith("On hold: ")',
        'str(error).removeprefix("Value error, ")',
        'head, _, rest = line.partition(": ")',
        'entry.facts["reason"]',
        'entry.facts.get("step")',
        'finding.startswith("Only the first ")',
        "text.startswith(label)",
    ],
)
def test_reader_of_a_text_for_people_is_found(source: str) -> None:
    assert _list_readers_of_text(source)


def test_every_database_table_is_defined_in_one_module():
    """What is left out there would be in no backup."""
    described = {file for file in (ROOT / "bot/db").glob("*.py") if "= Table(" in file.read_text()}
    assert described == {ROOT / "bot/db/tables.py"}


# What changes rows is called by these verbs; import contracts cannot see functions.
_CHANGES = re.compile(
    r"\b(append_entr(y|ies)|transaction|announce_\w+|insert|update|delete"
    r"|(add|amend|delete|enqueue|lock|move|record|remove|revoke|store)_\w+)\("
)


def _list_calls_of_changes(package: str) -> list[str]:
    return [
        f"{path.name}: {call[0]}"
        for path in sorted((ROOT / "bot" / package).glob("*.py"))
        for call in _CHANGES.finditer(path.read_text())
    ]


def test_query_modules_call_no_function_that_writes() -> None:
    assert _list_calls_of_changes("queries") == []


def test_module_that_calls_writing_functions_is_found() -> None:
    assert len(_list_calls_of_changes("workflow")) > 50
