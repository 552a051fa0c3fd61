"""Books of the radix cache by namespace (`extra_key`), and the floors below which eviction must not take one.

Every figure is kept by increments, because the scheduler reads sizes for each request. A cache class that inserts nodes
without telling this ledger may still lock and unlock them; its figures are then meaningless, but nothing fails.
"""

from collections import defaultdict
from typing import Dict, Mapping, NamedTuple, Optional

Namespace = Optional[str]


class NamespaceUsage(NamedTuple):
    total: int
    locked: int
    floor: int
    evictable: int


class NamespaceLedger:
    def __init__(self, page_size: int, floors: Optional[Mapping[Namespace, int]]):
        self._page_size = page_size
        self._floors: Dict[Namespace, int] = {}
        for namespace, num_tokens in (floors or {}).items():
            self.set_floor(namespace, num_tokens)
        self.clear()

    def clear(self) -> None:
        """Forget the tokens, not the floors."""
        self._total: Dict[Namespace, int] = defaultdict(int)
        self._locked: Dict[Namespace, int] = defaultdict(int)

    def set_floor(self, namespace: Namespace, num_tokens: int) -> None:
        if num_tokens < 0:
            raise ValueError(f"floor must not be negative, got {num_tokens}")
        pages = -(-num_tokens // self._page_size)
        if pages:
            self._floors[namespace] = pages * self._page_size
        else:
            self._floors.pop(namespace, None)

    def resize(self, namespace: Namespace, delta: int) -> None:
        self._total[namespace] += delta
        if self._total[namespace] == 0:
            del self._total[namespace]

    def lock(self, namespace: Namespace, delta: int) -> None:
        self._locked[namespace] += delta

    def kept(self, namespace: Namespace) -> int:
        """Unlocked tokens that only the floor protects."""
        locked = self._locked.get(namespace, 0)
        unlocked = self._total.get(namespace, 0) - locked
        return max(0, min(unlocked, self._floors.get(namespace, 0) - locked))

    def kept_in_all(self) -> int:
        return sum(self.kept(namespace) for namespace in self._floors)

    def above_floor(self, namespace: Namespace) -> Optional[int]:
        """Tokens that may go before the floor is reached, None where there is no floor."""
        if namespace not in self._floors:
            return None
        return max(0, self._total.get(namespace, 0) - self._floors[namespace])

    def usage(self) -> Dict[Namespace, NamespaceUsage]:
        found = {}
        for namespace in {**self._total, **self._floors}:
            total = self._total.get(namespace, 0)
            locked = self._locked.get(namespace, 0)
            found[namespace] = NamespaceUsage(
                total=total,
                locked=locked,
                floor=self._floors.get(namespace, 0),
                evictable=total - locked - self.kept(namespace),
            )
        return found
