"""RadixCache without floors: order, locks, events, keys, requests, and subclasses that keep books of their own."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from world import Mirror, World, request, walk  # noqa: E402

from sglang.srt.mem_cache.memory_pool import ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey, TreeNode  # noqa: E402

A = list(range(100, 110))
B = list(range(200, 220))
ALL = 10**9


def sizes(world):
    cache = world.cache
    return cache.evictable_size(), cache.protected_size(), cache.total_size()


def test_the_least_recently_used_leaf_goes_first():
    world = World()
    first, second = world.insert(A, "a"), world.insert(B, "b")
    third = world.insert([1, 2, 3])
    world.match(A, "a")
    assert world.evict(1) == second
    assert world.evict(1) == third
    assert world.evict(1) == first
    assert sizes(world) == (0, 0, 0)


def test_the_least_frequently_used_leaf_goes_first():
    world = World(eviction_policy="lfu")
    slots = {}
    for name, hits in (("a", 3), ("b", 1), ("c", 2)):
        slots[name] = world.insert(A, name)
        world.match(A, name).last_device_node.hit_count = hits
    assert [world.evict(1) for _ in "abc"] == [slots["b"], slots["c"], slots["a"]]


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="Unknown eviction policy"):
        World(eviction_policy="fifo")


def test_leaves_go_whole_and_parents_after_them():
    world = World()
    trunk = world.insert(A)
    leaf = world.insert(A + [1, 2, 3])[10:]
    assert world.evict(1) == leaf
    assert world.evict(4) == trunk


def test_locked_nodes_and_their_parents_stay():
    world = World()
    world.insert(A + [1, 2])
    other = world.insert(A + [3, 4])[10:]
    node = world.lock(A + [1, 2])
    assert sizes(world) == (2, 12, 14)
    assert world.evict(ALL) == other
    assert sizes(world) == (0, 12, 12)
    world.cache.dec_lock_ref(node)
    assert len(world.evict(ALL)) == 12


def test_lock_calls_return_the_change():
    world = World()
    world.insert(A)
    node = world.match(A[:4]).last_device_node
    leaf = world.match(A).last_device_node
    assert world.cache.inc_lock_ref(node) == -4
    assert world.cache.inc_lock_ref(leaf) == -6
    assert world.cache.inc_lock_ref(leaf) == 0
    assert world.cache.dec_lock_ref(leaf) == 0
    assert world.cache.dec_lock_ref(leaf) == 6
    assert world.cache.dec_lock_ref(node) == 4
    assert world.cache.inc_lock_ref(world.cache.root_node) == 0


def test_namespaces_do_not_share():
    world = World()
    plain = world.insert(A)
    assert world.matched(A, "a") == []
    assert world.matched(A) == plain
    assert world.matched(A[:3] + [0]) == plain[:3]


@pytest.mark.parametrize("page_size", [2, 4])
def test_matches_end_at_pages(page_size):
    world = World(page_size=page_size)
    slots = world.insert(B)
    assert world.matched(B[:7]) == slots[: 7 // page_size * page_size]
    assert world.matched(B[: page_size - 1]) == []


def test_eagle_keys():
    world = World(is_eagle=True)
    slots = world.insert(A)
    assert sizes(world) == (9, 0, 9)
    assert world.matched(A[:5]) == slots[:4]


@pytest.mark.parametrize("page_size", [1, 2])
def test_events_follow_the_tree(page_size):
    world = World(page_size=page_size, enable_kv_cache_events=True)
    mirror = Mirror()
    assert mirror.follow(world.cache.take_events()) == ["AllBlocksCleared"]
    world.insert(A)
    world.insert(A[:4] + [1, 2])
    mirror.follow(world.cache.take_events())
    mirror.check(world.cache)
    world.evict(3)
    assert set(mirror.follow(world.cache.take_events())) == {"BlockRemoved"}
    mirror.check(world.cache)
    world.cache.reset()
    mirror.follow(world.cache.take_events())
    mirror.check(world.cache)
    assert world.cache.take_events() == []


def test_no_events_unless_asked_for():
    world = World()
    world.insert(A)
    assert world.cache.take_events() == []


def test_a_reset_empties_the_cache():
    world = World()
    world.insert(A)
    world.lock(A)
    world.cache.reset()
    assert sizes(world) == (0, 0, 0)
    assert world.matched(A) == []


def test_a_disabled_cache_does_nothing():
    cache = RadixCache(None, None, 1, disable=True)
    assert cache.insert(RadixKey([1, 2])) == 0
    assert len(cache.match_prefix(RadixKey([1, 2])).device_indices) == 0
    assert cache.inc_lock_ref(cache.root_node) == 0
    cache.evict(5)
    assert (cache.evictable_size(), cache.protected_size()) == (0, 0)


def test_positional_parameters_stay_where_they_are():
    cache = RadixCache(None, None, 1, False, True, "lfu", True)
    assert (cache.page_size, cache.disable, cache.is_eagle) == (1, False, True)
    assert cache.enable_kv_cache_events


@pytest.mark.parametrize("page_size", [1, 4])
def test_a_request_from_prefill_to_the_end(page_size):
    world = World(page_size=page_size)
    cache = world.cache
    cache.req_to_token_pool = ReqToTokenPool(4, 64, "cpu", False)
    slots = world.insert(B[:8], "a")
    match = world.match(B, "a")
    cache.inc_lock_ref(match.last_device_node)
    new = world.pool.alloc(12)
    row = torch.cat((match.device_indices, new))
    slot = cache.req_to_token_pool.alloc(1)[0]
    cache.req_to_token_pool.write((slot, slice(0, 20)), row)
    req = request(B, [7], match.device_indices, match.last_device_node, slot, "a")
    cache.cache_unfinished_req(req)
    assert sizes(world) == (0, 20, 20)
    assert world.matched(B, "a") == slots + new.tolist()
    cache.cache_finished_req(req)
    assert sizes(world) == (20, 0, 20)
    assert len(cache.req_to_token_pool.free_slots) == 4
    assert dict(walk(cache)) == {"a": [20, 0]}


class OwnBooks(RadixCache):
    """Inserts and deletes by itself, as the hierarchical cache does."""

    def _insert_helper(self, node, key, value):
        child = TreeNode()
        child.parent, child.key, child.value = node, key, value
        node.children[self.get_child_key_fn(key)] = child
        self.evictable_size_ += len(key)
        return 0

    def _delete_leaf(self, node):
        del node.parent.children[self.get_child_key_fn(node.key)]
        self.evictable_size_ -= len(node.key)


def test_a_subclass_with_books_of_its_own():
    world = World()
    cache = OwnBooks(None, world.pool, 1)
    for name in ("a", None):
        cache.insert(RadixKey(A, name), world.pool.alloc(10))
    node = cache.match_prefix(RadixKey(A[:4], "a")).last_device_node
    assert cache.inc_lock_ref(node) == -4
    assert (cache.evictable_size(), cache.protected_size()) == (16, 4)
    cache.evictable_size_ -= 6
    assert cache.evictable_size() == 10
    cache.evictable_size_ += 6
    cache.evict(ALL)
    assert (cache.evictable_size(), cache.protected_size()) == (0, 4)
    assert cache.dec_lock_ref(node) == 4
    cache.evict(ALL)
    assert (cache.evictable_size(), cache.total_size()) == (0, 0)


def test_the_tree_can_be_printed(capsys):
    world = World()
    world.insert(A)
    world.cache.pretty_print()
    assert "#tokens: 10" in capsys.readouterr().out


def test_all_values_flatten():
    world = World()
    slots = world.insert(A) + world.insert(B, "b")
    assert sorted(world.cache.all_values_flatten().tolist()) == sorted(slots)
