"""The real chat-completions handler on a scripted model.

`serving_chat` and its base need packages that this machine has no use for (torch, fastapi, ...). The modules that cannot be
imported are replaced by stand-ins before the handler is imported; protocol, parsers and the handler itself are the real ones.
"""

import asyncio
import importlib.util
import json
import sys
import types
from unittest.mock import MagicMock


class Response:
    """Stands for ORJSONResponse and StreamingResponse alike."""

    def __init__(self, content=None, status_code=200, **_):
        self.content = content
        self.status_code = status_code


class HTTPException(Exception):
    def __init__(self, status_code, detail=""):
        super().__init__(detail)
        self.status_code = status_code
        self.detail = detail


class GenerateReqInput:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def _stand_in(name, **attributes):
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    module.__path__ = []
    module.__getattr__ = _anything
    sys.modules[name] = module


def _anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def _import_handler():
    _stand_in("fastapi", Request=object, HTTPException=HTTPException)
    _stand_in("fastapi.responses", ORJSONResponse=Response, StreamingResponse=Response)
    _stand_in(
        "jsonschema",
        Draft202012Validator=MagicMock(),
        SchemaError=type("SchemaError", (Exception,), {}),
    )
    for name in ("jinja2", "orjson"):
        if importlib.util.find_spec(name) is None:
            _stand_in(name)
    _stand_in(
        "sglang.srt.entrypoints.openai.encoding_dsv32",
        DS32EncodingError=type("DS32EncodingError", (Exception,), {}),
    )
    _stand_in("sglang.srt.managers.io_struct", GenerateReqInput=GenerateReqInput)
    _stand_in("sglang.srt.server_args")
    _stand_in("sglang.srt.parser.conversation")
    _stand_in("sglang.srt.parser.jinja_template_utils")
    from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat

    return OpenAIServingChat


OpenAIServingChat = _import_handler()

from sglang.srt.entrypoints.openai.protocol import (  # noqa: E402
    ChatCompletionRequest,
    MessageProcessingResult,
)


class ScriptedModel:
    """A tokenizer manager whose model says `outputs[index]`, each a list of pieces."""

    def __init__(self, outputs, reasoning_parser, tool_call_parser):
        self.outputs = outputs
        self.server_args = types.SimpleNamespace(
            reasoning_parser=reasoning_parser,
            tool_call_parser=tool_call_parser,
            context_length=None,
            allow_auto_truncate=False,
            enable_cache_report=False,
            tokenizer_metrics_allowed_custom_labels=None,
        )
        self.model_config = MagicMock()
        self.model_config.get_default_sampling_params.return_value = {}
        self.model_config.hf_config.architectures = []
        self.model_config.is_multimodal = False
        self.tokenizer = MagicMock()
        self.calls = 0

    def create_abort_task(self, _):
        return None

    async def generate_request(self, adapted_request, _):
        self.calls += 1
        if not adapted_request.stream:
            yield [
                {"index": index, "text": "".join(pieces), "meta_info": _meta("stop")}
                for index, pieces in enumerate(self.outputs)
            ]
            return
        for step in range(max(len(pieces) for pieces in self.outputs)):
            for index, pieces in enumerate(self.outputs):
                if step < len(pieces):
                    last = step == len(pieces) - 1
                    yield {
                        "index": index,
                        "text": "".join(pieces[: step + 1]),
                        "meta_info": _meta("stop" if last else None),
                    }


def _meta(finish):
    return {
        "id": "chatcmpl-1",
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "cached_tokens": 0,
        "weight_version": "default",
        "finish_reason": {"type": finish} if finish else None,
    }


class ChatServer:
    def __init__(self, *outputs, reasoning_parser=None, tool_call_parser=None):
        self.model = ScriptedModel(outputs, reasoning_parser, tool_call_parser)
        templates = types.SimpleNamespace(force_reasoning=False)
        self.handler = OpenAIServingChat(self.model, templates)
        self.handler._process_messages = lambda *_: MessageProcessingResult(
            prompt="",
            prompt_ids=[1],
            image_data=None,
            audio_data=None,
            video_data=None,
            modalities=[],
            stop=[],
        )

    def post(self, **fields):
        """A plain request. Returns the response model, or a Response with an error status."""
        return asyncio.run(self._answer(fields))

    def stream(self, **fields):
        """A streamed request. Returns its choices in the order of arrival."""
        return asyncio.run(self._events(fields))

    async def _answer(self, fields):
        fields.setdefault("messages", [{"role": "user", "content": "hi"}])
        return await self.handler.handle_request(ChatCompletionRequest(**fields), None)

    async def _events(self, fields):
        response = await self._answer({**fields, "stream": True})
        assert response.status_code == 200, response.content
        choices = []
        async for line in response.content:
            payload = line.removeprefix("data: ").strip()
            if payload != "[DONE]":
                choices += json.loads(payload)["choices"]
        return choices


def collect(choices, index=0):
    """What a client puts together: (reasoning, content, finish reason). Nothing may follow the finish reason."""
    reasoning = content = ""
    finish = None
    for choice in choices:
        if choice["index"] != index:
            continue
        delta = choice["delta"]
        piece = (delta.get("reasoning_content") or "", delta.get("content") or "")
        assert finish is None or piece == ("", ""), f"text after the finish: {piece}"
        reasoning += piece[0]
        content += piece[1]
        finish = choice["finish_reason"] or finish
    return reasoning, content, finish
