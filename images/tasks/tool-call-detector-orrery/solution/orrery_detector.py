import json
import logging
import re
from typing import Any, Dict, List, Optional, Tuple

from sglang.srt.entrypoints.openai.protocol import Tool
from sglang.srt.environ import envs
from sglang.srt.function_call.base_format_detector import BaseFormatDetector
from sglang.srt.function_call.core_types import (
    StreamingParseResult,
    StructureInfo,
    ToolCallItem,
    _GetInfoFunc,
)

logger = logging.getLogger(__name__)

HEADER = "@@call "
END = "@@end"
WHITESPACE = " \t\r\n"  # what JSON calls whitespace, and nothing else

_HEADER_LINE = re.compile(r"@@call ([A-Za-z0-9_.\-]+)[ \t]*\n")
_HEADER_LINE_PREFIX = re.compile(r"@@call (?:[A-Za-z0-9_.\-]+[ \t]*)?")
_HEADER_ANYWHERE = re.compile(r"^" + _HEADER_LINE.pattern, re.MULTILINE)


class _Scanner:
    """
    Cuts the model's output into events, whatever the chunks look like:
    ("text", str), ("open", name), ("body", str) and ("close", "").

    Markers count only at the start of a line. A JSON string cannot hold a raw line
    feed, so a marker can never be a part of valid arguments. What is held back is at
    most one line that can still turn out to be a marker.
    """

    def __init__(self):
        self.in_call = False
        self._held = ""
        self._at_line_start = True
        self._after_end = False

    def feed(self, text: str) -> List[Tuple[str, str]]:
        events: List[Tuple[str, str]] = []
        rest = self._held + text
        while rest:
            if self._after_end:
                rest = rest.lstrip(WHITESPACE)
                if not rest:
                    break
                self._after_end = False

            if self._at_line_start:
                header = _HEADER_LINE.match(rest)
                if header:
                    if self.in_call:  # the model left out the end marker
                        events.append(("close", ""))
                    events.append(("open", header.group(1)))
                    self.in_call = True
                    rest = rest[header.end() :]
                    continue
                if self.in_call and rest.startswith(END):
                    events.append(("close", ""))
                    self.in_call = False
                    self._after_end = True
                    rest = rest[len(END) :]
                    continue
                if self._may_become_marker(rest):
                    break
                self._at_line_start = False

            line_end = rest.find("\n") + 1
            piece = rest[:line_end] if line_end else rest
            rest = rest[len(piece) :]
            self._at_line_start = line_end > 0
            events.append(("body" if self.in_call else "text", piece))

        self._held = rest
        return events

    def finish(self) -> List[Tuple[str, str]]:
        """The text has ended: what was held back is no marker."""
        held, self._held = self._held, ""
        return [("body" if self.in_call else "text", held)] if held else []

    def _may_become_marker(self, rest: str) -> bool:
        if HEADER.startswith(rest) or _HEADER_LINE_PREFIX.fullmatch(rest):
            return True
        return self.in_call and END.startswith(rest)


def _load_arguments(body: str) -> Optional[Dict[str, Any]]:
    """The arguments of a body, or None where it is not one JSON object."""
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) else None


class OrreryDetector(BaseFormatDetector):
    """
    Detector for Orrery-1 models.

    Format:
        @@call get_weather
        {"city": "Paris", "days": 3}
        @@end

    Markers are plain text and count only at the start of a line. Several calls may
    follow each other, with text before, between and after them.
    """

    def __init__(self):
        super().__init__()
        self.bot_token = HEADER
        self.eot_token = END
        self._scanner = _Scanner()
        self._name: Optional[str] = None  # of the open call, None if it is skipped
        self._body = ""
        self._pending_whitespace = ""

    def has_tool_call(self, text: str) -> bool:
        return _HEADER_ANYWHERE.search(text) is not None

    def _is_forwarded(self, name: str, tools: List[Tool]) -> bool:
        if name in self._get_tool_indices(tools):
            return True
        logger.warning(f"Model attempted to call undefined function: {name}")
        return envs.SGLANG_FORWARD_UNKNOWN_TOOLS.get()

    def detect_and_parse(self, text: str, tools: List[Tool]) -> StreamingParseResult:
        scanner = _Scanner()
        normal_text = ""
        calls: List[ToolCallItem] = []
        name, body = "", ""

        def close(ended: bool) -> None:
            raw = body.strip(WHITESPACE)
            arguments = {} if ended and not raw else _load_arguments(raw)
            if arguments is None:
                logger.warning(f"Arguments of {name} are not a JSON object: {raw}")
            elif self._is_forwarded(name, tools):
                calls.append(
                    ToolCallItem(
                        tool_index=len(calls),
                        name=name,
                        parameters=json.dumps(arguments, ensure_ascii=False),
                    )
                )

        for kind, value in scanner.feed(text) + scanner.finish():
            if kind == "text":
                normal_text += value
            elif kind == "open":
                name, body = value, ""
            elif kind == "body":
                body += value
            else:
                close(ended=True)
        if scanner.in_call:
            close(ended=False)
        return StreamingParseResult(normal_text=normal_text, calls=calls)

    def parse_streaming_increment(
        self, new_text: str, tools: List[Tool]
    ) -> StreamingParseResult:
        normal_text = ""
        calls: List[ToolCallItem] = []
        for kind, value in self._scanner.feed(new_text):
            if kind == "text":
                normal_text += value
            elif kind == "open":
                self._name = value if self._is_forwarded(value, tools) else None
                self._body = ""
                self._pending_whitespace = ""
            elif kind == "body":
                calls.extend(self._stream_body(value))
            else:
                calls.extend(self._close_call())
        return StreamingParseResult(normal_text=normal_text, calls=calls)

    def _stream_body(self, piece: str) -> List[ToolCallItem]:
        if self._name is None:
            return []
        calls: List[ToolCallItem] = []
        if not self.current_tool_name_sent:
            piece = piece.lstrip(WHITESPACE)
            if not piece:
                return []
            if not piece.startswith("{"):
                logger.warning(f"Arguments of {self._name} are not a JSON object")
                self._name = None
                return []
            calls.append(self._start_call())

        piece = self._pending_whitespace + piece
        sendable = piece.rstrip(WHITESPACE)
        self._pending_whitespace = piece[len(sendable) :]
        if sendable:
            calls.append(self._send_arguments(sendable))
        return calls

    def _start_call(self) -> ToolCallItem:
        self.current_tool_id += 1
        self.current_tool_name_sent = True
        self.prev_tool_call_arr.append({"name": self._name, "arguments": {}})
        self.streamed_args_for_tool.append("")
        return ToolCallItem(
            tool_index=self.current_tool_id, name=self._name, parameters=""
        )

    def _send_arguments(self, text: str) -> ToolCallItem:
        self._body += text
        self.streamed_args_for_tool[self.current_tool_id] += text
        return ToolCallItem(tool_index=self.current_tool_id, parameters=text)

    def _close_call(self) -> List[ToolCallItem]:
        calls: List[ToolCallItem] = []
        if self._name is not None and not self.current_tool_name_sent:
            calls.append(self._start_call())
            calls.append(self._send_arguments("{}"))
        if self._name is not None:
            arguments = _load_arguments(self._body)
            if arguments is not None:
                self.prev_tool_call_arr[self.current_tool_id]["arguments"] = arguments
        self._name = None
        self.current_tool_name_sent = False
        return calls

    def structure_info(self) -> _GetInfoFunc:
        return lambda name: StructureInfo(
            begin=f"{HEADER}{name}\n",
            end=f"\n{END}",
            trigger=HEADER,
        )
