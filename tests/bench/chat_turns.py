"""`python -m tests.bench.chat_turns`: the time to the first token of each turn of a chat.

Floor 5, I/O.
Two instances of the demonstration model behind a gateway, and several chats that take turns, so
that one chat's slot is free while another speaks. Three ways: each chat comes back to its instance
(`affinity` and `x-session-id`); each turn goes where there is room (`least_loaded`); and without
reuse, where it does not matter. Each way has fresh instances and the same chats, word by word.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench.lifecycle_text import quantile
from tests.bench.model import Answer, serving, streamed
from tests.live.gateways import Gateway

WAYS: Final[dict[str, dict[str, object]]] = {
    "affinity": {"policy": "affinity"},
    "least_loaded": {"policy": "least_loaded"},
    "no_reuse": {"policy": "affinity", "prefix_reuse": False},
}
TOPICS: Final = ("the sea", "old bridges", "bread", "winter", "glass", "clocks")
ASKED: Final = (
    "Turn {turn} of our talk about {topic}: please tell me one more thing about it that I have not "
    "heard from you yet, in a sentence or two, plainly and without a list, as if to a friend."
)
Found = dict[str, list[list[Answer]]]  # way -> answers by turn, then by chat


async def chats(gateway: Gateway, given: argparse.Namespace) -> list[list[Answer]]:
    """Answers by turn, then by chat."""
    talks: list[list[dict[str, str]]] = [[] for _ in range(given.chats)]
    answers: list[list[Answer]] = []
    for turn in range(1, given.turns + 1):
        answers.append([])
        for number, talk in enumerate(talks):
            topic = TOPICS[number % len(TOPICS)]
            talk.append({"role": "user", "content": ASKED.format(turn=turn, topic=topic)})
            body = {"messages": talk, "max_tokens": given.tokens}
            headers = {"x-session-id": f"chat-{number}"}
            answer = await streamed(gateway, "/v1/chat/completions", body, headers)
            talk.append({"role": "assistant", "content": answer.text})
            answers[-1].append(answer)
            said = f"turn {turn}: {answer.first_ms:.0f} ms, {answer.cached} cached"
            print(f"{said}, {answer.instance}", file=sys.stderr, flush=True)
    return answers


async def run(given: argparse.Namespace) -> Found:
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        for way in given.only or WAYS:
            keys = WAYS[way]
            async with serving(
                Path(tempfile.mkdtemp(dir=folder)), given.instances, **keys
            ) as gateway:
                found[way] = await chats(gateway, given)
    return found


def table(found: Found) -> str:
    """Medians over the chats."""
    rows = [
        "| turn | prompt tokens | " + " | ".join(f"{way}, ms | cached" for way in found) + " |",
        "|---" * (2 + 2 * len(found)) + "|",
    ]
    first = next(iter(found.values()))
    for turn, asked in enumerate(first):
        cells = [f"{turn + 1}", f"{_median([a.usage['prompt_tokens'] for a in asked]):.0f}"]
        for answers in found.values():
            cells.append(f"{_median([answer.first_ms for answer in answers[turn]]):.0f}")
            cells.append(f"{_median([answer.cached for answer in answers[turn]]):.0f}")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def line(found: Found) -> str:
    """The last line, for scripts: medians over the chats of the first turn and of the last."""
    figures = []
    for way, answers in found.items():
        for turn in (0, len(answers) - 1):
            median = _median([answer.first_ms for answer in answers[turn]])
            figures.append(f"{way}_turn{turn + 1}_ms={median:.0f}")
    return " ".join(figures)


def _median(values: list[float]) -> float:
    return quantile(values, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench.chat_turns", description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--chats", type=int, default=3)
    parser.add_argument("--only", choices=WAYS, action="append", help="one way; may be repeated")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=32, help="of each answer at most")
    found = asyncio.run(run(parser.parse_args()))
    print(table(found))
    print()
    print(line(found))


if __name__ == "__main__":
    main()
