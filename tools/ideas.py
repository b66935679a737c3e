"""Ideas that stand in a package more than once: finders that read all of the source, so that a new one cannot hide.

Each finder is a rule about syntax, stated in its docstring, and gives one line of text per find: where it is, and what.
No rule has exemptions today; one that needs any lists them with reasons, and refuses entries that nothing needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from source_trees import Module, Source, resolved

__all__ = [
    "IDEAS",
    "adams",
    "descriptions",
    "epoch_loops",
    "override_tests",
    "perceptrons",
    "replay_memories",
    "setups",
]

_Function = ast.FunctionDef | ast.AsyncFunctionDef

# ------------------------------------------------------------------------------------------------ perceptrons
_PRODUCT = re.compile(
    r"matmul|mm|bmm|mv|addmm_?|addmv_?|addbmm_?|baddbmm_?|dot|einsum|tensordot|vecmat|matvec"
    r"|(\w*_)?(layer|linear|dense|affine)"
)
_ACTIVATION = re.compile(
    r"(?i)\w*(tanh|relu|sigmoid|elu|silu|swish|softplus|mish|activat|nonlinear|deriv|slope|backward)\w*"
)
_SAME_ROWS = ("reshape", "view", "contiguous", "clone", "copy", "squeeze", "unsqueeze", "flatten", "to", "astype")
_LIST_METHODS = ("append", "insert")
_IN_PLACE = ("mul_", "sub_", "add_", "div_")


def perceptrons(source: Source) -> list[str]:
    """Modules that pass rows, forward or backward, through layers of a perceptron by hand.

    A pass: in one function, something that a matrix product (``@``, matmul, mm, addmm, linear, a helper of ours that
    consists of them, a loop's ``layer``) has given goes through an activation or is multiplied with the derivative of
    one, and then into another product; a second round of the same loop counts. ``torch.nn.Sequential`` is no pass, nor
    are products without an activation between them, or a cell with gates, which mixes what it has activated.
    """
    helpers = {
        (module.name, node.name)
        for module in source.modules.values()
        for node in module.tree.body
        if isinstance(node, _Function) and any(_is_primitive_product(inner) for inner in ast.walk(node))
    }
    texts = []
    for module in source.modules.values():
        imported = {
            alias.asname or alias.name: origin
            for node in module.nodes
            if isinstance(node, ast.ImportFrom)
            for alias, origin in zip(node.names, source.origins(node, module), strict=True)
        }
        own = {name for home, name in helpers if home == module.name}
        products = own | {name for name, origin in imported.items() if origin in helpers}
        products -= {name for name in products if _ACTIVATION.fullmatch(name)}
        names = _Names(products, _assigned_from(module, _ACTIVATION.fullmatch))
        names.products |= _assigned_from(module, names.is_product_name)
        passes = [node.name for node in module.nodes if isinstance(node, _Function) and _Pass(names).is_one(node)]
        if passes:
            texts.append(f"{module.path}: {', '.join(passes)}")
    return texts


def _is_primitive_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and bool(_PRODUCT.fullmatch(_called(node)))


def _called(node: ast.Call) -> str:
    """The last name of what is called, "" if it has none."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _mentions(node: ast.AST, matches: Callable[[str], object]) -> bool:
    return any(
        matches(inner.id if isinstance(inner, ast.Name) else inner.attr)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    )


def _assigned_from(module: Module, matches: Callable[[str], object]) -> set[str]:
    """Names and attributes that a function of a matching name is given to: ``apply, _ = _ACTIVATIONS[name]``."""
    taken: set[str] = set()
    for node in module.nodes:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        pairs = (
            zip(target.elts, node.value.elts, strict=False)
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            else [(target, node.value)]
        )
        for part, value in pairs:
            is_choice = isinstance(value, ast.Subscript | ast.IfExp | ast.Name | ast.Attribute) or (
                isinstance(value, ast.Call)
                and not any(isinstance(a, ast.Call | ast.BinOp) for a in value.args)
                and bool(re.search(r"(?i)activat|nonlinear", _called(value)))
            )
            head = value.value if isinstance(value, ast.Subscript) else value
            if is_choice and _mentions(head, matches):
                taken |= {
                    inner.id if isinstance(inner, ast.Name) else inner.attr
                    for inner in ast.walk(part)
                    if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store)
                }
    return taken - {"_"}


class _Names:
    """Which names are those of products and of activations in a module, beside the usual ones."""

    def __init__(self, products: set[str], activations: set[str]) -> None:
        self.products, self.activations = products, activations

    def is_product_name(self, name: str) -> bool:
        return name in self.products

    def is_product(self, node: ast.AST) -> bool:
        return _is_primitive_product(node) or (isinstance(node, ast.Call) and _called(node) in self.products)

    def is_activation(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and (
            _called(node) in self.activations or bool(_ACTIVATION.fullmatch(_called(node)))
        )


class _Pass:
    """Follows, statement by statement and loops twice, what a product has given, and what an activation of that."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._products: set[str] = set()
        self._activated: set[str] = set()
        self._is_one = False

    def is_one(self, function: _Function) -> bool:
        self._block(function.body)
        return self._is_one

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, _Function | ast.ClassDef):
                continue
            blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
            inner = [node for block in blocks for node in block]
            for node in ast.iter_child_nodes(statement):
                if node not in inner and isinstance(node, ast.expr):
                    self._look(node, isinstance(statement, ast.Expr))
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    self._assign(target, statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._assign(statement.target, statement.value)
            elif isinstance(statement, ast.AugAssign):
                self._augment(statement)
            rounds = 2 if isinstance(statement, ast.For | ast.While) else 1
            for block in blocks * rounds:
                self._block(block)

    def _look(self, expression: ast.expr, is_alone: bool) -> None:
        """Note products of what is activated, what is activated in place, and what a list is given."""
        for node in ast.walk(expression):
            if self._names.is_product(node) and any(self._kind(part) == "activated" for part in _parts(node)):
                self._is_one = True
            if is_alone and self._names.is_activation(node):
                for part in _parts(node):  # np.tanh(x, out=x), inputs.append(apply(rows))
                    key = _key(part)
                    if key in self._products:
                        self._activated.add(key)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LIST_METHODS:
                for last in node.args[-1:]:
                    self._assign(node.func.value, last, keep=True)

    def _assign(self, target: ast.expr, value: ast.expr, keep: bool = False) -> None:
        if isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else []
            for part, each in zip(target.elts, values, strict=False):
                self._assign(part, each)
            return
        key, kind = _key(target), self._kind(value)
        if key is None:
            return
        if not keep:
            self._products.discard(key)
            self._activated.discard(key)
        if kind == "product":
            self._products.add(key)
        elif kind == "activated":
            self._activated.add(key)

    def _augment(self, statement: ast.AugAssign) -> None:
        key = _key(statement.target)
        if key is None:
            return
        if isinstance(statement.op, ast.Mult) and key in self._products and _is_slope(statement.value):
            self._activated.add(key)
        elif isinstance(statement.op, ast.MatMult):
            self._is_one |= key in self._activated
            self._products.add(key)

    def _kind(self, node: ast.AST) -> str | None:
        """What an expression is: "product", "activated" or neither."""
        if isinstance(node, ast.NamedExpr):
            return self._kind(node.value)
        if self._names.is_product(node):
            return "product"
        if self._names.is_activation(node):
            return "activated" if any(self._kind(part) for part in _parts(node)) else None
        if isinstance(node, ast.IfExp):
            kinds = {self._kind(node.body), self._kind(node.orelse)}
            return "activated" if "activated" in kinds else "product" if "product" in kinds else None
        if isinstance(node, ast.BinOp):
            return self._kind_of_operation(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _IN_PLACE:
            return self._kind(node.func.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_ROWS:
            return self._kind(node.func.value)
        if isinstance(node, ast.Subscript | ast.Starred):
            return self._kind(node.value)
        key = _key(node)
        if key in self._activated:
            return "activated"
        return "product" if key in self._products else None

    def _kind_of_operation(self, node: ast.BinOp) -> str | None:
        left, right = self._kind(node.left), self._kind(node.right)
        if isinstance(node.op, ast.Add | ast.Sub) and "product" in (left, right):
            return "product"
        if isinstance(node.op, ast.Mult):
            if left == "product" and _is_slope(node.right):
                return "activated"
            if right == "product" and _is_slope(node.left):
                return "activated"
        return None


def _parts(node: ast.AST) -> list[ast.expr]:
    """What a call or an operator is given, the object of a method included."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    assert isinstance(node, ast.Call)
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*owner, *node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "out")]


def _key(node: ast.AST) -> str | None:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None


def _is_slope(node: ast.AST) -> bool:
    """Whether it is the derivative of an activation: ``x > 0``, ``1 - x * x``, or something of that name."""
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return isinstance(node.left, ast.Constant) and node.left.value == 1
    return _mentions(node, lambda name: re.search(r"(?i)slope|deriv", name))


# ------------------------------------------------------------------------------------------------ Adams
def adams(source: Source) -> list[str]:
    """Functions that take Adam's step by hand, and torch's own, which counts once however many modules use it.

    By hand: a function with two factors ``1 - beta``, a square and a root that is divided by or returned, or one that
    calls a function of torch below its optimizers (``torch._fused_adam_``).
    """
    texts, users = [], []
    for module in source.modules.values():
        mentioned = {name for _, name in resolved(module)}
        if any(re.fullmatch(r"torch\.optim\.(\w+\.)?\w*Adam\w*", name) for name in mentioned):
            users.append(module.path)
        if not re.search(r"(?i)sqrt|0\.5|adam", module.text):
            continue
        functions = (node for node in module.nodes if isinstance(node, _Function))
        texts += [f"{module.path}: {node.name}" for node in functions if _is_adam(node) or _calls_adam(node)]
    return [*texts, f"torch.optim.Adam: {', '.join(users)}"] if users else texts


def _calls_adam(function: _Function) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(
        re.fullmatch(r"_?(fused|foreach|single_tensor|multi_tensor)_adamw?_?|adamw?", _called(node))
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func).startswith("torch.")
        for node in calls
    )


def _is_adam(function: _Function) -> bool:
    decays: set[str] = set()
    has_square = has_root = False
    roots: set[str] = set()
    nodes = list(ast.walk(function))
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            is_decay = isinstance(node.left, ast.Constant) and node.left.value == 1
            if is_decay and isinstance(node.right, ast.Name | ast.Subscript | ast.Attribute):
                decays.add(ast.unparse(node.right))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            factors = [ast.unparse(factor) for factor in _factors(node)]
            has_square |= len(set(factors)) < len(factors)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            has_square |= isinstance(node.right, ast.Constant) and node.right.value == 2
        if isinstance(node, ast.Call):
            name = _called(node)
            has_square |= name in ("square", "square_", "addcmul", "addcmul_", "_foreach_addcmul_")
            has_square |= name == "multiply" and len(node.args) > 1 and ast.dump(node.args[0]) == ast.dump(node.args[1])
            roots |= {
                ast.unparse(k.value) for k in node.keywords if k.arg == "out" and name in ("sqrt", "_foreach_sqrt")
            }
        if isinstance(node, ast.Assign) and _has_root(node.value):
            roots |= {ast.unparse(target) for target in node.targets}
    for node in nodes:
        divisor: ast.AST | None = None
        if isinstance(node, ast.Return):  # for the caller to divide by
            divisor = node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            divisor = node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            divisor = node.value
        elif isinstance(node, ast.Call) and _called(node) in (
            "divide",
            "div",
            "div_",
            "true_divide",
            "addcdiv_",
            "addcdiv",
        ):
            divisor = node
        if divisor is not None:
            has_root |= _has_root(divisor) or any(
                ast.unparse(n) in roots for n in ast.walk(divisor) if isinstance(n, ast.Name | ast.Attribute)
            )
        has_root |= isinstance(node, ast.Call) and _called(node) in ("rsqrt", "rsqrt_")
    return len(decays) >= 2 and has_square and has_root


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _has_root(node: ast.AST) -> bool:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and _called(inner) in ("sqrt", "sqrt_", "rsqrt"):
            return True
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Pow):
            power = inner.right
            if isinstance(power, ast.Constant) and power.value == 0.5:
                return True
    return False


# ------------------------------------------------------------------------------------------------ loops and memories
_COLLECTS = re.compile(r"_?(obtain_\w+|advance|collect\w*|run_groups|sample_paths|train_once|rollouts?)")
_ROUNDS = re.compile(r"(?i)\w*(epoch|iteration|generation)\w*|n_?itr|itr")


def epoch_loops(source: Source) -> list[str]:
    """Loops that learn over epochs: what goes over ``step_epochs()``, or over epochs or iterations and collects in it.

    The second: the loop's variable or what it goes over is named after epochs, iterations or generations, and its body
    calls something that collects (obtain_samples, advance, collect, train_once ...). A loop within one of these is a
    part of it.
    """
    texts = []
    for module in source.modules.values():
        loops = [node for node in module.nodes if isinstance(node, ast.For) and _is_epoch_loop(node)]
        inner = {node for loop in loops for statement in loop.body for node in ast.walk(statement)}
        texts += [f"{module.path}: line {loop.lineno}" for loop in loops if loop not in inner]
    return texts


def _is_epoch_loop(loop: ast.For) -> bool:
    calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
    if any(_called(node) == "step_epochs" for node in calls):
        return True
    is_named = any(_mentions(part, _ROUNDS.fullmatch) for part in (loop.target, loop.iter))
    inside = (node for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Call))
    return is_named and any(_COLLECTS.fullmatch(_called(node)) for node in inside)


def replay_memories(source: Source) -> list[str]:
    """Classes that store steps up to a capacity and draw from them.

    One is made with a capacity or a number of steps, and has a method that adds (add, store, append, push, extend,
    insert, new_paths) and one that draws (sample, draw). What makes memories of another of these classes is their user.
    """
    classes: dict[str, tuple[Module, ast.ClassDef]] = {}
    for module in source.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and _is_memory(node):
                classes[f"{module.path}: {node.name}"] = module, node
    names = {node.name for _, node in classes.values()}
    return [
        text
        for text, (_, node) in classes.items()
        if not any(isinstance(n, ast.Call) and _called(n) in names - {node.name} for n in ast.walk(node))
    ]


def _is_memory(node: ast.ClassDef) -> bool:
    methods = {member.name: member for member in node.body if isinstance(member, _Function)}
    made_with = {
        member.target.id
        for member in node.body
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name)
    }
    if "__init__" in methods:
        made_with |= {argument.arg for argument in _arguments(methods["__init__"])}
    is_finite = any(re.search(r"capacity|(max|buffer|replay)_?(size|steps|len)|maxlen", name) for name in made_with)
    adds = any(re.match(r"(add|store|append|push|extend|insert|new_paths)(_|$)", name) for name in methods)
    draws = any(re.match(r"(sample|draw)(_|$)", name) for name in methods)
    return is_finite and adds and draws


def _arguments(function: _Function) -> list[ast.arg]:
    """All arguments but the first, which is ``self``, and collected ones."""
    arguments = function.args
    return [*[*arguments.posonlyargs, *arguments.args][1:], *arguments.kwonlyargs]


# ------------------------------------------------------------------------------------------------ algorithms
def descriptions(source: Source) -> list[str]:
    """Classes that describe an algorithm to the rest of the house: one that has a ``name`` and a ``build``, declared or
    defined in it, and all that descend from such a class.
    """
    described: dict[str, str] = {}
    classes = [(m, node) for m in source.modules.values() for node in m.nodes if isinstance(node, ast.ClassDef)]
    for module, node in classes:
        members = _declared(node)
        if "name" in members and "build" in members:
            described[node.name] = f"{module.path}: {node.name}"
    size = -1
    while size != len(described):
        size = len(described)
        for module, node in classes:
            heads = {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}
            if heads & described.keys():
                described.setdefault(node.name, f"{module.path}: {node.name}")
    return sorted(described.values())


def _declared(node: ast.ClassDef) -> set[str]:
    names = set()
    for member in node.body:
        if isinstance(member, _Function):
            names.add(member.name)
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            names.add(member.target.id)
        elif isinstance(member, ast.Assign):
            names |= {target.id for target in member.targets if isinstance(target, ast.Name)}
    return names


def setups(source: Source) -> list[str]:
    """Classes of options beside an algorithm's own: dataclasses that stand in the folder of descriptions (see
    ``descriptions``), in which every field has a default; and any class of whose name the last word is Setup.
    """
    folders = {text.partition(": ")[0].rpartition("/")[0] for text in descriptions(source)}
    described = set(descriptions(source))
    texts = []
    for module in source.modules.values():
        for node in module.nodes:
            if not isinstance(node, ast.ClassDef) or f"{module.path}: {node.name}" in described:
                continue
            fields = [member for member in node.body if isinstance(member, ast.AnnAssign)]
            is_options = (
                module.folder in folders
                and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
                and bool(fields)
                and all(member.value is not None for member in fields)
            )
            if is_options or node.name.endswith("Setup"):
                texts.append(f"{module.path}: {node.name}")
    return texts


def override_tests(source: Source) -> list[str]:
    """Comparisons that ask whether a class has replaced a member of its base: ``type(x).member is not Base.member``,
    where both sides name the same member and the right one that of a class (``object``'s own are others' business);
    and ``"member" in vars(type(x))`` or in a ``__dict__`` of a class.
    """
    return [
        f"{module.path}:{node.lineno} {ast.unparse(node)}"
        for module in source.modules.values()
        for node in module.nodes
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and _asks_for_override(node)
    ]


def _asks_for_override(node: ast.Compare) -> bool:
    left, right, operation = node.left, node.comparators[0], node.ops[0]
    if isinstance(operation, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        if not (isinstance(left, ast.Attribute) and isinstance(right, ast.Attribute) and left.attr == right.attr):
            return False
        sides = [ast.unparse(side.value).rpartition(".")[2] for side in (left, right)]
        return any(side[:1].isupper() for side in sides) and not all(side[:1].isupper() for side in sides)
    if isinstance(operation, ast.In | ast.NotIn) and isinstance(left, ast.Constant):
        place = ast.unparse(right)
        return bool(
            re.fullmatch(r"vars\((type\(.*\)|cls|kind)\)|(type\(.*\)|cls|kind|\w+\.__class__)\.__dict__", place)
        )
    return False


IDEAS: dict[str, Callable[[Source], list[str]]] = {
    "perceptrons": perceptrons,
    "Adams": adams,
    "epoch loops": epoch_loops,
    "replay memories": replay_memories,
    "setups": setups,
    "description classes": descriptions,
    '"is it overridden?" tests': override_tests,
}
"""Name of an idea -> its finder."""
