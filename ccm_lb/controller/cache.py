"""
Services and Nodes as last seen.

What is put in may come from a watch, a list, a GET or the answer to a patch, in any order and more than once: the resourceVersion says
which is newer, and an older one changes nothing. It is compared as a number, which Kubernetes allows since 1.35 and which
has been true of every API server on etcd.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, Protocol, TypeVar

from ccm_lb.objects import Key, Node, ObjectMeta, Service

REMEMBERED = 8192  # how many names of vanished objects are kept, so that a late event does not bring one back


class _Object(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=_Object)


def version(resource_version: str) -> int:
    """A resourceVersion as a number; what is not one counts as older than everything."""
    return int(resource_version) if resource_version.isdigit() else 0


class Cache(Generic[K, T]):
    """Objects by key, each at the newest resourceVersion that was ever put in."""

    def __init__(self, key: Callable[[T], K]) -> None:
        self._key = key
        self._objects: dict[K, T] = {}
        self._dropped: collections.OrderedDict[K, int] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def get(self, key: K) -> T | None:
        return self._objects.get(key)

    def version(self, key: K) -> int:
        """The newest resourceVersion known for `key`, of an object that is here or was; 0 if there is none."""
        present = self._objects.get(key)
        return version(present.metadata.resource_version) if present is not None else self._dropped.get(key, 0)

    def put(self, obj: T) -> bool:
        """Remember `obj`; False if the same or something newer was seen before."""
        key = self._key(obj)
        if version(obj.metadata.resource_version) <= self.version(key):
            return False
        self._objects[key] = obj
        self._dropped.pop(key, None)
        return True

    def drop(self, key: K, at: int = 0) -> T | None:
        """Forget the object of `key`, and believe no event about it that is older than `at` or than what was known; returns it."""
        known = max(self.version(key), at)
        obj = self._objects.pop(key, None)
        self._dropped.pop(key, None)
        self._dropped[key] = known
        if len(self._dropped) > REMEMBERED:
            self._dropped.popitem(last=False)
        return obj


def services() -> Cache[Key, Service]:
    """An empty cache of Services."""
    return Cache(lambda service: service.key)


def nodes() -> Cache[str, Node]:
    """An empty cache of Nodes."""
    return Cache(lambda node: node.name)
