"""Slots of a device: room for a frame, held as long as anybody holds anything of the frame.

A frame that enters the device takes a slot; the slot is free again when nobody holds anything of it, host copies
included.
"""

from __future__ import annotations

from typing import Any


class Lease:
    """A slot while anything in it is in use; gives it back when the last holder lets go."""

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number, self._free = number, free

    def __del__(self) -> None:
        self._free.append(self.number)


class Slots:
    """Slots in any number; those given back are used again first.  Beyond `limit` there is no `room` for new frames."""

    def __init__(self) -> None:
        self.made, self.limit = 0, 0
        self._free: list[int] = []

    @property
    def room(self) -> bool:
        """Whether a frame can enter without a slot beyond the limit (0: none), whose graphs would have to be made."""
        return bool(self._free) or not self.limit or self.made < self.limit

    def take(self) -> Lease:
        """Return a slot nobody uses."""
        try:
            return Lease(self._free.pop(), self._free)
        except IndexError:
            self.made += 1
            return Lease(self.made - 1, self._free)


class _Leased:
    """Memory that is handed out as an array: who holds a view of it holds the slots."""

    def __init__(self, array: Any, leases: tuple[Lease, ...]) -> None:
        self._array, self._leases = array, leases
        self.__array_interface__ = array.__array_interface__


def leased(array: Any, leases: tuple[Lease, ...]) -> Any:
    """Return a view of `array` that keeps `leases` as long as it, or any view of it, is held."""
    import numpy

    return numpy.asarray(_Leased(array, leases))
