"""Slots of a device: room for one frame each, held while any of the frame's data is referenced.

A frame takes a slot when it enters the device.  The slot is free again once none of its data is referenced, host
copies included.
"""

from __future__ import annotations

from typing import Any


class Lease:
    """A slot in use; it is returned when the last reference is dropped."""

    __slots__ = ("_free", "number")

    def __init__(self, number: int, free: list[int]) -> None:
        self.number, self._free = number, free

    def __del__(self) -> None:
        self._free.append(self.number)


class Slots:
    """Any number of slots; returned ones are reused first.  Beyond `limit` there is no `room` for new frames."""

    def __init__(self) -> None:
        self.made, self.limit = 0, 0
        self._free: list[int] = []

    @property
    def room(self) -> bool:
        """Return whether a frame can enter within the limit (0: no limit); a slot beyond it would need new graphs."""
        return bool(self._free) or not self.limit or self.made < self.limit

    def take(self) -> Lease:
        """Return a free slot."""
        try:
            return Lease(self._free.pop(), self._free)
        except IndexError:
            self.made += 1
            return Lease(self.made - 1, self._free)


class _Leased:
    """Memory exposed as an array whose views keep the slots."""

    def __init__(self, array: Any, leases: tuple[Lease, ...]) -> None:
        self._array, self._leases = array, leases
        self.__array_interface__ = array.__array_interface__


def lease(array: Any, leases: tuple[Lease, ...]) -> Any:
    """Return a view of `array` that keeps `leases` while it, or any view of it, is referenced."""
    import numpy

    return numpy.asarray(_Leased(array, leases))
