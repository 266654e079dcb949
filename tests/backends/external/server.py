"""A small OpenAI-compatible server with scripted trouble: a real process to stand for.

    python -m tests.backends.external.server --port N --model m [TROUBLE...]

Tokens are numbers in order, one every --step-s. What it holds and what it has generated is in its
metrics, by vLLM's names. `POST /trouble` changes what is wrong with it while it runs.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import orjson
from aiohttp import web


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="m", help="the name that it serves")
    parser.add_argument("--step-s", type=float, default=0.01)
    parser.add_argument("--load-s", type=float, default=0.0, help="health is 503 for so long")
    parser.add_argument("--dies-loading", type=int, default=None, help="exit status")
    parser.add_argument("--verification", type=int, default=200, help="status of short answers")
    parser.add_argument("--garbage", action="store_true", help="answers are no completions")
    parser.add_argument("--ignores-sigterm", action="store_true")
    parser.add_argument("--grandchild", action="store_true", help="in a session of its own")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--chat-only", action="store_true")
    return parser.parse_args()


class Server:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.trouble: dict[str, Any] = {}
        self.began = time.monotonic()
        self.running = self.tokens = self.prompts = self.cancelled = 0
        self.direct = 0  # said to be running, come in by another door

    def app(self) -> web.Application:
        made = web.Application(client_max_size=1 << 31)
        made.add_routes(
            [
                web.get("/health", self.health),
                web.get("/v1/models", self.models),
                web.post("/v1/chat/completions", self.generate),
                web.get("/metrics", self.metrics),
                web.post("/trouble", self.make_trouble),
                web.get("/seen", self.seen),
                web.route("*", "/echo", self.echo),
                web.get("/much", self.much),
            ]
        )
        if not self.given.chat_only:
            made.router.add_post("/v1/completions", self.generate)
        return made

    async def health(self, _: web.Request) -> web.Response:
        if self.trouble.get("hangs"):
            await asyncio.sleep(3600)
        loading = time.monotonic() - self.began < self.given.load_s
        return web.Response(status=self.trouble.get("health", 503 if loading else 200))

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.given.model}]})

    async def make_trouble(self, request: web.Request) -> web.Response:
        self.trouble = await request.json()
        self.direct = self.trouble.get("direct", 0)
        return web.Response()

    async def seen(self, _: web.Request) -> web.Response:
        return web.json_response({"running": self.running, "cancelled": self.cancelled})

    async def metrics(self, _: web.Request) -> web.Response:
        if self.given.no_metrics:
            return web.Response(status=404)
        label = f'{{model_name="{self.given.model}"}}'
        lines = [
            f"vllm:num_requests_running{label} {self.running + self.direct}",
            f"vllm:num_requests_waiting{label} 0.0",
            f"vllm:prompt_tokens_total{label} {self.prompts}",
            f"vllm:generation_tokens_total{label} {self.tokens}",
            f"vllm:kv_cache_usage_perc{label} 0.25",
        ]
        return web.Response(text="\n".join(lines))

    async def generate(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        if asked.get("model") != self.given.model:
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        limit = asked.get("max_tokens", 16)
        if limit == 1 and self.given.verification != 200:
            return web.json_response({"error": {"message": "boom"}}, status=self.given.verification)
        if self.given.garbage:
            return web.Response(text="hello, I am not a completion")
        self.running += 1
        self.prompts += 1
        try:
            if asked.get("stream"):
                return await self.stream(request, limit)
            words = [await self.token(number) for number in range(limit)]
            choice = {"index": 0, "finish_reason": "length", "text": " ".join(words)}
            choice |= {"message": {"role": "assistant", "content": " ".join(words)}}
            return web.json_response({"id": "x", "model": asked["model"], "choices": [choice]})
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def stream(self, request: web.Request, limit: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(limit):
            word = await self.token(number)
            if self.trouble.get("dies_at") == number:
                print("out of device memory", file=sys.stderr, flush=True)
                os._exit(9)
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            document = {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}
            await response.write(b"data: " + orjson.dumps(document) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def token(self, number: int) -> str:
        await asyncio.sleep(self.given.step_s)
        self.tokens += 1
        return str(number)

    async def echo(self, request: web.Request) -> web.Response:
        """What arrived of the request, whole bodies by their length."""
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
        document = {
            "method": request.method,
            "path": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "bytes": size,
        }
        return web.json_response(document, headers={"x-served-by": "server"})

    async def much(self, request: web.Request) -> web.StreamResponse:
        """So many mebibytes; how many were taken of us is in `seen`."""
        response = web.StreamResponse()
        await response.prepare(request)
        part = bytes(1 << 20)
        self.cancelled = 0
        for _ in range(int(request.query["mib"])):
            await response.write(part)
            self.cancelled += 1  # here: parts that have left us
        return response


def main() -> None:
    given = arguments()
    if given.dies_loading is not None:
        print("reading weights", file=sys.stderr)
        print("RuntimeError: the weights are broken", file=sys.stderr, flush=True)
        sys.exit(given.dies_loading)
    if given.ignores_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if given.grandchild:
        one = subprocess.Popen(["sleep", "3600"], start_new_session=True)
        print(f"grandchild {one.pid}", file=sys.stderr, flush=True)
    asyncio.run(serve(given))


async def serve(given: argparse.Namespace) -> None:
    runner = web.AppRunner(
        Server(given).app(),
        handler_cancellation=True,
        max_line_size=65536,
        max_field_size=65536,
        shutdown_timeout=0.1,
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", given.port).start()
    stopped = asyncio.Event()
    if not given.ignores_sigterm:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    await runner.cleanup()


if __name__ == "__main__":
    main()
