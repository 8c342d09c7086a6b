"""A table that stays readable on a narrow terminal: words are not split, and columns that do not fit go below the row.

It uses the first layout that fits: all columns side by side; without the empty columns; the columns in `below` on
separate lines under each row; every row as a list of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
TORN = 20
"""Words longer than this may be broken."""


class Sheet:
    """Plain cells under column headings; columns in `right` align right and never wrap."""

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        right: Sequence[int] = (),
        below: Sequence[int] = (),
    ) -> None:
        self.columns, self.rows, self.below = list(columns), [list(row) for row in rows], list(below)
        self.right = set(right)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lay out the table for the available width."""
        every = list(range(len(self.columns)))
        filled = [i for i in every if any(row[i] for row in self.rows)] or every
        in_row = [i for i in filled if i not in self.below]
        for chosen in (every, filled, in_row) if self.below else (every, filled):
            widths = self._widths(chosen, options.max_width)
            if widths is not None:
                yield from self._grid(chosen, widths, options.max_width)
                return
        yield from self._list()

    def _natural(self, column: int) -> int:
        return max([cell_len(self.columns[column]), *(self._longest(row[column]) for row in self.rows)])

    def _longest(self, cell: str) -> int:
        return max((cell_len(line) for line in cell.split("\n")), default=0)

    def _least(self, column: int) -> int:
        """Return the minimum width of a column: its longest word; numbers are not split."""
        if column in self.right:
            return self._natural(column)
        cells = [row[column] for row in self.rows]
        longest = max((cell_len(word) for cell in (self.columns[column], *cells) for word in cell.split()), default=0)
        # sentences are hard to read in a column one word wide
        sentence = 24 if any(cell.count(" ") > 3 for cell in cells) else 0
        return max(min(longest, TORN), min(sentence, self._natural(column)))

    def _widths(self, chosen: Sequence[int], room: int) -> list[int] | None:
        """Return the column widths: natural if they fit, else with the widest columns narrowed; None if too many."""
        widths, least = [self._natural(i) for i in chosen], [self._least(i) for i in chosen]
        spare = room - GAP * (len(chosen) - 1)
        if sum(least) > spare:
            return None
        while sum(widths) > spare:
            gives = max((i for i in range(len(chosen)) if widths[i] > least[i]), key=lambda i: widths[i])
            widths[gives] -= 1
        return widths

    def _grid(self, chosen: Sequence[int], widths: Sequence[int], room: int) -> Iterator[Table | Padding]:
        under = [i for i in self.below if i not in chosen]

        def table() -> Table:
            grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
            for index, width in zip(chosen, widths, strict=True):
                grid.add_column(justify="right" if index in self.right else "left", width=width, overflow="fold")
            return grid

        part = table()
        part.add_row(*(Text(self.columns[i], "dim") for i in chosen))
        for row in self.rows:
            part.add_row(*(Text(row[i]) for i in chosen))
            details = self._told(row, under, room - 4)
            if details:
                yield part
                yield Padding(Text(details, "dim"), (0, 0, 0, 4))
                part = table()
        if part.row_count:
            yield part

    def _told(self, row: Sequence[str], under: Sequence[int], room: int) -> str:
        """Return the text below a row: a text alone, or figures, each on one line with its name."""
        if len(under) == 1:
            return row[under[0]]
        lines: list[str] = []
        for pair in (f"{self.columns[i]} {row[i]}" for i in under if row[i]):
            if lines and cell_len(lines[-1]) + 3 + cell_len(pair) <= room:
                lines[-1] += f"   {pair}"
            else:
                lines.append(pair)
        return "\n".join(lines)

    def _list(self) -> Iterator[Table | Text]:
        for row in self.rows:
            yield Text(f"{self.columns[0]} {row[0]}")
            grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
            grid.add_column(style="dim", min_width=6)
            grid.add_column(overflow="fold")
            for name, cell in zip(self.columns[1:], row[1:], strict=True):
                if cell:
                    grid.add_row(f"  {name}", Text(cell))
            yield grid
