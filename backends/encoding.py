"""What is to be answered -> the token ids that the model continues.

Floor 3, I/O (a thread for long texts).
"""

import asyncio
from typing import Final

from backends.errors import RequestInvalid
from backends.openai.prompts import Chat, Prompt
from backends.text import Text

# Encoding takes about a microsecond a character: a longer text would stop the loop for too long.
ENCODE_ON_LOOP_MAX: Final = 8192
MESSAGE: Final = 16  # characters that a template puts around each: empty ones take their time too


async def encode(text: Text, prompt: Prompt) -> tuple[int, ...]:
    """The prompt as token ids.

    Raises: RequestInvalid if the chat template refuses, or nothing is left.
    """
    if _length(prompt) > ENCODE_ON_LOOP_MAX:
        # A house rule broken (one thread): tokenizers lets go of the GIL, and a poll must not wait
        # for a long prompt. Nothing is shared: the tokenizer never changes.
        ids = await asyncio.to_thread(_ids, text, prompt)
    else:
        ids = _ids(text, prompt)
    if not ids:
        place = "messages" if isinstance(prompt, Chat) else "prompt"
        raise RequestInvalid(place, "must hold at least one token")
    return ids


def _length(prompt: Prompt) -> int:
    """Characters to encode."""
    match prompt:
        case Chat(messages):
            return sum(MESSAGE + len(message.content) for message in messages)
        case str():
            return len(prompt)
        case _:
            return 0


def _ids(text: Text, prompt: Prompt) -> tuple[int, ...]:
    match prompt:
        case Chat(messages):
            return tuple(text.chat([{"role": m.role, "content": m.content} for m in messages]))
        case str():
            return tuple(text.encode(prompt, special=True))
        case _:
            return prompt
