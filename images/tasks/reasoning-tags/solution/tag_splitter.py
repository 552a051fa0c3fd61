"""Split a text stream at a pair of textual tags, whatever the chunk boundaries are.

Nothing that may still become a tag is released, and nothing else is held back, unless whole blocks were asked for.
"""

from typing import List, Tuple


def _partial_suffix_length(text: str, tag: str) -> int:
    """Length of the longest proper prefix of `tag` that `text` ends with."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:length]):
            return length
    return 0


class TagSplitter:
    def __init__(self, start: str, end: str, whole_blocks: bool = False):
        self.start = start
        self.end = end
        self.whole_blocks = whole_blocks
        self.inside = False
        self._pending = ""  # received, may be the beginning of a tag
        self._block = ""  # released text of the open block, kept if whole_blocks
        self._needs_newline = False
        self._any_reasoning = False

    def feed(self, text: str) -> Tuple[str, str]:
        """Returns the (reasoning, normal) text that this chunk completes."""
        text = self._pending + text
        reasoning: List[str] = []
        normal: List[str] = []
        while True:
            tag = self.end if self.inside else self.start
            position = text.find(tag)
            if position < 0:
                break
            self._release(text[:position], reasoning, normal)
            self._toggle(reasoning)
            text = text[position + len(tag) :]
        keep = _partial_suffix_length(text, tag)
        self._release(text[: len(text) - keep], reasoning, normal)
        self._pending = text[len(text) - keep :]
        return "".join(reasoning), "".join(normal)

    def flush(self) -> Tuple[str, str]:
        """Returns all that is held back: the stream has ended."""
        reasoning: List[str] = []
        normal: List[str] = []
        pending, self._pending = self._pending, ""
        self._release(pending, reasoning, normal)
        self._release_block(reasoning)
        return "".join(reasoning), "".join(normal)

    def _release(self, text: str, reasoning: List[str], normal: List[str]) -> None:
        if not self.inside:
            normal.append(text)
        elif self.whole_blocks:
            self._block += text
        else:
            self._emit(text, reasoning)

    def _toggle(self, reasoning: List[str]) -> None:
        if self.inside:
            self._release_block(reasoning)
            self._needs_newline = self._any_reasoning
        self.inside = not self.inside

    def _release_block(self, reasoning: List[str]) -> None:
        block, self._block = self._block, ""
        self._emit(block, reasoning)

    def _emit(self, text: str, reasoning: List[str]) -> None:
        if not text:
            return
        if self._needs_newline:
            reasoning.append("\n")
            self._needs_newline = False
        reasoning.append(text)
        self._any_reasoning = True
