"""Speeds up TVM's script parser: parses each kernel and source text once per process, builds stacks without text.

The parser of the pinned TVM requests the call stack at every kernel and every macro call, and `inspect.stack` looks up
the source line of each frame: more than half of the time of lowering, growing with the depth of the caller.  The parser
uses the source line of only one frame (is the function defined in a class?) and the frame object of all others.  It
also reads and parses the text of a kernel again for every set of arguments.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
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


def speed_up_parser() -> None:
    """Make TVM's script parser use these stacks, and read and parse each source text once."""
    from tvm.script.parser.core import diagnostics, doc
    from tvm.script.parser.core.parser import ScriptMacro
    from tvm.script.parser.ir import entry as ir_entry
    from tvm.tirx.script.parser import entry as tirx_entry

    def find_parser(self: Any) -> Any:
        name = ScriptMacro.parser_object_name
        return next(parser for frame in frames(sys._getframe(1)) if (parser := frame.f_globals.get(name)) is not None)

    ScriptMacro._find_parser_def = find_parser
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
    doc.parse = lru_cache(maxsize=None)(doc.parse)
    doc._is_atomic_type = lambda node: node is None or node is ... or isinstance(node, _ATOMS)


_ATOMS = (int, float, str, bool, bytes, complex)
