"""What is to be answered: a conversation, a text or token ids, out of a JSON body.

Floor 1, pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from backends.errors import RequestInvalid
from backends.openai.values import is_whole, refuse

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
ID_MAX: Final = 2**31 - 1  # ids are int32 in the engine


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    messages: tuple[Message, ...]


# A chat, a text, or token ids.
Prompt = Chat | str | tuple[int, ...]


def parse_chat(fields: Mapping[str, object]) -> Chat:
    """Raises: RequestInvalid."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        refuse("messages", "must be a list of at least one message", messages)
    return Chat(tuple(_message(f"messages.{i}", each) for i, each in enumerate(messages)))


def parse_prompt(fields: Mapping[str, object]) -> str | tuple[int, ...]:
    """Raises: RequestInvalid."""
    prompt, path = fields.get("prompt"), "prompt"
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise RequestInvalid("prompt", f"one prompt a request, not {len(prompt)}")
        prompt, path = prompt[0], "prompt.0"
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt:
        refuse(path, "must be a string or a list of at least one token id", prompt)
    for i, each in enumerate(prompt):
        if not is_whole(each) or not 0 <= each <= ID_MAX:
            refuse(f"{path}.{i}", "must be a token id", each)
    return tuple(prompt)


def _message(path: str, message: object) -> Message:
    if not isinstance(message, Mapping):
        refuse(path, "must be an object", message)
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        refuse(f"{path}.role", f"must be one of {', '.join(sorted(ROLES))}", role)
    # `developer` is OpenAI's newer name of the same thing; no chat template knows it.
    role = "system" if role == "developer" else role
    content = message.get("content")
    if content is None and role == "assistant":  # a turn that only called tools
        return Message(role, "")
    if isinstance(content, list):
        parts = [_part(f"{path}.content.{i}", part) for i, part in enumerate(content)]
        return Message(role, "\n".join(parts))  # joined as vLLM does
    if not isinstance(content, str):
        refuse(f"{path}.content", "must be a string or a list of text parts", content)
    return Message(role, content)


def _part(path: str, part: object) -> str:
    if not isinstance(part, Mapping):
        refuse(path, "must be an object", part)
    if part.get("type") != "text":
        refuse(f"{path}.type", "must be text: this model reads nothing else", part.get("type"))
    text = part.get("text")
    if not isinstance(text, str):
        refuse(f"{path}.text", "must be a string", text)
    return text
