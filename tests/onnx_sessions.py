"""Sessions of ONNX Runtime that compute what an ONNX file says on every processor."""

from __future__ import annotations

from typing import Any


def exact_session(model: Any) -> Any:
    """Return a session on this machine's processor for `model`, a path or serialised bytes, with exact int8 sums.

    Without this option, ONNX Runtime adds pairs of products of bytes in 16 bits on x86-64 processors that have no
    VNNI, where sums saturate.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
