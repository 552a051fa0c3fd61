"""Seeded traffic of several tenants: after every step the books agree with the tree, the pool and the events."""

import pathlib
import random
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from world import Mirror, World, audit, nodes, request, walk  # noqa: E402

from sglang.srt.mem_cache.memory_pool import ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402

TENANTS = [None, "", "lora-a", "lora-b"]
POOL = 600


class Traffic(World):
    def __init__(self, seed, page_size, **options):
        super().__init__(page_size, POOL, enable_kv_cache_events=True, **options)
        self.cache.req_to_token_pool = ReqToTokenPool(64, 256, "cpu", False)
        self.rng = random.Random(seed)
        self.running = []
        self.floors = {}
        self.mirror = Mirror()

    def step(self):
        action = self.rng.choice(["start", "start", "chunk", "finish", "floor", "evict"])
        getattr(self, action)()
        in_flight = sum(len(r.own) for r in self.running)
        cached = sum(total for total, _ in walk(self.cache).values())
        assert self.pool.available_size() + cached + in_flight == POOL
        audit(self, self.floors)
        self.mirror.follow(self.cache.take_events())
        self.mirror.check(self.cache)

    def need(self, count):
        if self.pool.available_size() < count:
            self.cache.evict(count - self.pool.available_size())
        return self.pool.alloc(count)

    def start(self):
        if len(self.running) >= 8:
            self.finish()
        tenant = self.rng.choice(TENANTS)
        size = self.cache.page_size
        tokens = [self.rng.randrange(3) for _ in range(self.rng.randrange(1, 12) * size)]
        match = self.cache.match_prefix(RadixKey(list(tokens), tenant))
        prefix, node = match.device_indices, match.last_device_node
        self.cache.inc_lock_ref(node)
        new = self.need(len(tokens) - len(prefix))
        if new is None:
            self.cache.dec_lock_ref(node)
            return
        slot = self.cache.req_to_token_pool.alloc(1)[0]
        row = torch.cat((prefix, new))
        self.cache.req_to_token_pool.write((slot, slice(0, len(row))), row)
        req = request(tokens, [7], prefix, node, slot, tenant)
        req.own = new
        self.running.append(req)

    def chunk(self):
        if self.running:
            req = self.rng.choice(self.running)
            self.cache.cache_unfinished_req(req)
            req.own = req.own[:0]

    def finish(self):
        if self.running:
            req = self.running.pop(self.rng.randrange(len(self.running)))
            self.cache.cache_finished_req(req)

    def floor(self):
        tenant = self.rng.choice(TENANTS)
        floor = self.rng.choice([0, 5, 20, 60])
        self.cache.set_floor(tenant, floor)
        size = self.cache.page_size
        self.floors[tenant] = -(-floor // size) * size

    def evict(self, num_tokens=None):
        before = {tenant: total for tenant, (total, _) in walk(self.cache).items()}
        evictable = self.cache.evictable_size()
        asked = self.rng.randrange(1, 80) if num_tokens is None else num_tokens
        freed = len(super().evict(asked))
        assert freed <= evictable
        assert freed >= min(asked, evictable)
        after = walk(self.cache)
        for tenant, total in before.items():
            floor = min(total, self.floors.get(tenant, 0))
            assert (after[tenant][0] if tenant in after else 0) >= floor


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("seed", range(6))
def test_traffic(seed, page_size, policy):
    traffic = Traffic(seed, page_size, eviction_policy=policy)
    for _ in range(150):
        traffic.step()
    while len(traffic.running) > 3:
        traffic.finish()
    for tenant in TENANTS:
        traffic.floors[tenant] = 4
        traffic.cache.set_floor(tenant, 4)
    audit(traffic, traffic.floors)
    evictable = traffic.cache.evictable_size()
    assert evictable > 0
    before = traffic.pool.available_size()
    traffic.evict(10**9)
    assert traffic.pool.available_size() - before == evictable
    assert traffic.cache.evictable_size() == 0
    while traffic.running:
        traffic.finish()
    for tenant in TENANTS:
        traffic.cache.set_floor(tenant, 0)
    traffic.floors.clear()
    traffic.evict(10**9)
    assert list(nodes(traffic.cache)) == []
    assert traffic.pool.available_size() == POOL
    assert traffic.usage() == {}
