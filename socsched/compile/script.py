"""TVM's script parser made quick: each kernel is parsed once in a process, and call stacks come without source text.

The parser asks for the call stack at every kernel and every macro call, and `inspect.stack` looks up the source line of
each frame: more than half of the time of lowering, and more the deeper the caller.  The parser of the pinned TVM reads
the source line of one frame only (is the function defined in a class?) and of all others the frame itself.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import FrameType, SimpleNamespace
from typing import Any


def kernel(make: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return `make(*args)`, a PrimFunc, parsed once for equal (hashable) arguments; TVM never changes one in place."""
    return _parsed(make, args, repr(args))


@lru_cache(maxsize=512)
def _parsed(make: Callable[..., Any], args: tuple[Any, ...], exactly: str) -> Any:
    del exactly  # 1, 1.0 and True are equal and make different kernels
    return make(*args)


_WITH_SOURCE = 2
"""The frame whose source line is read: that of the class body in which a kernel is defined, if it is in one."""


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield `frame` and its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def stack(context: int = 1) -> list[inspect.FrameInfo]:
    """Return the caller's stack as `inspect.stack` does, with source text for the frame that needs it alone."""
    found = []
    for depth, frame in enumerate(frames(sys._getframe(1))):
        code = frame.f_code
        text: Any = inspect.getframeinfo(frame, context)[3:] if depth == _WITH_SOURCE else (None, None)
        found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, *text))
    return found


def use_lean_stacks() -> None:
    """Make TVM's script parser use these stacks."""
    from tvm.script.parser.core.parser import ScriptMacro
    from tvm.script.parser.ir import entry as ir_entry
    from tvm.tirx.script.parser import entry as tirx_entry

    def find_parser(self: Any) -> Any:
        name = ScriptMacro.parser_object_name
        return next(parser for frame in frames(sys._getframe(1)) if (parser := frame.f_globals.get(name)) is not None)

    ScriptMacro._find_parser_def = find_parser
    for entry in (tirx_entry, ir_entry):
        entry.inspect = SimpleNamespace(**{**vars(inspect), "stack": stack})
