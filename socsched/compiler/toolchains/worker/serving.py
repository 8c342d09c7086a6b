"""The helper's side of the protocol: a JSON object per line on stdin, an answer per line on stdout.

A request has `do`, the name of an action, and the action's arguments; files are named relative to the working folder,
the only one a helper reads and writes.  An answer has `ok`, and either the action's results or `error`, a text.  The
first answer, `versions`, comes without a request.  Vendors' libraries print on stdout, so both standard outputs go to
the log file that the caller opened as stderr.
"""

import ctypes
import json
import os
import resource
import sys
import time

LONGEST_LINE = 1 << 20
LARGEST_FILE = 2 << 30
LARGEST_TEXT = 2000


def serve(actions, versions):
    """Answer requests until stdin ends; `actions` maps a name to a function of keyword arguments."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(document):
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    try:
        answer({"ok": True, "versions": versions()})
    except Exception as error:
        answer({"ok": False, "error": text_of(error)})
        return
    for line in sys.stdin:
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError("the request is too long")
            request = json.loads(line)
            begun = time.monotonic()
            result = actions[request.pop("do")](**request)
            answer({"ok": True, "seconds": round(time.monotonic() - begun, 3), **result})
        except Exception as error:
            answer({"ok": False, "error": text_of(error)})


def text_of(error):
    """Return an exception's text in one bounded line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:LARGEST_TEXT]


def own(name):
    """Return a file name of the working folder; ValueError for any other path."""
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise ValueError(f"not a file of the working folder: {name!r}")
    return name


def log_size():
    """Return the size of the log after everything printed so far."""
    flush()
    return os.fstat(2).st_size


def log_since(start):
    """Return the text logged after the first `start` bytes."""
    flush()
    with open("log", "rb") as file:
        file.seek(start)
        return file.read().decode("utf-8", "replace")


def flush():
    """Write out what Python and C libraries have buffered."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
