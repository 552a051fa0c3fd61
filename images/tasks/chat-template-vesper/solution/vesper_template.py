"""The chat template of Vesper-1: numbered turns, continued messages, thoughts that are left out later on."""

import re
from typing import Dict, List, Optional, Tuple

END = "<|end|>\n"
_THOUGHT = re.compile(r"<\|think\|>.*?(?:<\|/think\|>\s*|\Z)", re.DOTALL)


def continues(message: Dict, previous: Optional[Dict]) -> bool:
    if previous is None or message["role"] != previous["role"]:
        return False
    if message["role"] != "tool":
        return True
    call_id = message.get("tool_call_id")
    return call_id is not None and call_id == previous.get("tool_call_id")


def headers(messages: List[Dict]) -> List[Tuple[int, str]]:
    """(turn, header line) of each message."""
    found = []
    turn = tools = 0
    previous = None
    for message in messages:
        role = message["role"]
        if continues(message, previous):
            header = "more"
        elif role == "system":
            header = "note" if found else "system"
        elif role == "user":
            turn, tools = turn + 1, 0
            header = f"user {turn}"
        elif role == "assistant":
            header = f"assistant {turn}"
        elif role == "tool":
            tools += 1
            header = f"tool {turn}.{tools}"
        else:
            raise ValueError(f"Vesper has no role {role!r}")
        found.append((turn, f"<|{header}|>\n"))
        previous = message
    return found


def match_vesper(model_path: str) -> Optional[str]:
    parts = model_path.rstrip("/").rsplit("/", 1)[-1].lower().split("-")
    if parts[:2] == ["vesper", "1"] and "base" not in parts:
        return "vesper-1"
    return None


def vesper_chat_template(base):
    class VesperChatTemplate(base):
        def get_prefix_and_suffix(
            self, role: str, hist_messages: List[Dict]
        ) -> Tuple[str, str]:
            return self._around({"role": role}, hist_messages)

        def _around(self, message: Dict, history: List[Dict]) -> Tuple[str, str]:
            _, header = headers([*history, message])[-1]
            return ("" if history else "[vesper/1]\n") + header, END

        def get_prompt(self, messages: List[Dict]) -> str:
            turns = [turn for turn, _ in headers(messages)]
            prompt = ""
            for i, message in enumerate(messages):
                content = message["content"]
                if content is None:
                    first = i == 0 and message["role"] == "system"
                    content = self.default_system_prompt if first else ""
                if message["role"] == "assistant" and turns[i] < turns[-1]:
                    content = _THOUGHT.sub("", content)
                prefix, suffix = self._around(message, messages[:i])
                prompt += f"{prefix}{content}{suffix}"
            return prompt

    return VesperChatTemplate(
        name="vesper-1",
        default_system_prompt="You are Vesper, a helpful assistant.",
        role_prefix_and_suffix={},
        stop_str=("<|end|>",),
        image_token="<|image|>",
        audio_token="<|audio|>",
    )
