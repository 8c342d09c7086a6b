"""Words of a text one by one, each with its position: what small readers of hostile files share."""

from __future__ import annotations

import re

from socsched.errors import DescriptorError, Finding


class Lexer:
    """The words of a text; `kind`, `token` and `place` (line and column) are those of the next one, "" at the end.

    `words` has a named group for each kind of word: `space` is skipped, `mark` is what `takes` compares.  `what` and
    `width` say what is expected, and how much is quoted, where none matches.
    """

    def __init__(self, text: str, file: str, words: re.Pattern[str], what: str, width: int, hint: str = "") -> None:
        self.text, self.file, self.words, self.hint = text, file, words, hint
        self.what, self.width = what, width
        self.at, self.line, self.start = 0, 1, 0
        self.kind = self.token = ""
        self.place = (1, 1)
        self.next()

    def fault(self, place: tuple[int, int], expected: str) -> DescriptorError:
        """Return the error for what is at a place."""
        return DescriptorError([Finding(self.file, *place, "file", expected)], self.hint)

    def next(self) -> None:
        """Go on to the next word; DescriptorError for what is none."""
        self.kind = "space"
        while self.kind == "space":
            self.place = (self.line, self.at - self.start + 1)
            if self.at >= len(self.text):
                self.kind = self.token = ""
                return
            match = self.words.match(self.text, self.at)
            if match is None:
                got = self.text[self.at : self.at + self.width]
                raise self.fault(self.place, f"expected {self.what}, got {got!r}")
            self.kind, self.token, self.at = match.lastgroup or "", match[0], match.end()
            if breaks := self.token.count("\n"):
                self.line, self.start = self.line + breaks, match.start() + self.token.rindex("\n") + 1

    def takes(self, token: str) -> bool:
        """Return whether a mark is next, and go on behind it."""
        there = self.kind == "mark" and self.token == token
        if there:
            self.next()
        return there
