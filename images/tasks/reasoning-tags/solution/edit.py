"""Hook the two new modules into the tree. Every edit names one short anchor line and is skipped if already made."""

import pathlib
import sys

root = pathlib.Path(sys.argv[1])


class Edits:
    def __init__(self, path):
        self.path = root / path
        self.text = self.path.read_text(encoding="utf-8")

    def _at(self, anchor):
        # The anchor is a whole line, or the beginning of one; its first occurrence counts.
        index = self.text.find("\n" + anchor)
        if index < 0:
            sys.exit(f"{self.path}: anchor not found: {anchor.strip()}")
        return index + 1

    def before(self, anchor, new):
        if new not in self.text:
            index = self._at(anchor)
            self.text = self.text[:index] + new + self.text[index:]

    def after(self, anchor, new):
        if new not in self.text:
            index = self.text.index("\n", self._at(anchor)) + 1
            self.text = self.text[:index] + new + self.text[index:]

    def replace(self, line, new):
        if new not in self.text:
            index = self._at(line)
            self.text = self.text[:index] + new + self.text[index + len(line) :]

    def save(self):
        self.path.write_text(self.text, encoding="utf-8")


protocol = Edits("entrypoints/openai/protocol.py")
protocol.before(
    "from sglang.utils import",
    """from sglang.srt.entrypoints.openai.reasoning_tags import (
    ReasoningTags,
    check_reasoning_tags_conflicts,
    parse_reasoning_tags,
)
""",
)
protocol.after(
    "    separate_reasoning: bool",
    """    # The pair of textual tags between which the model was asked to reason
    reasoning_tags: Optional[ReasoningTags] = None
""",
)
protocol.before(
    "    def to_sampling_params(",
    """    @field_validator("reasoning_tags", mode="before")
    @classmethod
    def normalize_reasoning_tags(cls, value):
        return parse_reasoning_tags(value)

    @model_validator(mode="after")
    def validate_reasoning_tags_conflicts(self):
        check_reasoning_tags_conflicts(self)
        return self

""",
)
protocol.save()

parser = Edits("parser/reasoning_parser.py")
parser.after(
    "from sglang.srt.entrypoints.openai.protocol import",
    """from sglang.srt.entrypoints.openai.reasoning_tags import unsupported_parser_message
""",
)
parser.after(
    "from sglang.srt.parser.harmony_parser import",
    """from sglang.srt.parser.tag_splitter import TagSplitter
""",
)
parser.before(
    "    def detect_and_parse(",
    '''    def flush(self) -> StreamingParseResult:
        """Text still held back when the stream has ended."""
        return StreamingParseResult()

''',
)
parser.before(
    "class ReasoningParser:",
    '''class TaggedReasoningDetector(BaseReasoningFormatDetector):
    """
    Detector for the tags that a request names itself (`reasoning_tags`).
    The tags are ordinary text: they may be cut anywhere, and blocks may appear anywhere.
    """

    def __init__(
        self,
        think_start_token: str,
        think_end_token: str,
        stream_reasoning: bool = True,
        previous_content: str = "",
    ):
        super().__init__(
            think_start_token, think_end_token, stream_reasoning=stream_reasoning
        )
        prefix = TagSplitter(think_start_token, think_end_token)
        prefix.feed(previous_content)
        self._in_reasoning = prefix.inside
        self._splitter = self._new_splitter()

    def _new_splitter(self) -> TagSplitter:
        splitter = TagSplitter(
            self.think_start_token,
            self.think_end_token,
            whole_blocks=not self.stream_reasoning,
        )
        splitter.inside = self._in_reasoning
        return splitter

    def detect_and_parse(self, text: str) -> StreamingParseResult:
        splitter = self._new_splitter()
        reasoning_head, normal_head = splitter.feed(text)
        reasoning_tail, normal_tail = splitter.flush()
        return StreamingParseResult(
            normal_head + normal_tail, reasoning_head + reasoning_tail
        )

    def parse_streaming_increment(self, new_text: str) -> StreamingParseResult:
        reasoning_text, normal_text = self._splitter.feed(new_text)
        return StreamingParseResult(normal_text, reasoning_text)

    def flush(self) -> StreamingParseResult:
        reasoning_text, normal_text = self._splitter.flush()
        return StreamingParseResult(normal_text, reasoning_text)


''',
)
parser.before(
    "        if not model_type:",
    """        if (
            isinstance(request, ChatCompletionRequest)
            and request.reasoning_tags is not None
        ):
            self.detector = self._tagged_detector(model_type, stream_reasoning, request)
            return

""",
)
parser.before(
    "    def parse_non_stream(",
    '''    def _tagged_detector(
        self,
        model_type: Optional[str],
        stream_reasoning: bool,
        request: ChatCompletionRequest,
    ) -> TaggedReasoningDetector:
        if model_type and model_type.lower() not in self.DetectorMap:
            raise ValueError(f"Unsupported model type: {model_type}")
        if message := unsupported_parser_message(request.reasoning_tags, model_type):
            raise ValueError(message)

        previous_content = None
        if request.continue_final_message and request.messages[-1].role == "assistant":
            previous_content = request.messages[-1].content
        return TaggedReasoningDetector(
            request.reasoning_tags.start,
            request.reasoning_tags.end,
            stream_reasoning=stream_reasoning,
            previous_content=(
                previous_content if isinstance(previous_content, str) else ""
            ),
        )

    def flush(self) -> Tuple[str, str]:
        """End of a stream: what is still held back, as (reasoning, normal)"""
        ret = self.detector.flush()
        return ret.reasoning_text, ret.normal_text

''',
)
parser.save()

serving = Edits("entrypoints/openai/serving_chat.py")
serving.before(
    "from sglang.srt.entrypoints.openai.serving_base import",
    """from sglang.srt.entrypoints.openai.reasoning_tags import unsupported_parser_message
""",
)
serving.after(
    '            return "Messages cannot be empty."',
    """
        unsupported_parser = unsupported_parser_message(
            request.reasoning_tags, self.reasoning_parser
        )
        if unsupported_parser:
            return unsupported_parser
""",
)
serving.replace(
    "                if self.reasoning_parser and request.separate_reasoning:",
    "                if self._separates_reasoning(request):",
)
serving.replace(
    "            if reasoning_parser and request.separate_reasoning:",
    "            if self._separates_reasoning(request):  # by tags or by parser",
)
serving.before(
    "    def _process_reasoning_stream(",
    '''    def _separates_reasoning(self, request: ChatCompletionRequest) -> bool:
        """Whether reasoning is to be told apart, by the request's tags or the server's parser"""
        return bool(
            (self.reasoning_parser or request.reasoning_tags)
            and request.separate_reasoning
        )

''',
)
serving.replace(
    "        return reasoning_parser.parse_stream_chunk(delta)",
    """        reasoning_text, normal_text = reasoning_parser.parse_stream_chunk(delta)
        if content["meta_info"]["finish_reason"]:
            reasoning_rest, normal_rest = reasoning_parser.flush()
            reasoning_text += reasoning_rest
            normal_text += normal_rest
        return reasoning_text, normal_text""",
)
serving.save()
