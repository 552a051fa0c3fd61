"""Hook the ledger into RadixCache. Every edit names short anchor lines and is skipped if already made."""

import pathlib
import sys

path = pathlib.Path(sys.argv[1])
text = path.read_text(encoding="utf-8")
if "namespace_floors" in text:
    sys.exit(0)


def find(anchor, start):
    index = text.find("\n" + anchor, text.index("\n" + start))
    if index < 0:
        sys.exit(f"{path}: anchor not found: {anchor.strip()}")
    return index + 1


def before(anchor, new, start="class RadixCache("):
    global text
    index = find(anchor, start)
    text = text[:index] + new + text[index:]


def after(anchor, new, start="class RadixCache("):
    global text
    index = text.index("\n", find(anchor, start)) + 1
    text = text[:index] + new + text[index:]


def replace(anchor, new, start="class RadixCache("):
    global text
    index = find(anchor, start)
    text = text[:index] + new + text[text.index("\n", index) + 1 :]


before(
    "from sglang.srt.mem_cache.memory_pool import",
    "from sglang.srt.mem_cache.namespace_floors import NamespaceLedger, NamespaceUsage\n",
    start="import heapq",
)
after(
    "        is_eagle: bool = False,",
    "        namespace_floors: Optional[Dict[Optional[str], int]] = None,\n",
)
after(
    "        self.is_eagle = is_eagle",
    "        self.namespace_ledger = NamespaceLedger(page_size, namespace_floors)\n",
)
after(
    "        self.protected_size_ = 0",
    "        self.namespace_ledger.clear()\n",
    start="    def reset(",
)

# evict: whole leaves, but for the one that would go below its namespace's floor
before(
    "            self.token_to_kv_pool_allocator.free(x.value)",
    """            room = self.namespace_ledger.above_floor(x.key.extra_key)
            if room is not None and room < len(x.key):
                if room > 0:
                    num_evicted += self._evict_tail(x, room)
                continue

""",
    start="    def evict(",
)
before(
    "    def inc_lock_ref(",
    '''    def _evict_tail(self, node: TreeNode, num_tokens: int) -> int:
        """Free the last tokens of a leaf; what stays keeps its node, and so its place in the order."""
        keep = len(node.key) - num_tokens
        tail = TreeNode()
        tail.parent = node
        tail.key, tail.value = node.key[keep:], node.value[keep:]
        node.key, node.value = node.key[:keep], node.value[:keep]
        self.token_to_kv_pool_allocator.free(tail.value)
        self.evictable_size_ -= num_tokens
        self.namespace_ledger.resize(node.key.extra_key, -num_tokens)
        self._record_remove_event(tail)
        return num_tokens

    def set_floor(self, extra_key: Optional[str], num_tokens: int):
        """Leave this many tokens of a namespace alone when evicting; 0 takes the floor away."""
        self.namespace_ledger.set_floor(extra_key, num_tokens)

    def namespace_usage(self) -> Dict[Optional[str], NamespaceUsage]:
        return self.namespace_ledger.usage()

''',
)
after(
    "                delta -= len(node.key)",
    "                self.namespace_ledger.lock(node.key.extra_key, len(node.key))\n",
    start="    def inc_lock_ref(",
)
after(
    "                delta += len(node.key)",
    "                self.namespace_ledger.lock(node.key.extra_key, -len(node.key))\n",
    start="    def dec_lock_ref(",
)
replace(
    "        return self.evictable_size_",
    "        return self.evictable_size_ - self.namespace_ledger.kept_in_all()\n",
)
replace(
    "        return self.protected_size_",
    "        return self.protected_size_ + self.namespace_ledger.kept_in_all()\n",
)
after(
    "            self.evictable_size_ += len(key)",
    "            self.namespace_ledger.resize(key.extra_key, len(key))\n",
    start="    def _insert_helper(",
)
after(
    "        self.evictable_size_ -= len(node.key)",
    "        self.namespace_ledger.resize(node.key.extra_key, -len(node.key))\n",
    start="    def _delete_leaf(",
)
text = text.replace(
    "from typing import TYPE_CHECKING, Any, Iterator,",
    "from typing import TYPE_CHECKING, Any, Dict, Iterator,",
    1,
)
path.write_text(text, encoding="utf-8")
