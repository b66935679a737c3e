"""Ideas that stand in a package more than once: finders that read all of the source, so that a new one cannot hide.

Each finder is a rule about syntax, stated in its docstring, and gives one line of text per find: where it is, and what.
No rule has exemptions today; one that needs any lists them with reasons, and refuses entries that nothing needs.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import TypeGuard

from source_trees import Module, Source, resolved, walk

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
_FLOOR = re.compile(r"f?maximum|clamp(_min)?_?|clip_?|where")
_SAME_ROWS = ("reshape", "view", "contiguous", "clone", "copy", "squeeze", "unsqueeze", "flatten", "to", "astype")
_LIST_METHODS = ("append", "insert")
_IN_PLACE = ("mul_", "sub_", "add_", "div_")
_OPERATIONS = {ast.Call, ast.BinOp, ast.AugAssign}
"""What may be a product, an activation or a square; most nodes are none of these."""


def perceptrons(source: Source) -> list[str]:
    """Modules that pass rows, forward or backward, through layers of a perceptron by hand.

    A pass: in one function, something that a matrix product (``@``, matmul, mm, addmm, linear, a helper of ours that
    consists of them, a loop's ``layer``) has given goes through an activation or is multiplied with the derivative of
    one, and then into another product; a second round of the same loop counts. An activation: a function of such a
    name, a floor of 0 (``maximum(x, 0)``, ``clamp(min=0)``, ``where(x > 0, x, ...)``, ``x[x < 0] = 0``), or a function
    of ours that returns nothing but one. A function that returns what it has activated is a layer, as is a method for
    its module. ``torch.nn.Sequential`` is no pass, nor are products without an activation between them, or a cell with
    gates, which mixes what it has activated. Not seen: products as sums of elementwise ones, activations written out
    (``x / (1 + abs(x))``) or that cut on both sides (as actions are), rows in dicts, lambdas, and objects of another
    module that are called as layers under other names.
    """
    helpers = {
        (module.name, node.name)
        for module in source.modules.values()
        for node in module.tree.body
        if isinstance(node, _Function) and any(_is_primitive_product(inner) for inner in walk(node))
    }
    curves = {
        (module.name, node.name) for module in source.modules.values() for node in _functions(module) if _is_curve(node)
    }
    known: dict[str, _Names] = {}
    layers: set[tuple[str, str]] = set()
    for module in source.modules.values():
        products = _known_as(module, source, helpers)
        products -= {name for name in products if _ACTIVATION.fullmatch(name)}
        activations = _assigned_from(module, _ACTIVATION.fullmatch) | _known_as(module, source, curves)
        known[module.name] = names = _Names(products, activations)
        names.products |= _assigned_from(module, names.products.__contains__)
        methods = {inner for node in module.nodes if isinstance(node, ast.ClassDef) for inner in node.body}
        names.methods = {n.name for n in _functions(module) if n in methods and "product" in _returned(n, names)}
        layers |= {(module.name, node.name) for node in _functions(module) if "activated" in _returned(node, names)}
    texts = []
    for module in source.modules.values():
        names = known[module.name]
        names.layers = _known_as(module, source, layers)
        passes = [node.name for node in _functions(module) if _Pass(names).is_one(node)]
        if passes:
            texts.append(f"{module.path}: {', '.join(passes)}")
    return texts


def _functions(module: Module) -> list[_Function]:
    return [node for node in module.nodes if isinstance(node, _Function)]


def _known_as(module: Module, source: Source, members: set[tuple[str, str]]) -> set[str]:
    """Names by which a module calls ``members`` (module, name), its own and those that it imports."""
    imported = {
        alias.asname or alias.name
        for node in module.nodes
        if isinstance(node, ast.ImportFrom)
        for alias, origin in zip(node.names, source.origins(node, module), strict=True)
        if origin in members
    }
    return imported | {name for home, name in members if home == module.name}


def _is_curve(function: _Function) -> bool:
    """Whether it returns an activation of an argument, and does nothing else."""
    statements = [node for node in function.body if not (isinstance(node, ast.Expr) and _is_text(node.value))]
    if len(statements) != 1 or not isinstance(statements[0], ast.Return):
        return False
    value, arguments = statements[0].value, {argument.arg for argument in function.args.args}
    return _is_primitive_activation(value) and any(_key(part) in arguments for part in _parts(value))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_primitive_activation(node: ast.AST | None) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and (bool(_ACTIVATION.fullmatch(_called(node))) or _is_floor(node))


def _is_floor(call: ast.Call) -> bool:
    """``maximum(x, 0)``, ``maximum(x, 0.1 * x)``, ``x.clamp(min=0)``, ``where(x > 0, x, 0)``; no floor of 1e-8."""
    parts = _parts(call)
    if not _FLOOR.fullmatch(_called(call)):
        return False
    if _called(call) == "where":
        tested = {ast.unparse(n) for part in parts if isinstance(part, ast.Compare) for n in walk(part)}
        return any(ast.unparse(part) in tested for part in parts)
    texts = [ast.unparse(part) for part in parts]
    is_leaky = len(texts) > 1 and any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult) and ast.unparse(factor) in texts
        for part in parts
        for factor in _factors(part)
    )
    return is_leaky or any(_is_zero(part) for part in parts)


def _is_zero(node: ast.AST) -> bool:
    """0, or an array or a tensor of it."""
    if isinstance(node, ast.Constant):
        return node.value == 0 and not isinstance(node.value, bool)
    if not isinstance(node, ast.Call):
        return False
    return "zeros" in _called(node) or (len(node.args) == 1 and _is_zero(node.args[0]))


def _returned(function: _Function, names: _Names) -> set[str]:
    """What a function returns, "product" or "activated", unless it is a pass: who calls a perceptron is its user."""
    follower = _Pass(names)
    return set() if follower.is_one(function) else follower.returned


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
        for inner in walk(node)
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
                    for inner in walk(part)
                    if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store)
                }
    return taken - {"_"}


class _Names:
    """Which names are those of products and of activations in a module, beside the usual ones."""

    def __init__(self, products: set[str], activations: set[str]) -> None:
        self.products, self.activations = products, activations
        self.methods: set[str] = set()
        """Those of the module that return a product."""
        self.layers: set[str] = set()
        """Functions that return what they have activated, of a product that they have made."""

    def is_layer(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _called(node) in self.layers

    def is_product(self, node: ast.AST) -> bool:
        called = _called(node) if isinstance(node, ast.Call) else None
        return _is_primitive_product(node) or called in self.products or called in self.methods or self.is_layer(node)

    def is_activation(self, node: ast.AST) -> bool:
        return _is_primitive_activation(node) or (isinstance(node, ast.Call) and _called(node) in self.activations)


class _Pass:
    """Follows, statement by statement and loops twice, what a product has given, and what an activation of that."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._products: set[str] = set()
        self._activated: set[str] = set()
        self._masks: set[str] = set()
        self._is_one = False
        self.returned: set[str] = set()
        """What kinds of values the function returns."""

    def is_one(self, function: _Function) -> bool:
        if self._has_product(function):  # else nothing can have come from one
            self._block(function.body)
        return self._is_one

    def _has_product(self, function: _Function) -> bool:
        return any(
            isinstance(node.op, ast.MatMult) if isinstance(node, ast.AugAssign) else self._names.is_product(node)
            for node in walk(function)
            if type(node) in _OPERATIONS
        )

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
            elif isinstance(statement, ast.Return) and statement.value is not None:
                values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
                self.returned |= {kind for value in values if (kind := self._kind(value))}
            rounds = 2 if isinstance(statement, ast.For | ast.While) else 1
            for block in blocks * rounds:
                self._block(block)

    def _look(self, expression: ast.expr, is_alone: bool) -> None:
        """Note products of what is activated, what is activated in place, and what a list is given."""
        for node in walk(expression):
            if type(node) not in _OPERATIONS:
                continue
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
            if not values and target.elts:  # rows, kept = layer(rows, weights)
                self._assign(target.elts[0], value)
            return
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Compare):  # x[x < 0] = 0
            key = _key(target.value)
            if key in self._products:
                self._activated.add(key)
            return
        key, kind = _key(target), self._kind(value)
        if key is None:
            return
        if not keep:
            self._products.discard(key)
            self._activated.discard(key)
            self._masks.discard(key)
        if isinstance(value, ast.Compare):
            self._masks.add(key)
        if kind == "product":
            self._products.add(key)
        elif kind == "activated":
            self._activated.add(key)

    def _augment(self, statement: ast.AugAssign) -> None:
        key = _key(statement.target)
        if key is None:
            return
        if isinstance(statement.op, ast.Mult) and key in self._products and self._is_slope(statement.value):
            self._activated.add(key)
        elif isinstance(statement.op, ast.MatMult):
            self._is_one |= key in self._activated
            self._products.add(key)

    def _kind(self, node: ast.AST) -> str | None:
        """What an expression is: "product", "activated" or neither."""
        if isinstance(node, ast.NamedExpr):
            return self._kind(node.value)
        if self._names.is_layer(node):
            return "activated"
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
            if left == "product" and self._is_slope(node.right):
                return "activated"
            if right == "product" and self._is_slope(node.left):
                return "activated"
        return None

    def _is_slope(self, node: ast.AST) -> bool:
        return _key(node) in self._masks or _is_slope(node)


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
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_ROWS:
        return _is_slope(node.func.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return isinstance(node.left, ast.Constant) and node.left.value == 1
    return _mentions(node, lambda name: re.search(r"(?i)slope|deriv", name))


# ------------------------------------------------------------------------------------------------ Adams
def adams(source: Source) -> list[str]:
    """Functions that take Adam's step by hand, and torch's own, which counts once however many modules use it.

    By hand: a function with two factors ``1 - beta``, or two moving averages, a square and a root that is divided by or
    returned; or one that calls a function of torch below its optimizers (``torch._fused_adam_``). A moving average:
    ``x = a * x + b * y``; a sum of two products with numbers that add up to 1, also under names of the module; what is
    multiplied and added to in place; a lerp. So means and variances that follow a stream and divide by a root count,
    too. Not seen: a step that is divided among functions of which none has both averages and the square.
    """
    texts, users = [], []
    for module in source.modules.values():
        mentioned = {name for _, name in resolved(module)}
        if any(re.fullmatch(r"torch\.optim\.(\w+\.)?\w*Adam\w*", name) for name in mentioned):
            users.append(module.path)
        constants = _constants(module)
        functions = (node for node in module.nodes if isinstance(node, _Function))
        texts += [f"{module.path}: {node.name}" for node in functions if _is_adam(node, constants) or _calls_adam(node)]
    return [*texts, f"torch.optim.Adam: {', '.join(users)}"] if users else texts


def _calls_adam(function: _Function) -> bool:
    calls = (node for node in walk(function) if isinstance(node, ast.Call))
    return any(
        re.fullmatch(r"_?(fused|foreach|single_tensor|multi_tensor)_adamw?_?|adamw?", _called(node))
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func).startswith("torch.")
        for node in calls
    )


def _is_adam(function: _Function, constants: Mapping[str, float]) -> bool:
    nodes = walk(function)
    if not any(_is_square(node) for node in nodes if type(node) in _OPERATIONS) or not _uses_root(nodes):
        return False
    decays = {ast.unparse(node.right) for node in nodes if _is_complement(node)}
    return len(decays) >= 2 or _averages(nodes, constants) >= 2


def _is_complement(node: ast.AST) -> TypeGuard[ast.BinOp]:
    """``1 - beta``."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Constant)
        and node.left.value == 1
        and isinstance(node.right, ast.Name | ast.Subscript | ast.Attribute)
    )


def _is_square(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors = [ast.unparse(factor) for factor in _factors(node)]
        return len(set(factors)) < len(factors)
    if not isinstance(node, ast.Call):
        return _power(node) == 2
    name = _called(node)
    if name == "multiply":
        return len(node.args) > 1 and ast.dump(node.args[0]) == ast.dump(node.args[1])
    return _power(node) == 2 or name in ("square", "square_", "addcmul", "addcmul_", "_foreach_addcmul_")


def _uses_root(nodes: list[ast.AST]) -> bool:
    """Whether a root is divided by, or returned for the caller to divide by."""
    roots: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Call) and _called(node) in ("sqrt", "_foreach_sqrt"):
            roots |= {ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "out"}
        if isinstance(node, ast.Assign) and _has_root(node.value):
            roots |= {ast.unparse(target) for target in node.targets}
    for node in nodes:
        divisor: ast.AST | None = None
        if isinstance(node, ast.Return):
            divisor = node.value
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            divisor = node.right
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            divisor = node.value
        elif isinstance(node, ast.Call) and re.fullmatch(
            r"divide|(true_)?div_?|(_foreach_)?(addc)?div_?", _called(node)
        ):
            divisor = node
        if divisor is not None and (
            _has_root(divisor)
            or any(ast.unparse(n) in roots for n in walk(divisor) if isinstance(n, ast.Name | ast.Attribute))
        ):
            return True
        if isinstance(node, ast.Call) and _called(node) in ("rsqrt", "rsqrt_"):
            return True
        if _power(node) == -0.5:
            return True
    return False


def _averages(nodes: list[ast.AST], constants: Mapping[str, float]) -> int:
    """How many moving averages there are."""
    found: set[ast.AST] = set()
    changed: dict[str, set[str]] = {"mul": set(), "add": set()}
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _has_shares(node, constants):
            found.add(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.BinOp):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_keeps(ast.unparse(target), node.value) for target in targets):
                found.add(node.value)
        elif isinstance(node, ast.AugAssign):
            target = ast.unparse(node.target)
            if isinstance(node.op, ast.Mult):
                changed["mul"].add(target)
            elif isinstance(node.op, ast.Add):
                changed["add"].add(target)
                found |= {node} if _comes_nearer(target, node.value) else set()
        elif isinstance(node, ast.Call):
            name = _called(node)
            if re.fullmatch(r"(_foreach_)?lerp_?", name):
                found.add(node)
            elif match := re.fullmatch(r"(?:_foreach_)?(mul|add)(?:cmul)?_|(mul|add)(?:tiply)?", name):
                out = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
                place = _place(node) if name.endswith("_") else out[0] if out else None
                if place is not None:
                    changed[match[1] or match[2]].add(ast.unparse(place))
    return len(found) + len(changed["mul"] & changed["add"])


def _place(node: ast.expr) -> ast.expr:
    """What a call in place writes to: ``v`` of ``v.mul_(b).add_(g)``, and of ``torch._foreach_mul_(v, b)``."""
    while isinstance(node, ast.Call) and _called(node).endswith("_"):
        if _called(node).startswith("_foreach") and node.args:
            return node.args[0]
        if not isinstance(node.func, ast.Attribute):
            return node
        node = node.func.value
    return node


def _has_shares(total: ast.BinOp, constants: Mapping[str, float]) -> bool:
    """``0.9 * x + 0.1 * y``: two products with numbers that add up to 1."""
    shares = []
    for term in (total.left, total.right):
        numbers = [n for factor in _factors(term) if (n := _number(factor, constants)) is not None]
        shares.append(math.prod(numbers) if numbers and len(_factors(term)) > 1 else math.nan)
    return min(shares) > 0.0 and math.isclose(sum(shares), 1.0)


def _keeps(target: str, value: ast.BinOp) -> bool:
    """Whether ``target = value`` is ``x = a * x + b * y`` or ``x = x + b * (y - x)``."""
    if not isinstance(value.op, ast.Add):
        return False
    terms = [[ast.unparse(factor) for factor in _factors(term)] for term in (value.left, value.right)]
    if any(terms[k] == [target] and _comes_nearer(target, (value.right, value.left)[k]) for k in (0, 1)):
        return True
    return all(len(factors) > 1 for factors in terms) and sum(target in factors for factors in terms) == 1


def _comes_nearer(target: str, change: ast.expr) -> bool:
    """Whether a change is ``b * (y - x)``, of x."""
    return len(_factors(change)) > 1 and any(
        isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Sub) and ast.unparse(factor.right) == target
        for factor in _factors(change)
    )


def _constants(module: Module) -> dict[str, float]:
    """Numbers at the top of a module, by name."""
    found: dict[str, float] = {}
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    number = _number(value, found)
                    if isinstance(name, ast.Name) and number is not None:
                        found[name.id] = number
    return found


def _number(node: ast.AST, constants: Mapping[str, float]) -> float | None:
    """The value of a number, of the name of one, of a difference or a ratio of such; ``None`` for all else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _number(node.operand, constants)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div):
        left, right = _number(node.left, constants), _number(node.right, constants)
        if left is None or right is None:
            return None
        return left - right if isinstance(node.op, ast.Sub) else left / right if right else None
    return None


def _power(node: ast.AST) -> float | None:
    """The exponent, where it is a number, of ``x ** n``, ``x.pow(n)`` or ``np.power(x, n)``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _number(node.right, {})
    if isinstance(node, ast.Call) and re.fullmatch(r"(float_)?pow(er)?_?", _called(node)) and node.args:
        return _number(node.args[-1], {})
    return None


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


_ROOT = re.compile(r"(_foreach_)?r?sqrt_?")


def _has_root(node: ast.AST) -> bool:
    return any(
        _power(inner) == 0.5 or (isinstance(inner, ast.Call) and _ROOT.fullmatch(_called(inner)))
        for inner in walk(node)
    )


# ------------------------------------------------------------------------------------------------ loops and memories
_COLLECTS = re.compile(r"_?(obtain_\w+|advance|collect\w*|run_groups|sample_paths|train_once|rollouts?)")
_ROUNDS = re.compile(r"(?i)\w*(epoch|iteration|generation)\w*|n_?itr|itr")


_LOOPS = {ast.Call, ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp}


def epoch_loops(source: Source) -> list[str]:
    """Loops that learn over epochs: what goes over ``step_epochs()``, or over epochs or iterations and collects in it.

    The second: the loop's variable, what it goes over, or what a ``while`` tests or counts up, is named after epochs,
    iterations or generations, and its body calls something that collects (obtain_samples, advance, collect, train_once
    ...). A loop within one of these is a part of it. A call of ``step_epochs()`` outside of a ``for`` counts as one.
    Not seen: loops in which nothing has such a name, and functions that call themselves.
    """
    texts = []
    for module in source.modules.values():
        loops = [node for node in module.nodes if _is_epoch_loop(node)]
        inner = {node for loop in loops for node in walk(loop) if node is not loop}
        texts += [f"{module.path}: line {loop.lineno}" for loop in loops if loop not in inner]
    return texts


def _is_epoch_loop(loop: ast.AST) -> TypeGuard[ast.expr | ast.stmt]:
    if type(loop) not in _LOOPS:
        return False
    if isinstance(loop, ast.Call):
        return _called(loop) == "step_epochs"
    if isinstance(loop, ast.For | ast.AsyncFor):
        heads: list[ast.AST] = [loop.target, loop.iter]
    elif isinstance(loop, ast.While):
        heads = [loop.test, *(node.target for node in walk(loop) if isinstance(node, ast.AugAssign))]
    else:
        assert isinstance(loop, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp)
        heads = [part for each in loop.generators for part in (each.target, each.iter)]
    is_named = any(_mentions(part, _ROUNDS.fullmatch) for part in heads)
    body: list[ast.AST] = [*loop.body] if isinstance(loop, ast.For | ast.AsyncFor) else [loop]
    calls = [node for part in body for node in walk(part) if isinstance(node, ast.Call)]
    if any(_called(node) == "step_epochs" for head in heads for node in walk(head) if isinstance(node, ast.Call)):
        return True
    return is_named and any(_COLLECTS.fullmatch(_called(node)) for node in calls)


def replay_memories(source: Source) -> list[str]:
    """Classes that store steps up to a capacity and draw from them.

    One is made with a capacity or a number of steps, and has a method that adds (add, store, append, push, extend,
    insert, new_paths) and one that draws (sample, draw). What makes memories of another of these classes is their user.
    ``PathBuffer``, of which PEARL has two for each task, is exempt: a transition is one row there, and a draw copies
    rows to the batch. The store of off-policy learners has each observation once, so that one draw is five gathers.
    Tried both ways, it drew the same transitions (until it was full: the end of a path takes a row, too) in three times
    the time as a stream for each task, 1.3 ms in place of 0.4 for 256 of each of 16 tasks, and as a buffer for each
    task in four times.
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
        if not any(isinstance(n, ast.Call) and _called(n) in names - {node.name} for n in walk(node))
        and text != _ROWS_OF_PATHS
    ]


_ROWS_OF_PATHS = "data/replay/path_buffer.py: PathBuffer"


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
    """Comparisons that ask whether a class has replaced a member of its base: ``type(x).member is not Base.member``, or
    ``not in (Base.member, ...)``, where both sides name the same member and the right one that of a class
    (``object``'s own are others' business), the functions of these (``x.member.__func__``), or what ``getattr`` gives;
    and ``"member" in vars(type(x))`` or in a ``__dict__`` of a class. Not seen: a member that was put into a variable
    before, names of members in variables, and names of functions (``__qualname__``).
    """
    return [
        f"{module.path}:{node.lineno} {ast.unparse(node)}"
        for module in source.modules.values()
        for node in module.nodes
        if isinstance(node, ast.Compare) and _asks_for_override(node)
    ]


_FUNCTION_OF = ("__func__", "__wrapped__", "__code__", "fget")
_MEMBER = ast.Attribute | ast.Call


def _asks_for_override(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    return any(map(_asks_of_pair, sides, node.ops, sides[1:]))


def _asks_of_pair(left: ast.expr, operation: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(operation, ast.In | ast.NotIn) and isinstance(left, ast.Constant):
        place = re.sub(r"\.keys\(\)$", "", ast.unparse(right))
        kind = r"(type\(.*\)|cls|kind|\w+\.__class__)"
        return bool(re.fullmatch(rf"vars\({kind}\)|{kind}\.__dict__", place))
    if isinstance(operation, ast.In | ast.NotIn):
        others = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else []
        return any(_is_replaced(left, other) for other in others)
    return isinstance(operation, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and _is_replaced(left, right)


def _is_replaced(left: ast.expr, right: ast.expr) -> bool:
    """Whether both are the same member, one of them that of a class by name."""
    (owner, name), (other, same) = _member(left), _member(right)
    return bool(name) and name == same and owner[:1].isupper() != other[:1].isupper()


def _member(node: ast.expr) -> tuple[str, str]:
    """The last name of the owner, and the member: of ``x.kind.draw.__func__``, kind and draw; "" if it is none."""
    while isinstance(node, ast.Attribute) and node.attr in _FUNCTION_OF and isinstance(node.value, _MEMBER):
        node = node.value
    if isinstance(node, ast.Attribute):
        return ast.unparse(node.value).rpartition(".")[2], node.attr
    if isinstance(node, ast.Call) and _called(node) in ("getattr", "getattr_static") and len(node.args) > 1:
        name = node.args[1]
        return ast.unparse(node.args[0]).rpartition(".")[2], str(name.value) if isinstance(name, ast.Constant) else ""
    return "", ""


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
