"""`namespace_usage`, `set_floor` and the two sizes that the scheduler reads."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from world import World, audit  # noqa: E402

from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey  # noqa: E402

A = list(range(100, 110))
B = list(range(200, 220))


def test_an_empty_cache_has_no_namespaces():
    world = World()
    assert world.usage() == {}


def test_each_extra_key_is_a_namespace():
    world = World()
    world.insert(A)
    world.insert(A, "")
    world.insert(B, "lora")
    assert world.usage() == {
        None: (10, 0, 0, 10),
        "": (10, 0, 0, 10),
        "lora": (20, 0, 0, 20),
    }
    audit(world, {})


def test_a_namespace_goes_with_its_last_token():
    world = World()
    world.insert(A, "a")
    world.insert(B, "b")
    world.match(B, "b")
    world.evict(10)
    assert world.usage() == {"b": (20, 0, 0, 20)}


def test_a_floor_alone_makes_an_entry():
    world = World(namespace_floors={"a": 5, None: 3, "no": 0})
    assert world.usage() == {"a": (0, 0, 5, 0), None: (0, 0, 3, 0)}


def test_a_shared_prefix_counts_once():
    world = World()
    world.insert(A + [1, 2], "a")
    world.insert(A + [3, 4, 5], "a")
    assert world.usage() == {"a": (15, 0, 0, 15)}
    world.insert(A[:4] + [9], "a")
    audit(world, {})
    assert world.usage()["a"] == (16, 0, 0, 16)


def test_locks_are_counted_once_and_by_namespace():
    world = World()
    world.insert(A + [1, 2], "a")
    world.insert(A + [3, 4, 5], "a")
    world.insert(A, "b")
    first = world.lock(A + [1, 2], "a")
    second = world.lock(A, "a")
    assert world.usage() == {"a": (15, 12, 0, 3), "b": (10, 0, 0, 10)}
    world.cache.dec_lock_ref(first)
    assert world.usage()["a"] == (15, 10, 0, 5)
    world.cache.dec_lock_ref(second)
    audit(world, {})
    assert world.usage()["a"] == (15, 0, 0, 15)


def test_a_locked_node_that_is_split_stays_counted():
    world = World()
    world.insert(A, "a")
    node = world.lock(A, "a")
    world.insert(A[:4] + [7, 7], "a")
    assert world.usage() == {"a": (12, 10, 0, 2)}
    world.cache.dec_lock_ref(node)
    assert world.usage() == {"a": (12, 0, 0, 12)}


@pytest.mark.parametrize(
    "floor, rounded, evictable",
    [(0, 0, 20), (1, 4, 16), (4, 4, 16), (5, 8, 12), (19, 20, 0), (21, 24, 0)],
)
def test_floors_are_rounded_up_to_pages(floor, rounded, evictable):
    world = World(page_size=4)
    world.insert(B, "a")
    world.cache.set_floor("a", floor)
    assert world.usage() == {"a": (20, 0, rounded, evictable)}
    audit(world, {"a": rounded})


@pytest.mark.parametrize(
    "floor, evictable, protected",
    [(0, 4, 6), (4, 4, 6), (6, 4, 6), (7, 3, 7), (10, 0, 10), (99, 0, 10)],
)
def test_locked_tokens_count_towards_the_floor(floor, evictable, protected):
    world = World(namespace_floors={"a": floor})
    world.insert(A, "a")
    world.lock(A[:6], "a")
    assert world.usage() == {"a": (10, 6, floor, evictable)}
    assert world.cache.evictable_size() == evictable
    assert world.cache.protected_size() == protected


def test_kept_tokens_are_protected_but_the_attributes_keep_their_meaning():
    world = World(namespace_floors={"a": 7})
    world.insert(A, "a")
    world.insert(B)
    assert (world.cache.evictable_size(), world.cache.protected_size()) == (23, 7)
    assert (world.cache.evictable_size_, world.cache.protected_size_) == (30, 0)
    world.lock(A[:2], "a")
    assert (world.cache.evictable_size(), world.cache.protected_size()) == (23, 7)
    assert (world.cache.evictable_size_, world.cache.protected_size_) == (28, 2)


def test_floors_change_at_any_time():
    world = World()
    world.insert(A, "a")
    for floor, evictable in ((3, 7), (8, 2), (0, 10), (100, 0)):
        world.cache.set_floor("a", floor)
        assert world.cache.evictable_size() == evictable
        audit(world, {"a": floor})


def test_floors_survive_a_reset_and_tokens_do_not():
    world = World(namespace_floors={"a": 4})
    world.insert(A, "a")
    world.insert(B, "b")
    world.lock(A, "a")
    world.cache.set_floor("b", 2)
    world.cache.reset()
    assert world.usage() == {"a": (0, 0, 4, 0), "b": (0, 0, 2, 0)}
    assert (world.cache.evictable_size(), world.cache.protected_size()) == (0, 0)
    world.insert(A, "a")
    assert world.cache.evictable_size() == 6


def test_negative_floors_are_refused():
    message = "floor must not be negative, got -1"
    world = World(namespace_floors={"a": 3})
    with pytest.raises(ValueError, match=f"^{message}$"):
        world.cache.set_floor("a", -1)
    assert world.usage() == {"a": (0, 0, 3, 0)}
    with pytest.raises(ValueError, match=f"^{message}$"):
        World(namespace_floors={"b": -1})


def test_a_disabled_cache_has_no_tokens():
    cache = RadixCache(None, None, 1, disable=True, namespace_floors={"a": 3})
    cache.insert(RadixKey([1, 2, 3, 4], "a"))
    cache.evict(10)
    assert all(use.total == 0 for use in cache.namespace_usage().values())
    assert (cache.evictable_size(), cache.protected_size()) == (0, 0)


def test_the_dict_that_was_given_is_not_kept():
    floors = {"a": 4}
    world = World(namespace_floors=floors)
    world.insert(A, "a")
    floors["a"] = 9
    world.cache.set_floor("b", 1)
    assert floors == {"a": 9}
    assert world.cache.evictable_size() == 6


class NoWalk(dict):
    def _walked(self, *_):
        raise AssertionError("the tree was walked")

    __iter__ = values = items = _walked


def test_sizes_do_not_walk_the_tree():
    world = World(namespace_floors={"a": 4, "b": 3})
    world.insert(A, "a")
    world.insert(B, "b")
    world.lock(B[:5], "b")
    root = world.cache.root_node
    root.children = NoWalk(root.children)
    assert (world.cache.evictable_size(), world.cache.protected_size()) == (21, 9)
    world.insert([7, 8, 9], "c")
    assert (world.cache.evictable_size(), world.cache.protected_size()) == (24, 9)
