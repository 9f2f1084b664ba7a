"""How often one address may do a thing."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable

JOINS_AT_ONCE, JOINS_PER_MINUTE = 300, 10  # from one address: a lecture hall may share one
_MOST_ADDRESSES = 10_000  # remembered


class Rate:
    """Allows `at_once` uses for each address, and then `per_minute`.

    Example:
        >>> rate = Rate(at_once=2, per_minute=60)
        >>> [rate.allow("192.0.2.1") for _ in range(3)], rate.allow("192.0.2.2")
        ([True, True, False], True)
    """

    def __init__(self, at_once: int, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.at_once, self.per_second, self.clock = at_once, per_minute / 60, clock
        self._left: dict[str, tuple[float, float]] = {}  # address -> uses left, and when
        self._lock = threading.Lock()

    def allow(self, address: str) -> bool:
        """Whether an address may use it once more; counts the use."""
        now = self.clock()
        with self._lock:
            left, before = self._left.pop(address, (float(self.at_once), now))
            left = min(self.at_once, left + (now - before) * self.per_second)
            allowed = left >= 1
            self._left[address] = (left - allowed, now)  # the last in order is the latest
            if len(self._left) > _MOST_ADDRESSES:
                del self._left[next(iter(self._left))]
        return allowed


def address_to_network(address: str) -> str:
    """What counts as one address: of IPv6, all that one subscriber has.

    Example:
        >>> address_to_network("192.0.2.7"), address_to_network("2001:db8::1:2")
        ('192.0.2.7', '2001:db8::/64')
    """
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if number.version == 4 else str(ipaddress.ip_network((number, 64), strict=False))
