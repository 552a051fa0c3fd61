"""The `reasoning_tags` request parameter: its shapes, its limits and its error messages."""

import re
from typing import Any, Optional

from pydantic import BaseModel

MAX_TAG_LENGTH = 64

# These parsers do more than split at two tags, so a request cannot replace them.
PARSERS_WITH_FIXED_TAGS = frozenset({"gpt-oss", "minimax-append-think"})

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class ReasoningTags(BaseModel):
    start: str
    end: str


def parse_reasoning_tags(value: Any) -> Any:
    """Check and normalise what the client sent. Returns None or a dict of two stripped, distinct tags."""
    if value is None:
        return None
    if isinstance(value, ReasoningTags):
        value = value.model_dump()
    if isinstance(value, str):
        name = value.strip()
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"reasoning_tags name must match {_NAME.pattern}, got {name!r}"
            )
        value = {"start": f"<{name}>", "end": f"</{name}>"}
    if not isinstance(value, dict):
        raise ValueError(
            "reasoning_tags must be a tag name or an object with 'start' and 'end', "
            f"got {type(value).__name__}"
        )
    if set(value) != {"start", "end"}:
        raise ValueError(
            "reasoning_tags must have exactly the keys 'start' and 'end', "
            f"got {sorted(value, key=str)}"
        )
    tags = {key: _parse_tag(key, value[key]) for key in ("start", "end")}
    if tags["start"] in tags["end"] or tags["end"] in tags["start"]:
        raise ValueError(
            "reasoning_tags.start and reasoning_tags.end must not contain each other"
        )
    return tags


def _parse_tag(key: str, tag: Any) -> str:
    if not isinstance(tag, str):
        raise ValueError(
            f"reasoning_tags.{key} must be a string, got {type(tag).__name__}"
        )
    tag = tag.strip()
    if not tag:
        raise ValueError(f"reasoning_tags.{key} must not be empty")
    if len(tag) > MAX_TAG_LENGTH:
        raise ValueError(
            f"reasoning_tags.{key} must be at most {MAX_TAG_LENGTH} characters, got {len(tag)}"
        )
    return tag


def check_reasoning_tags_conflicts(request: Any) -> None:
    """Refuse parameters that make the tags meaningless or impossible to generate."""
    if request.reasoning_tags is None:
        return
    if not request.separate_reasoning:
        raise ValueError("reasoning_tags requires separate_reasoning to be true")
    response_format = request.response_format
    constrained = response_format is not None and response_format.type != "text"
    if request.regex is not None or request.ebnf is not None or constrained:
        raise ValueError(
            "reasoning_tags cannot be combined with regex, ebnf "
            "or a response_format other than text"
        )


def unsupported_parser_message(
    reasoning_tags: Optional[ReasoningTags], parser_name: Optional[str]
) -> Optional[str]:
    """The error for a request with tags on a server whose parser cannot be replaced, or None."""
    if reasoning_tags is None or not parser_name:
        return None
    if parser_name.lower() not in PARSERS_WITH_FIXED_TAGS:
        return None
    return f"reasoning_tags is not supported with reasoning parser '{parser_name}'"
