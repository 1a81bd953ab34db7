"""Templates of Ansible, filled as far as its files decide them.

A name that no file sets is a value of the request where a template only shows it. Where a template
asks for it, it is taken as not set, as a default is taken, and the draft asks whether that is so.
Nothing is looked up, and nothing runs but the expressions, in Jinja's sandbox.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from jinja2 import FunctionLoader, StrictUndefined, Template, TemplateError, nodes
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from jinja2.visitor import NodeTransformer

from bot.features.importing.ansible.template_filters import (
    FILTERS,
    OF_JINJA,
    TESTS,
    as_value,
    make_range,
)
from bot.features.importing.ansible.template_values import (
    FOR_RUN,
    OF_RESULTS,
    OMIT,
    Facts,
    NotKnownError,
    PartialVersion,
    Unknown,
    Unset,
    is_simple,
)
from bot.features.importing.drafts import Unclear, has_mark, show_marks
from bot.features.importing.sources import Plain, as_list, as_mapping, is_list, is_mapping

_BUILT_IN = "ansible.builtin."
_KEEPS_TEXT = re.compile(r"\|\s*(string|to_json|to_nice_json)\s*\}\}$")
_MOST_NESTED = 8
# What Ansible's configuration has, in lib/ansible/config/base.yml.
_CONSTANTS: Mapping[str, Any] = {
    "omit": OMIT,
    "range": make_range,
    "ansible_managed": "Ansible managed",
    "ansible_check_mode": False,
    "ansible_python": {"version": {"major": 3}},
}
_METHODS = frozenset(
    {
        "join",
        "find",
        "split",
        "startswith",
        "endswith",
        "get",
        "keys",
        "values",
        "items",
        "lower",
        "upper",
        "strip",
        "rstrip",
        "lstrip",
        "splitlines",
    }
)
_ODD_NODES = (nodes.Import, nodes.FromImport, nodes.CallBlock, nodes.FilterBlock, nodes.Pow,
              nodes.AssignBlock)  # fmt: skip
# What only a file of a template may have, but no loop in it.
_OF_FILES = (nodes.Block, nodes.Include, nodes.Extends, nodes.Macro)
_MOST_INCLUDED, _MOST_NUMBER, _MOST_SET, _LIMIT = 50, 2**53, 50_000, " limit"


@dataclass
class Scope:
    """What the templates of one task see.

    A value is as its file has it, and may be a template itself.
    """

    known: Mapping[str, Any]
    facts: Facts
    assigned: frozenset[str] = frozenset()
    """What only a run sets."""
    is_open: bool = False
    """Whether there are files of variables that were not read."""
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The variables of the task."""
    items: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Those of its loop, which are filled already."""
    used: set[str] = field(default_factory=set[str])
    """The names of `known` that were used."""
    assumed: set[str] = field(default_factory=set[str])
    """The names that were taken as not set."""
    show_unset: Callable[[str, str | None], str] | None = None
    """Returns what stands for a value of the request, by its name and default. Raises Unclear."""
    _nested: int = 0

    def fill_file(self, content: str, read: Callable[[str], str], *, lstrip: bool) -> str:
        """Return the content of a file of a template. Raises Unclear.

        read: returns another one, by its name, and raises Unclear.
        """
        if not _is_template(content):
            return content
        # As an expression, it would have another type than text.
        marks = self.show_unset is not None
        return str(self._render(content, marks=marks, lstrip=lstrip, read=read))

    def fill(self, value: Any) -> Any:
        """Return an argument with its templates filled. Raises Unclear."""
        if is_list(value):
            filled = [self.fill(each) for each in as_list(value)]
            return [each for each in filled if each is not OMIT]
        if is_mapping(value):
            pairs = {key: self.fill(each) for key, each in as_mapping(value).items()}
            return {key: each for key, each in pairs.items() if each is not OMIT}
        if not isinstance(value, str) or not _is_template(value):
            return value
        return self._render(value, marks=self.show_unset is not None)

    def evaluate(self, value: Any) -> Any:
        """Return a value of a variable: without those of a request. Raises Unclear."""
        if is_list(value):
            return [self.evaluate(each) for each in as_list(value)]
        if is_mapping(value):
            return {key: self.evaluate(each) for key, each in as_mapping(value).items()}
        if isinstance(value, Plain):
            return value.read()
        if not isinstance(value, str) or not _is_template(value):
            return value
        return self._render(value, marks=False)

    def decide(self, condition: str) -> bool:
        """Return whether a condition holds. Raises Unclear."""
        if _is_template(condition):
            raise Unclear("its condition is a template, which may become another one")
        found = self._render(f"{{{{ {condition} }}}}", marks=False)
        if not isinstance(found, bool):
            raise Unclear(f"{condition[:80]} is neither yes nor no")
        return found

    def judge(self, conditions: Sequence[str]) -> tuple[set[str] | None, list[str]]:
        """Return what keeps a task from running, and the conditions that the files do not decide.

        The former are the names of variables, none for a fact of the hosts; None if it may run.
        """
        still_open = list[str]()
        for each in conditions:
            trial = replace(self, used=set(), assumed=set())
            try:
                holds = trial.decide(each)
            except Unclear:
                still_open.append(each)
                continue
            if not holds and trial.assumed:
                # Nothing says that it does not hold.
                still_open.append(each)
                continue
            self.used |= trial.used
            self.assumed |= trial.assumed
            if not holds:
                return trial.used, []
        return None, still_open

    def resolve(self, name: str) -> Any:
        """Return the value of a name, as templates see it."""
        if name in self.items:
            return _hide_marks(self.items[name])
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        fact = name.removeprefix("ansible_")
        if fact != name and (fact == "facts" or self.facts.has(fact)):
            return self.facts if fact == "facts" else self.facts[fact]
        for values in (self.own, self.known):
            if name in values:
                return self._resolve_nested(name, values[name])
        reason = "it computes a value: "
        if name in self.assigned or not is_simple(name):
            return Unknown(hint=f"{reason}{name} is known only in a run", exc=NotKnownError)
        return Unset(name)

    def _resolve_nested(self, name: str, raw: Any) -> Any:
        if self._nested > _MOST_NESTED:
            return Unknown(hint=f"{name} refers to itself", exc=NotKnownError)
        self._nested += 1
        try:
            found = self.evaluate(raw)
        except Unclear as unclear:
            return Unknown(hint=f"it computes a value: {name}: {unclear}", exc=NotKnownError)
        finally:
            self._nested -= 1
        self.used.add(name)
        return found

    def _render(
        self,
        text: str,
        *,
        marks: bool,
        lstrip: bool = False,
        read: Callable[[str], str] | None = None,
    ) -> Any:
        if text.startswith("#jinja2:"):
            header, _, text = text.partition("\n")
            lstrip = _read_header(header)
        shown = list[Any]()
        environment = _Environment(self, lstrip=lstrip, marks=marks, read=read)
        is_file = read is not None
        try:
            tree = environment.prepare(environment.parse(text))
            is_whole = _is_expression(tree) and not text.endswith("\n")

            def show(value: Any) -> str:
                shown.append(value)
                return "" if is_whole else _show(value)

            environment.finalize = show
            filled = environment.from_string(tree).render()
            if not is_whole:
                # As Ansible does: what ends with a line end still does.
                missing = _count_line_ends(text) - _count_line_ends(filled)
                return _refuse_data(text, filled + "\n" * missing, is_file=is_file)
            return _refuse_data(text, as_value(shown[-1]), is_file=is_file)
        except Unclear:
            raise
        except NotKnownError as error:
            raise Unclear(f"{error}") from None
        # What an expression of the file may do: divide by zero, call a number, nest too deeply …
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError,
                AttributeError, RecursionError) as error:  # fmt: skip
            raise Unclear(f"it computes a value: {' '.join(str(error).split())[:120]}") from None

    def replace_unset(self, tree: nodes.Template, inner: set[str]) -> None:
        """Have values of the request stand where a template only shows them.

        inner: the names that templates set themselves.
        """
        for output in tree.find_all(nodes.Output):
            output.nodes = [self._replace(each, inner) for each in output.nodes]

    def _replace(self, node: nodes.Expr, inner: set[str]) -> nodes.Expr:
        default: str | None = None
        name: nodes.Node = node
        if (
            isinstance(node, nodes.Filter)
            and node.name in ("default", "d")
            and len(node.args) == 1
            and isinstance(node.args[0], nodes.Const)
            and str(node.args[0].value)
        ):
            name, default = node.node or node, str(node.args[0].value)
        if self.show_unset is None:
            return node
        self._replace_within(node, inner)
        text = self._find_text(name, inner)
        if text is not None:
            return nodes.Const(text, lineno=node.lineno)
        part = self._find_part(name, inner)
        return nodes.Const(self.show_unset(part, default), lineno=node.lineno) if part else node

    def _replace_within(self, node: nodes.Expr, inner: set[str]) -> None:
        """Replace what is joined to a text, or what one of two is taken of."""

        def replace_all(each: Sequence[nodes.Expr]) -> list[nodes.Expr]:
            return [self._replace(one, inner) for one in each]

        if isinstance(node, nodes.Concat):
            node.nodes = replace_all(node.nodes)
        elif isinstance(node, nodes.Filter) and node.name == "join":
            if isinstance(node.node, nodes.List):
                node.node.items = replace_all(node.node.items)
        # Without a text, it may add numbers or lists.
        elif isinstance(node, nodes.Add) and any(
            isinstance(one.value, str) for one in node.find_all(nodes.Const)
        ):
            node.left, node.right = replace_all([node.left, node.right])
        elif isinstance(node, nodes.CondExpr) and node.expr2 is not None:
            node.expr1, node.expr2 = replace_all([node.expr1, node.expr2])
        elif isinstance(node, nodes.Filter) and node.name in ("default", "d"):
            node.args = replace_all(node.args)

    def _find_part(self, node: nodes.Node, inner: set[str]) -> str | None:
        """Return what a node shows that no file sets, or of an item of an unknown list.

        None for anything else.
        """
        name, keys = _read_chain(node)
        if not name or name in inner:
            return None
        found = self.items.get(name)
        # What a file gives in another way than it seems is nothing to ask for.
        is_odd = isinstance(self.own.get(name, self.known.get(name)), Plain)
        if name not in self.items and name not in FOR_RUN and not is_odd:
            found = self.resolve(name)
        # Of an item with its part, as with_subelements has it.
        if is_list(found) and keys and keys[0] in ("0", "1") and len(as_list(found)) > 1:
            found = as_list(found)[int(keys.pop(0))]
        if isinstance(found, Unset):
            return ".".join([found.variable, *keys]) if OF_RESULTS.isdisjoint(keys) else None
        is_unknown = isinstance(found, StrictUndefined) and name not in self.items
        return name if is_unknown and not keys else None

    def _find_text(self, node: nodes.Node, inner: set[str]) -> str | None:
        """Return the text with values of the request that a node is; None for anything else.

        It is a part of an item of a loop, or a variable whose value names what no file sets.
        """
        name, keys = _read_chain(node)
        if name in inner:
            return None
        if name in self.items:
            found = self.items[name]
            for key in keys:
                found = as_mapping(found).get(key)
            return found if isinstance(found, str) and has_mark(found) else None
        raw = self.own.get(name, self.known.get(name))
        if keys or not isinstance(raw, str) or not isinstance(self.resolve(name), Unknown):
            return None
        if name in self.assigned or self._nested > _MOST_NESTED:
            return None
        self._nested += 1
        try:
            found = self.fill(raw)
        except Unclear:
            return None
        finally:
            self._nested -= 1
        self.used.add(name)
        return found if isinstance(found, str) and has_mark(found) else None


def _read_chain(node: nodes.Node) -> tuple[str, list[str]]:
    """Return the name and the keys of a node such as `item.name`; "" for anything else."""
    keys = list[str]()
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        if isinstance(node, nodes.Getattr):
            keys.insert(0, node.attr)
        elif isinstance(node.arg, nodes.Const):
            keys.insert(0, str(node.arg.value))
        else:
            return "", []
        node = node.node
    return (node.name, keys) if isinstance(node, nodes.Name) else ("", [])


def _hide_marks(value: Any) -> Any:
    """Return a value in which what a request brings is not known, so that nothing is computed."""
    if is_mapping(value):
        return {key: _hide_marks(each) for key, each in as_mapping(value).items()}
    if is_list(value):
        return [_hide_marks(each) for each in as_list(value)]
    if not isinstance(value, str) or not has_mark(value):
        return value
    reason = f"it computes a value: {show_marks(value)[:80]}"
    return Unknown(hint=reason, exc=NotKnownError)


def split_and(condition: str) -> list[str]:
    """Return the parts of a condition that all have to hold."""
    bare = re.sub(r"'[^']*'|\"[^\"]*\"|\([^()]*\)", lambda one: "x" * len(one[0]), condition)
    if re.search(r"\b(or|if|else)\b|[(){}]", bare):
        return [condition]
    places = [0, *(at for one in re.finditer(r"\s+and\s+", bare) for at in one.span()), len(bare)]
    return [condition[start:end] for start, end in zip(places[::2], places[1::2], strict=True)]


def _read_header(line: str) -> bool:
    """Return whether the header of a template removes blanks before blocks. Raises Unclear."""
    pairs = [[*map(str.strip, one.split(":", 1))] for one in line.split(":", 1)[1].split(",")]
    given = {one[0]: one[-1].strip("'\"") for one in pairs}
    is_plain = given.get("trim_blocks", "True") == "True"
    if given.keys() - {"trim_blocks", "lstrip_blocks"} or not is_plain:
        raise Unclear("its template sets how it is read")
    return given.get("lstrip_blocks") == "True"


def _is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


def _is_expression(tree: nodes.Template) -> bool:
    """Return whether a template is one expression, so that its value is no text."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return False
    parts = tree.body[0].nodes
    return len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData)


def _refuse_odd_nodes(tree: nodes.Template, *, is_file: bool) -> None:
    """Refuse what is not read, or may take long. Raises Unclear."""
    odd_ones = _ODD_NODES if is_file else (*_ODD_NODES, *_OF_FILES)
    if odd := next(iter(tree.find_all(odd_ones)), None):
        raise Unclear(f"its template has {type(odd).__name__.lower()}, which is not read")
    if any(one.name == "self" for one in tree.find_all(nodes.Name)):
        raise Unclear("its template has its own blocks again")
    macros = {one.name: one for one in tree.find_all(nodes.Macro)}
    for call in tree.find_all(nodes.Call):
        is_method = isinstance(call.node, nodes.Getattr) and call.node.attr in _METHODS
        if not is_method and _name_called(call) not in {*macros, "range", "super"}:
            raise Unclear("it computes a value by what only a run knows")
    if any(_name_called(call) in macros for one in macros.values()
           for call in one.find_all(nodes.Call)):  # fmt: skip
        raise Unclear("its template has macros that call others")
    for block in tree.find_all(nodes.Block):
        if sum(_name_called(call) == "super" for call in block.find_all(nodes.Call)) > 1:
            raise Unclear("its template has what another one has more than once")
    _refuse_deep_loops(tree, macros)


def _refuse_deep_loops(tree: nodes.Template, macros: Mapping[str, nodes.Macro]) -> None:
    for outer in tree.find_all(nodes.For):
        called = [*map(_name_called, outer.find_all(nodes.Call))]
        inner = [*_list_inner(outer), *(macros[one] for one in called if one in macros)]
        if any(list(one.find_all(nodes.For)) for one in inner):
            raise Unclear("its template has loops in loops in loops")
        if "super" in called or list(outer.find_all(_OF_FILES)):
            raise Unclear("its template has others in a loop")


def _name_called(call: nodes.Call) -> str:
    return call.node.name if isinstance(call.node, nodes.Name) else ""


def _list_inner(loop: nodes.For) -> list[nodes.Node]:
    return [one for one in loop.find_all(nodes.For) if one is not loop]


class _Own(NodeTransformer):
    """Has facts of the host itself stand for those of all hosts at its name.

    And has what a template sets checked, which it may join to itself again and again.
    """

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802 - as Jinja calls it
        self.generic_visit(node)
        node.node = nodes.Filter(node.node, _LIMIT, [], [], None, None, lineno=node.lineno)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802 - as Jinja calls it
        self.generic_visit(node)
        key = node.arg.value if isinstance(node.arg, nodes.Const) else None
        return _find_own(node, key if isinstance(key, str) else "")

    def visit_Getattr(self, node: nodes.Getattr) -> nodes.Node:  # noqa: N802 - as Jinja calls it
        self.generic_visit(node)
        return _find_own(node, node.attr)


def _find_own(node: nodes.Getattr | nodes.Getitem, key: str) -> nodes.Node:
    """Return the variable that a node is: of `vars` any, and a fact of `hostvars`.

    What a play or a role sets is not in `hostvars`.
    """
    base = node.node
    is_own = isinstance(base, nodes.Name) and base.name == "vars"
    if isinstance(base, nodes.Getitem) and isinstance(base.node, nodes.Name):
        is_host = isinstance(base.arg, nodes.Name) and base.arg.name == "inventory_hostname"
        is_own = is_host and base.node.name == "hostvars" and key.startswith("ansible_")
    return nodes.Name(key, "load", lineno=node.lineno) if is_own and key.isidentifier() else node


def _limit(value: Any) -> Any:
    """Return what a template sets, unless it is a long text or list."""
    if (isinstance(value, str) or is_list(value)) and len(value) > _MOST_SET:
        raise Unclear(f"its template sets more than {_MOST_SET:,} characters or values")
    return value


def _show(value: Any) -> str:
    """Return a value within a text, as Ansible writes it."""
    if isinstance(value, StrictUndefined):
        return str(value)
    if is_list(value) or is_mapping(value):
        return str(as_value(value))
    if not isinstance(value, str | int):
        raise Unclear("it has nothing, or what is no plain value, within a text")
    return str(value)


def _count_line_ends(text: str) -> int:
    return len(text) - len(text.rstrip("\n"))


def _refuse_data(text: str, filled: Any, *, is_file: bool) -> Any:
    """Return a value, unless Ansible takes a text for a list or a mapping."""
    is_data = isinstance(filled, str) and filled.lstrip()[:1] in ("{", "[")
    if is_data and not is_file and not _KEEPS_TEXT.search(text):
        raise Unclear("it is a text that Ansible takes for a list or a mapping")
    return filled


class _Context(Context):
    def resolve_or_missing(self, key: str) -> Any:
        # What templates set, then what they are given.
        found = super().resolve_or_missing(key)
        if found is not missing:
            return found
        return cast("_Environment", self.environment).scope.resolve(key)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as Ansible configures it, with the filters whose meaning is exact."""

    context_class = _Context
    intercepted_binops = frozenset({"*", "%"})

    def __init__(
        self, scope: Scope, *, lstrip: bool, marks: bool, read: Callable[[str], str] | None
    ) -> None:
        """marks: whether values of the request are shown. read: as of `fill_file`."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=lstrip,
            undefined=StrictUndefined,
            optimized=False,
            loader=FunctionLoader(self._load),
        )
        self.scope, self.marks, self.read = scope, marks, read
        self.globals.clear()
        plain = {name: each for name, each in JINJA_FILTERS.items() if name in OF_JINJA}
        own = {**FILTERS, "default": self._default, "d": self._default}
        self.filters = {
            _LIMIT: _limit,
            **plain,
            **own,
            **{f"{_BUILT_IN}{name}": own[name] for name in own},
        }
        self.tests |= {"defined": self._is_defined, "undefined": self._is_undefined, **TESTS}
        self._seen, self._set = set[str](), set[str]()
        self._loaded = 0

    def _load(self, name: str) -> str:
        if self.read is None:
            raise NotKnownError("it includes a template")
        return self.read(name)

    def get_template(
        self,
        name: str | Template,
        parent: str | None = None,
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002 - as Jinja calls it
    ) -> Template:
        """Return another template, also one that is read already. Raises NotKnownError."""
        # Each may include others twice.
        self._loaded += 1
        if self._loaded > _MOST_INCLUDED:
            raise NotKnownError("its template includes too many others")
        return super().get_template(name, parent, globals)

    def select_template(self, *_args: Any, **_options: Any) -> Template:
        """Refuse a list of templates, of which one may be elsewhere. Raises NotKnownError."""
        raise NotKnownError("its template includes the first of several")

    def compile(self, source: Any, *args: Any, **options: Any) -> Any:
        """Return a template that is ready to run, also one that others include."""
        tree = self.prepare(self.parse(source)) if isinstance(source, str) else source
        return cast("Any", super()).compile(tree, *args, **options)

    def prepare(self, tree: nodes.Template) -> nodes.Template:
        """Return a template with what it may have, and values of the request. Raises Unclear."""
        tree = cast("nodes.Template", _Own().visit(tree))
        _refuse_odd_nodes(tree, is_file=self.read is not None)
        names = {one.name for one in tree.find_all(nodes.Name)}
        inner = {one.name for one in tree.find_all(nodes.Name) if one.ctx != "load"}
        inner |= {one.name for one in tree.find_all(nodes.Macro)}
        if self.marks and self._loaded and inner & self._seen - self._set:
            raise Unclear("its template has names that another one sets")
        self._seen, self._set = self._seen | names, self._set | inner
        if self.marks:
            self.scope.replace_unset(tree, self._set)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return a product or a rest: of whole numbers, since a text could become a long one."""
        if not all(isinstance(one, int) and abs(one) < _MOST_NUMBER for one in (left, right)):
            raise NotKnownError("it computes with what are no whole numbers")
        return super().call_binop(context, operator, left, right)

    def getattr(self, obj: Any, attribute: str) -> Any:
        is_part = isinstance(obj, Unset)
        return obj.get_part(attribute) if is_part else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        is_part = isinstance(obj, Unset)
        return obj.get_part(argument) if is_part else super().getitem(obj, argument)

    def _default(self, value: Any, other: Any = "", boolean: Any = False) -> Any:  # noqa: FBT002 - Jinja calls it so
        if self._is_defined(value) and (value or not boolean):
            return value
        return other

    def _is_defined(self, value: Any) -> bool:
        if isinstance(value, PartialVersion):
            return True
        if isinstance(value, Unknown):
            str(value)
        if isinstance(value, Unset):
            if self.scope.is_open:
                raise NotKnownError(f"a file that is not read may set {value.variable}")
            self.scope.assumed.add(value.variable)
        return not isinstance(value, StrictUndefined)

    def _is_undefined(self, value: Any) -> bool:
        return not self._is_defined(value)
