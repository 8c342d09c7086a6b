"""Speeds up TVM's script parser: each kernel and text is parsed once a process, each expression compiled once.

The parser of the pinned TVM requests the call stack at every kernel and every macro call, and `inspect.stack` looks up
the source line of each frame: more than half of the time of lowering, growing with the depth of the caller.  The parser
uses the source line of only one frame (is the function defined in a class?) and the frame object of all others.  It
also reads and parses the text of a kernel again for every set of arguments, compiles every part of an expression on
its own at every visit, and notes the place of each in the source, which nothing here reads.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType, SimpleNamespace
from typing import Any


def kernel(make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return `make(*args)`, a PrimFunc, parsed once for equal (hashable) arguments; TVM never changes one in place."""
    return _parsed(make, args, repr(args))


@lru_cache(maxsize=512)
def _parsed(make: Callable[..., Any], args: tuple[Any, ...], exactly: str) -> Any:
    del exactly  # 1, 1.0 and True are equal and make different kernels
    return make(*args)


_WITH_SOURCE = 2
"""Index of the frame whose source line is read: the class body in which a kernel is defined, if any."""


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield `frame` and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return the caller's stack as `inspect.stack` does, with source text only for the frame that needs it."""
    found = []
    for depth, frame in enumerate(frames(sys._getframe(1))):
        code = frame.f_code
        text: Any = inspect.getframeinfo(frame, context)[3:] if depth == _WITH_SOURCE else (None, None)
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, *text))
    return found


class Operators(ast.NodeTransformer):
    """Replaces comparisons and logic, which kernels' terms do not overload, by calls; those of a lambda stay Python's.

    Buffers' slices among operands get the step by which the parser knows them as vectors.
    """

    def visit(self, node: ast.AST) -> Any:
        called = getattr(getattr(node, "func", None), "attr", "reads")
        if isinstance(node, _OPERATIONS) or called not in ("reads", "writes", "match_buffer"):
            for part in ast.iter_child_nodes(node):
                for index in getattr(part.slice, "elts", [part.slice]) if isinstance(part, ast.Subscript) else ():
                    if isinstance(index, ast.Slice) and index.lower and index.upper:
                        index.step = index.step or ast.Constant(1)
        return node if isinstance(node, _PYTHONS_OWN) else super().visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        pairs = zip(node.ops, pairwise(map(self.visit, [node.left, *node.comparators])), strict=True)
        return _joined(ast.And(), *(_call("applied", _name(operator), *pair) for operator, pair in pairs))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self.visit(node.operand)
        return _call("applied", _name(node.op), node.operand) if isinstance(node.op, ast.Not) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return _joined(node.op, *map(self.visit, node.values))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call("chosen", self.visit(node.test), *(_later(self.visit(way)) for way in (node.body, node.orelse)))


_OPERATIONS = ast.BinOp, ast.UnaryOp, ast.Compare
_PYTHONS_OWN = ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"__{name}__", ast.Load()), list(args), [])


def _name(operator: ast.AST) -> ast.Constant:
    return ast.Constant(type(operator).__name__)


def _later(value: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _joined(operator: ast.boolop, first: ast.expr, *rest: ast.expr) -> ast.expr:
    return _call("joined", _name(operator), first, *map(_later, rest)) if rest else first


def _evaluation() -> Callable[..., Any]:
    """Return the evaluation of an expression that takes the place of the parser's: its code is compiled once."""
    from tvm.script.parser.core import doc
    from tvm.script.parser.core.evaluator import _eval_op
    from tvm.script.parser.core.parser import ScriptMacro
    from tvm.tirx.op import if_then_else

    def applied(name: str, *values: Any) -> Any:
        return _eval_op(getattr(doc, name)(), values)

    def joined(name: str, value: Any, *rest: Callable[[], Any]) -> Any:
        for other in rest:
            if isinstance(value, bool) and value == (name == "Or"):
                break
            value = applied(name, value, other())
        return value

    def chosen(test: Any, *ways: Callable[[], Any]) -> Any:
        return ways[not test]() if isinstance(test, bool) else if_then_else(test, *(way() for way in ways))

    helpers: dict[str, Any] = {"__applied__": applied, "__joined__": joined, "__chosen__": chosen}

    def evaluate(self: Any, node: Any, extra_vars: dict[str, Any] | None = None) -> Any:
        names = {**self.var_table.get(), **(extra_vars or {}), **helpers, ScriptMacro.parser_object_name: self}
        if "code" not in vars(node):
            whole = ast.fix_missing_locations(ast.Expression(Operators().visit(doc.from_doc(node))))
            node.code = compile(whole, "<expression of a kernel>", "eval")
        return eval(node.code, names)

    return evaluate


def speed_up_parser() -> None:
    """Make TVM's script parser use these stacks and evaluations, and read and parse each source text once."""
    from tvm.script.parser.core import diagnostics, doc, utils
    from tvm.script.parser.core.parser import Parser, ScriptMacro
    from tvm.script.parser.ir import entry as ir_entry
    from tvm.tirx.script.parser import entry as tirx_entry

    def find_parser(self: Any) -> Any:
        name = ScriptMacro.parser_object_name
        return next(parser for frame in frames(sys._getframe(1)) if (parser := frame.f_globals.get(name)) is not None)

    ScriptMacro._find_parser_def = find_parser
    Parser.eval_expr = _evaluation()
    Parser.with_source_span = lambda self, node: nullcontext()
    for entry in (tirx_entry, ir_entry):
        entry.inspect = SimpleNamespace(**{**vars(inspect), "stack": stack})

    read = diagnostics.Source.__init__
    texts: dict[CodeType, dict[str, Any]] = {}

    def read_once(self: Any, program: Any) -> None:
        code = getattr(program, "__code__", None)
        if code in texts:
            self.__dict__.update(texts[code])
            return
        read(self, program)
        if code is not None:
            texts[code] = dict(vars(self))

    diagnostics.Source.__init__ = read_once
    names_of = lru_cache(maxsize=None)(utils._collect_annotation_names)  # a function's code has its text too
    utils._collect_annotation_names = lambda function: names_of(getattr(function, "__code__", function))
    doc.parse = lru_cache(maxsize=None)(doc.parse)
    doc._is_atomic_type = lambda node: node is None or node is ... or isinstance(node, _ATOMS)


_ATOMS = (int, float, str, bool, bytes, complex)
