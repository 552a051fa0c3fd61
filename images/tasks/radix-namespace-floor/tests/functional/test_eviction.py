"""What `evict` takes when namespaces have floors, and in which order."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from world import Mirror, World, audit  # noqa: E402

A = list(range(100, 110))
B = list(range(200, 220))
ALL = 10**9


def test_another_tenant_pays():
    world = World(namespace_floors={"small": 10})
    world.insert(A, "small")
    slots = world.insert(B, "big")
    assert world.evict(15) == slots
    assert len(world.matched(A, "small")) == 10
    audit(world, {"small": 10})


def test_less_is_freed_than_was_asked_for():
    world = World(namespace_floors={"a": 10, "b": 100})
    world.insert(A, "a")
    world.insert(B, "b")
    assert world.evict(ALL) == []
    audit(world, {"a": 10, "b": 100})


@pytest.mark.parametrize("floor", range(1, 10))
def test_only_the_tail_beyond_the_floor_goes(floor):
    world = World(namespace_floors={"a": floor})
    slots = world.insert(A, "a")
    assert world.evict(1) == slots[floor:]
    assert world.matched(A, "a") == slots[:floor]
    audit(world, {"a": floor})
    assert world.evict(ALL) == []


@pytest.mark.parametrize("floor, kept", [(1, 4), (4, 4), (9, 12), (16, 16), (18, 20)])
def test_tails_are_whole_pages(floor, kept):
    world = World(page_size=4, namespace_floors={"a": floor})
    slots = world.insert(B, "a")
    assert world.evict(1) == slots[kept:]
    assert world.matched(B, "a") == slots[:kept]
    audit(world, {"a": kept})


def test_without_need_a_leaf_still_goes_whole():
    world = World(namespace_floors={"a": 3})
    old = world.insert([1] + A, "a")
    world.insert([2] + B, "a")
    world.insert(B, "free")
    assert sorted(world.evict(1)) == sorted(old)
    audit(world, {"a": 3})


def test_leaves_go_before_their_parents_down_to_the_floor():
    world = World(namespace_floors={"a": 8})
    trunk = world.insert(A, "a")
    left = world.insert(A + [1, 2, 3], "a")[10:]
    right = world.insert(A + [4, 5, 6], "a")[10:]
    assert world.evict(1) == left
    assert world.evict(1) == right
    assert world.evict(1) == trunk[8:]
    assert world.evict(1) == []
    assert world.matched(A, "a") == trunk[:8]
    audit(world, {"a": 8})


def test_one_call_takes_leaf_parent_and_tail():
    world = World(namespace_floors={"a": 5})
    trunk = world.insert(A, "a")
    leaf = world.insert(A + [1, 2, 3], "a")[10:]
    other = world.insert(B)
    world.match(B)
    assert world.evict(8) == leaf + trunk[5:]
    assert world.evict(1) == other
    audit(world, {"a": 5})


def test_what_stays_keeps_its_place_in_the_order():
    world = World(namespace_floors={"a": 4})
    first = world.insert(A, "a")
    second = world.insert(B, "b")
    assert world.evict(1) == first[4:]
    world.cache.set_floor("a", 0)
    assert world.evict(1) == first[:4]
    assert world.evict(1) == second


def test_what_stays_keeps_its_place_under_lfu():
    world = World(namespace_floors={"a": 4}, eviction_policy="lfu")
    first = world.insert(A, "a")
    second = world.insert(B, "b")
    for tokens, namespace, hits in ((A, "a", 5), (B, "b", 9)):
        world.match(tokens, namespace).last_device_node.hit_count = hits
    assert world.evict(1) == first[4:]
    third = world.insert([1, 2, 3], "c")
    world.match([1, 2, 3], "c").last_device_node.hit_count = 7
    world.cache.set_floor("a", 0)
    assert world.evict(1) == first[:4]
    assert world.evict(1) == third
    assert world.evict(1) == second


@pytest.mark.parametrize("locked", [0, 2, 6, 7, 9, 10])
def test_locked_tokens_are_part_of_what_is_kept(locked):
    world = World(namespace_floors={"a": 7})
    slots = world.insert(A, "a")
    if locked:
        world.lock(A[:locked], "a")
    kept = max(7, locked)
    assert world.cache.evictable_size() == 10 - kept
    assert world.evict(ALL) == slots[kept:]
    audit(world, {"a": 7})


def test_unlocking_brings_tokens_back_but_not_below_the_floor():
    world = World(namespace_floors={"a": 7})
    slots = world.insert(A, "a")
    node = world.lock(A, "a")
    assert world.evict(ALL) == []
    world.cache.dec_lock_ref(node)
    assert world.cache.evictable_size() == 3
    assert world.evict(ALL) == slots[7:]


def test_a_node_that_lost_its_tail_can_be_locked_and_grown():
    world = World(namespace_floors={"a": 4})
    slots = world.insert(A, "a")
    world.evict(1)
    node = world.lock(A, "a")
    audit(world, {"a": 4})
    again = world.insert(A, "a")
    assert again[:4] == slots[:4]
    audit(world, {"a": 4})
    world.cache.dec_lock_ref(node)
    assert len(world.evict(ALL)) == 6
    audit(world, {"a": 4})


def test_no_namespace_and_the_empty_one_have_floors_of_their_own():
    world = World(namespace_floors={None: 2, "": 5})
    plain = world.insert(A)
    empty = world.insert(A, "")
    assert world.evict(ALL) == plain[2:] + empty[5:]
    audit(world, {None: 2, "": 5})


def test_eagle_keys_are_counted_in_bigrams():
    world = World(is_eagle=True, namespace_floors={"a": 4})
    slots = world.insert(A, "a")
    assert world.usage() == {"a": (9, 0, 4, 5)}
    assert world.evict(1) == slots[4:]
    assert world.matched(A, "a") == slots[:4]


@pytest.mark.parametrize("page_size", [1, 4])
def test_events_name_the_removed_blocks_and_no_others(page_size):
    world = World(
        page_size=page_size, enable_kv_cache_events=True, namespace_floors={"a": 8}
    )
    mirror = Mirror()
    world.insert(B, "a")
    world.insert(B[:12] + A[:8], "a")
    mirror.follow(world.cache.take_events())
    mirror.check(world.cache)
    for _ in range(4):
        freed = len(world.evict(1))
        events = world.cache.take_events()
        assert {type(event).__name__ for event in events} <= {"BlockRemoved"}
        removed = sum(len(event.block_hashes) for event in events)
        assert removed * page_size == freed
        mirror.follow(events)
        mirror.check(world.cache)
    assert world.usage()["a"] == (8, 0, 8, 0)


def test_evicting_nothing_takes_nothing():
    world = World(namespace_floors={"a": 4})
    world.insert(A, "a")
    assert world.evict(0) == []
    audit(world, {"a": 4})
