"""A radix cache on the real allocator, and an audit that finds every figure anew by walking the tree."""

from collections import Counter, defaultdict
from types import SimpleNamespace

import torch

from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey


class Pool(TokenToKVPoolAllocator):
    """Counts what is freed; freeing a slot twice is an error."""

    def __init__(self, size=4096):
        self.freed = []
        super().__init__(size, torch.int64, "cpu", None, False)

    def free(self, indices):
        self.freed.extend(indices.tolist())
        super().free(indices)
        slots = torch.cat((self.free_pages, self.release_pages)).tolist()
        assert len(slots) == len(set(slots)), "a slot was freed twice"

    def take_freed(self):
        freed, self.freed = self.freed, []
        return freed


class World:
    def __init__(self, page_size=1, pool_size=4096, **options):
        self.pool = Pool(pool_size)
        self.cache = RadixCache(None, self.pool, page_size, **options)

    def insert(self, tokens, namespace=None):
        """Cache a sequence. Returns the slots that hold it."""
        have = len(self.match(tokens, namespace).device_indices)
        length = len(tokens) - 1 if self.cache.is_eagle else len(tokens)
        new = self.pool.alloc(length - have)
        slots = torch.cat((self.match(tokens, namespace).device_indices, new))
        assert self.cache.insert(RadixKey(list(tokens), namespace), slots) == have
        return slots.tolist()

    def match(self, tokens, namespace=None):
        return self.cache.match_prefix(RadixKey(list(tokens), namespace))

    def matched(self, tokens, namespace=None):
        return self.match(tokens, namespace).device_indices.tolist()

    def lock(self, tokens, namespace=None):
        node = self.match(tokens, namespace).last_device_node
        self.cache.inc_lock_ref(node)
        return node

    def evict(self, num_tokens):
        """Returns the slots that were freed."""
        self.pool.take_freed()
        self.cache.evict(num_tokens)
        return self.pool.take_freed()

    def usage(self):
        return {
            namespace: (use.total, use.locked, use.floor, use.evictable)
            for namespace, use in self.cache.namespace_usage().items()
        }


def nodes(cache):
    stack = list(cache.root_node.children.values())
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        yield node


def walk(cache):
    """{namespace: [total, locked]} from the tree itself."""
    found = defaultdict(lambda: [0, 0])
    for node in nodes(cache):
        assert len(node.key) == len(node.value) > 0
        assert node.parent is cache.root_node or node.lock_ref <= node.parent.lock_ref
        found[node.key.extra_key][0] += len(node.key)
        found[node.key.extra_key][1] += len(node.key) * (node.lock_ref > 0)
    return found


def expected_usage(cache, floors):
    """What the books must say, with floors already rounded to pages."""
    found = walk(cache)
    expected = {}
    for namespace in {*found, *(n for n, floor in floors.items() if floor)}:
        total, locked = found[namespace] if namespace in found else (0, 0)
        floor = floors.get(namespace, 0)
        evictable = max(0, min(total - locked, total - floor))
        expected[namespace] = (total, locked, floor, evictable)
    return expected


def audit(world, floors):
    expected = expected_usage(world.cache, floors)
    assert world.usage() == expected
    total = sum(use[0] for use in expected.values())
    evictable = sum(use[3] for use in expected.values())
    assert world.cache.evictable_size() == evictable
    assert world.cache.protected_size() == total - evictable
    assert world.cache.total_size() == total


class Mirror:
    """Follows KV cache events as a router does."""

    def __init__(self):
        self.blocks = Counter()

    def follow(self, events):
        names = []
        for event in events:
            name = type(event).__name__
            names.append(name)
            if name == "AllBlocksCleared":
                self.blocks.clear()
            elif name == "BlockStored":
                self.blocks.update(event.block_hashes)
            else:
                self.blocks.subtract(event.block_hashes)
                assert min(self.blocks.values()) >= 0, "removed what was not stored"
        return names

    def check(self, cache):
        expected = Counter()
        for node in nodes(cache):
            for start in range(0, len(node.key), cache.page_size):
                page = node.key.token_ids[start : start + cache.page_size]
                expected[hash(tuple(page))] += 1
        assert +self.blocks == expected


def request(tokens, output, prefix, node, slot, namespace):
    return SimpleNamespace(
        origin_input_ids=list(tokens),
        output_ids=list(output),
        fill_ids=list(tokens),
        prefix_indices=prefix,
        last_node=node,
        last_matched_prefix_len=len(prefix),
        req_pool_idx=slot,
        extra_key=namespace,
    )
