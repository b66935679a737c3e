"""Finders of ideas that a package may implement more than once. They read all of the source, so no copy is missed.

Each finder is a syntactic rule, stated in its docstring, and returns one line of text per match: where it is, and what.
The only exemption is the one in ``replay_memories``; its docstring gives the reason.
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
"""Types of nodes that can be a product, an activation or a square; most nodes are of other types."""


def perceptrons(source: Source) -> list[str]:
    """Modules that compute forward or backward passes through the layers of a perceptron by hand.

    A pass is a function in which the result of a matrix product (``@``, matmul, mm, addmm, linear, a helper of the
    package that computes one, a ``layer`` in a loop) goes through an activation, or is multiplied by the derivative of
    one, and then into another product, which may be that of the next iteration of a loop. An activation is a function
    with such a name, a lower bound of 0 (``maximum(x, 0)``, ``clamp(min=0)``, ``where(x > 0, x, ...)``,
    ``x[x < 0] = 0``), or a function of the package that only returns one of these. A function that returns the
    activated result is a layer, and so is a method within its module. Not passes: ``torch.nn.Sequential``, products
    without an activation between them, and gated cells, which mix activated values. Not detected: products written as
    sums of elementwise products, activations written out (``x / (1 + abs(x))``) or clipped on both sides (as actions
    are), rows in dicts, lambdas, and layers of another module that are called by other names.
    """
    helpers = {
        (module.name, node.name)
        for module in source.modules.values()
        for node in module.tree.body
        if isinstance(node, _Function) and any(_is_primitive_product(inner) for inner in walk(node))
    }
    activation_functions = {
        (module.name, node.name)
        for module in source.modules.values()
        for node in _functions(module)
        if _is_activation_function(node)
    }
    known: dict[str, _Names] = {}
    layers: set[tuple[str, str]] = set()
    for module in source.modules.values():
        products = _known_as(module, source, helpers)
        products -= {name for name in products if _ACTIVATION.fullmatch(name)}
        activations = _assigned_from(module, _ACTIVATION.fullmatch) | _known_as(module, source, activation_functions)
        known[module.name] = names = _Names(products, activations)
        names.products |= _assigned_from(module, names.products.__contains__)
        methods = {inner for node in module.of(ast.ClassDef) for inner in node.body}
        names.methods = {n.name for n in _functions(module) if n in methods and "product" in _returned(n, names)}
        layers |= {(module.name, node.name) for node in _functions(module) if "activated" in _returned(node, names)}
    texts = []
    for module in source.modules.values():
        names = known[module.name]
        names.layers = _known_as(module, source, layers)
        passes = [node.name for node in _functions(module) if _PassFinder(names).finds_pass(node)]
        if passes:
            texts.append(f"{module.path}: {', '.join(passes)}")
    return texts


def _functions(module: Module) -> list[_Function]:
    return module.of(ast.FunctionDef, ast.AsyncFunctionDef)


def _known_as(module: Module, source: Source, members: set[tuple[str, str]]) -> set[str]:
    """Names by which a module calls ``members`` (module, name), whether it defines or imports them."""
    imported = {
        alias.asname or alias.name
        for node in module.of(ast.ImportFrom)
        for alias, origin in zip(node.names, source.origins(node, module), strict=True)
        if origin in members
    }
    return imported | {name for home, name in members if home == module.name}


def _is_activation_function(function: _Function) -> bool:
    """Whether a function only returns an activation of an argument."""
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
    """``maximum(x, 0)``, ``maximum(x, 0.1 * x)``, ``x.clamp(min=0)``, ``where(x > 0, x, 0)``; not a bound of 1e-8."""
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
    """Whether it is 0, or an array or a tensor of zeros."""
    if isinstance(node, ast.Constant):
        return node.value == 0 and not isinstance(node.value, bool)
    if not isinstance(node, ast.Call):
        return False
    return "zeros" in _called(node) or (len(node.args) == 1 and _is_zero(node.args[0]))


def _returned(function: _Function, names: _Names) -> set[str]:
    """What a function returns, "product" or "activated"; nothing if it is a pass, since its callers only use it."""
    finder = _PassFinder(names)
    return set() if finder.finds_pass(function) else finder.returned


def _is_primitive_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and bool(_PRODUCT.fullmatch(_called(node)))


def _called(node: ast.Call) -> str:
    """The last part of the name of the called function, "" if it has no name."""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _mentions(node: ast.AST, matches: Callable[[str], object]) -> bool:
    return any(
        matches(inner.id if isinstance(inner, ast.Name) else inner.attr)
        for inner in walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    )


def _assigned_from(module: Module, matches: Callable[[str], object]) -> set[str]:
    """Names and attributes to which a function with a matching name is assigned: ``apply, _ = _ACTIVATIONS[name]``."""
    names: set[str] = set()
    for node in module.of(ast.Assign):
        if len(node.targets) != 1:
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
                names |= {
                    inner.id if isinstance(inner, ast.Name) else inner.attr
                    for inner in walk(part)
                    if isinstance(inner, ast.Name | ast.Attribute) and isinstance(inner.ctx, ast.Store)
                }
    return names - {"_"}


class _Names:
    """The names of products and activations in a module, beyond the usual ones."""

    def __init__(self, products: set[str], activations: set[str]) -> None:
        self.products, self.activations = products, activations
        self.methods: set[str] = set()
        """Methods of the module that return a product."""
        self.layers: set[str] = set()
        """Functions that compute a product, and return it activated."""

    def is_layer(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and _called(node) in self.layers

    def is_product(self, node: ast.AST) -> bool:
        called = _called(node) if isinstance(node, ast.Call) else None
        return _is_primitive_product(node) or called in self.products or called in self.methods or self.is_layer(node)

    def is_activation(self, node: ast.AST) -> bool:
        return _is_primitive_activation(node) or (isinstance(node, ast.Call) and _called(node) in self.activations)


class _PassFinder:
    """Tracks the results of products, and activations of these, through statements; loops are followed twice."""

    def __init__(self, names: _Names) -> None:
        self._names = names
        self._products: set[str] = set()
        self._activated: set[str] = set()
        self._masks: set[str] = set()
        self._has_pass = False
        self.returned: set[str] = set()
        """The kinds of values that the function returns."""

    def finds_pass(self, function: _Function) -> bool:
        if self._has_product(function):  # otherwise there is nothing to track
            self._block(function.body)
        return self._has_pass

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
                    self._inspect(node, isinstance(statement, ast.Expr))
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

    def _inspect(self, expression: ast.expr, is_alone: bool) -> None:
        """Note products of activated values, activations in place, and values that are added to a list."""
        for node in walk(expression):
            if type(node) not in _OPERATIONS:
                continue
            if self._names.is_product(node) and any(self._kind(part) == "activated" for part in _parts(node)):
                self._has_pass = True
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
            self._has_pass |= key in self._activated
            self._products.add(key)

    def _kind(self, node: ast.AST) -> str | None:
        """The kind of an expression: "product", "activated" or neither."""
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
    """The operands of a call or an operator, including the object of a method."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    assert isinstance(node, ast.Call)
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*owner, *node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "out")]


def _key(node: ast.AST) -> str | None:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else None


def _is_slope(node: ast.AST) -> bool:
    """Whether it is the derivative of an activation: ``x > 0``, ``1 - x * x``, or a name such as ``slope``."""
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_ROWS:
        return _is_slope(node.func.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        return isinstance(node.left, ast.Constant) and node.left.value == 1
    return _mentions(node, lambda name: re.search(r"(?i)slope|deriv", name))


# ------------------------------------------------------------------------------------------------ Adams
def adams(source: Source) -> list[str]:
    """Functions that take Adam's step by hand, and torch's own Adam, which counts once however many modules use it.

    By hand means a function with two factors ``1 - beta`` or two moving averages, a square, and a root that it divides
    by or returns; or one that calls the functions below torch's optimizers (``torch._fused_adam_``). A moving average
    is ``x = a * x + b * y``; a sum of two products with numbers, or constants of the module, that add up to 1; a
    multiplication and an addition in place; or a lerp. Running means and variances that divide by a root therefore
    count, too. Not detected: a step that is split into functions none of which has both the averages and the square.
    """
    texts, users = [], []
    for module in source.modules.values():
        mentioned = {name for _, name in resolved(module)}
        if any(re.fullmatch(r"torch\.optim\.(\w+\.)?\w*Adam\w*", name) for name in mentioned):
            users.append(module.path)
        constants = _constants(module)
        functions = _functions(module)
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
    """Whether there is a division by a root, or a root is returned for the caller to divide by."""
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
    """The number of moving averages."""
    averages: set[ast.AST] = set()
    changed: dict[str, set[str]] = {"mul": set(), "add": set()}
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _has_shares(node, constants):
            averages.add(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.BinOp):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_average_update(ast.unparse(target), node.value) for target in targets):
                averages.add(node.value)
        elif isinstance(node, ast.AugAssign):
            target = ast.unparse(node.target)
            if isinstance(node.op, ast.Mult):
                changed["mul"].add(target)
            elif isinstance(node.op, ast.Add):
                changed["add"].add(target)
                averages |= {node} if _moves_towards(target, node.value) else set()
        elif isinstance(node, ast.Call):
            name = _called(node)
            if re.fullmatch(r"(_foreach_)?lerp_?", name):
                averages.add(node)
            elif match := re.fullmatch(r"(?:_foreach_)?(mul|add)(?:cmul)?_|(mul|add)(?:tiply)?", name):
                out = [keyword.value for keyword in node.keywords if keyword.arg == "out"]
                place = _place(node) if name.endswith("_") else out[0] if out else None
                if place is not None:
                    changed[match[1] or match[2]].add(ast.unparse(place))
    return len(averages) + len(changed["mul"] & changed["add"])


def _place(node: ast.expr) -> ast.expr:
    """The target of a call in place: ``v`` of ``v.mul_(b).add_(g)``, and of ``torch._foreach_mul_(v, b)``."""
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


def _is_average_update(target: str, value: ast.BinOp) -> bool:
    """Whether ``target = value`` is ``x = a * x + b * y`` or ``x = x + b * (y - x)``."""
    if not isinstance(value.op, ast.Add):
        return False
    terms = [[ast.unparse(factor) for factor in _factors(term)] for term in (value.left, value.right)]
    if any(terms[k] == [target] and _moves_towards(target, (value.right, value.left)[k]) for k in (0, 1)):
        return True
    return all(len(factors) > 1 for factors in terms) and sum(target in factors for factors in terms) == 1


def _moves_towards(target: str, change: ast.expr) -> bool:
    """Whether a change is ``b * (y - x)``, of x."""
    return len(_factors(change)) > 1 and any(
        isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Sub) and ast.unparse(factor.right) == target
        for factor in _factors(change)
    )


def _constants(module: Module) -> dict[str, float]:
    """Numbers at the top of a module, by name."""
    constants: dict[str, float] = {}
    for node in module.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
                for name, value in zip(names, values, strict=False):
                    number = _number(value, constants)
                    if isinstance(name, ast.Name) and number is not None:
                        constants[name.id] = number
    return constants


def _number(node: ast.AST, constants: Mapping[str, float]) -> float | None:
    """The value of a number, of a named one, or of a difference or ratio of these; ``None`` for anything else."""
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
    """The exponent of ``x ** n``, ``x.pow(n)`` or ``np.power(x, n)``, if it is a number."""
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
    """Loops over the epochs of training: loops over ``step_epochs()``, and those that collect data in each epoch.

    In the second kind, the variable of the loop, its iterable, or what a ``while`` tests or counts is named after
    epochs, iterations or generations, and the body calls a function that collects (obtain_samples, advance, collect,
    train_once ...). Loops inside such a loop are part of it. A call of ``step_epochs()`` outside a ``for`` counts as a
    loop. Not detected: loops without such a name, and recursion.
    """
    texts = []
    for module in source.modules.values():
        loops = [node for node in module.of(*_LOOPS) if _is_epoch_loop(node)]
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

    Such a class is constructed with a capacity or a number of steps, and has a method that adds (add, store, append,
    push, extend, insert, new_paths) and one that draws (sample, draw). A class that creates memories of another one of
    these classes only uses them, and does not count. ``PathBuffer``, of which PEARL has two per task, is exempt: it
    stores a transition as one row, so drawing copies rows into the batch. The replay buffer of off-policy learners
    stores each observation once, so drawing takes five gathers. It was tried for PEARL in two ways, and drew the same
    transitions (until it was full, because the end of a path takes up a row): with one stream per task it took three
    times as long (1.3 ms instead of 0.4 ms for 256 transitions from each of 16 tasks), with one buffer per task four
    times.
    """
    classes: dict[str, tuple[Module, ast.ClassDef]] = {}
    for module in source.modules.values():
        for node in module.of(ast.ClassDef):
            if _is_memory(node):
                classes[f"{module.path}: {node.name}"] = module, node
    names = {node.name for _, node in classes.values()}
    return [
        text
        for text, (_, node) in classes.items()
        if not any(isinstance(n, ast.Call) and _called(n) in names - {node.name} for n in walk(node))
        and text != _EXEMPT_MEMORY
    ]


_EXEMPT_MEMORY = "data/replay/path_buffer.py: PathBuffer"


def _is_memory(node: ast.ClassDef) -> bool:
    methods = {member.name: member for member in node.body if isinstance(member, _Function)}
    parameters = {
        member.target.id
        for member in node.body
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name)
    }
    if "__init__" in methods:
        parameters |= {argument.arg for argument in _arguments(methods["__init__"])}
    is_finite = any(re.search(r"capacity|(max|buffer|replay)_?(size|steps|len)|maxlen", name) for name in parameters)
    adds = any(re.match(r"(add|store|append|push|extend|insert|new_paths)(_|$)", name) for name in methods)
    draws = any(re.match(r"(sample|draw)(_|$)", name) for name in methods)
    return is_finite and adds and draws


def _arguments(function: _Function) -> list[ast.arg]:
    """All arguments except ``self``, ``*args`` and ``**kwargs``."""
    arguments = function.args
    return [*[*arguments.posonlyargs, *arguments.args][1:], *arguments.kwonlyargs]


# ------------------------------------------------------------------------------------------------ algorithms
def descriptions(source: Source) -> list[str]:
    """Classes that describe an algorithm to the rest of the package: those that declare or define both a ``name`` and a
    ``build``, and all classes derived from them.
    """
    described: dict[str, str] = {}
    classes = [(m, node) for m in source.modules.values() for node in m.of(ast.ClassDef)]
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
    """Classes of options besides those of an algorithm itself: dataclasses in the folder of the description classes in
    which every field has a default, and all classes whose names end in Setup.
    """
    folders = {text.partition(": ")[0].rpartition("/")[0] for text in descriptions(source)}
    described = set(descriptions(source))
    texts = []
    for module in source.modules.values():
        for node in module.of(ast.ClassDef):
            if f"{module.path}: {node.name}" in described:
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
    """Comparisons that test whether a class overrides a member of its base: ``type(x).member is not Base.member``, or
    ``not in (Base.member, ...)``, where both sides name the same member and one of them that of a class other than
    ``object``; the same with the functions of members (``x.member.__func__``) or with ``getattr``; and
    ``"member" in vars(type(x))`` or in the ``__dict__`` of a class. Not detected: members or their names in variables,
    and comparisons of names (``__qualname__``).
    """
    return [
        f"{module.path}:{node.lineno} {ast.unparse(node)}"
        for module in source.modules.values()
        for node in module.of(ast.Compare)
        if _tests_override(node)
    ]


_FUNCTION_OF = ("__func__", "__wrapped__", "__code__", "fget")
_MEMBER = ast.Attribute | ast.Call


def _tests_override(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    return any(map(_tests_override_of_pair, sides, node.ops, sides[1:]))


def _tests_override_of_pair(left: ast.expr, operation: ast.cmpop, right: ast.expr) -> bool:
    if isinstance(operation, ast.In | ast.NotIn) and isinstance(left, ast.Constant):
        place = re.sub(r"\.keys\(\)$", "", ast.unparse(right))
        kind = r"(type\(.*\)|cls|kind|\w+\.__class__)"
        return bool(re.fullmatch(rf"vars\({kind}\)|{kind}\.__dict__", place))
    if isinstance(operation, ast.In | ast.NotIn):
        others = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else []
        return any(_is_replaced(left, other) for other in others)
    return isinstance(operation, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and _is_replaced(left, right)


def _is_replaced(left: ast.expr, right: ast.expr) -> bool:
    """Whether both sides are the same member, one of them of a class that is given by name."""
    (owner, name), (other, same) = _member(left), _member(right)
    return bool(name) and name == same and owner[:1].isupper() != other[:1].isupper()


def _member(node: ast.expr) -> tuple[str, str]:
    """The last name of the owner, and the member: kind and draw for ``x.kind.draw.__func__``; "" if it is no member."""
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
