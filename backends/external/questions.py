"""What the server is asked, and what its answers mean.

Floor 1, pure.
Flow: [question] > HTTP > reply > [verdict].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from backends.external.derive import FINE, Patience, Verdict
from backends.external.presets import Protocol

QUOTED: Final = 200  # characters of an answer in a reason
LISTED: Final = 5  # names of models in a reason
ROUTES: Final = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")
NOT_THERE: Final = frozenset({404, 405, 501})  # this server has no such route
# Not the request's fault: too many, too early, or the server's own.
LATER: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Silent:
    """No answer, or none that is HTTP."""

    why: str
    slow: bool = False  # there was no answer in time; anything else was at once


Reply = Answered | Silent


@dataclass(frozen=True, slots=True)
class Question:
    method: str
    url: str
    document: dict[str, Any] | None = None


def judge_health(reply: Reply, url: str) -> Verdict:
    if isinstance(reply, Silent):
        return Verdict(f"{url}: {reply.why}")
    if reply.status == 200:
        return FINE
    if reply.status in NOT_THERE:
        problem = f"{url} is not there ({reply.status}): name its health endpoint with --health"
        # Some servers open their port before their routes.
        return Verdict(problem, Patience.FEW_UNUSABLE)
    return Verdict(f"{url} answers {reply.status}: {_quoted(reply.body)}")


def judge_models(reply: Reply, url: str, protocol: Protocol, model: str) -> Verdict:
    """Whether the server says that it serves `model`."""
    if isinstance(reply, Silent):
        return Verdict(f"{url}: {reply.why}")
    if reply.status in (401, 403):
        problem = f"{url} answers {reply.status}: give its key in SLUICEGATE_UPSTREAM_KEY"
        return Verdict(problem, Patience.FEW_UNUSABLE)
    if reply.status != 200:
        if protocol is Protocol.KSERVE and reply.status in (400, 404):
            problem = f"the server does not know {model} (GET {url} answers {reply.status})"
            return Verdict(problem, Patience.FEW_UNUSABLE)
        return Verdict(f"{url} answers {reply.status}: {_quoted(reply.body)}", Patience.FEW)
    named = names(_parsed(reply.body), protocol)
    if named is None:
        return Verdict(f"{url} does not list models: {_quoted(reply.body)}", Patience.FEW)
    if model in named:
        return FINE
    if not named:
        return Verdict(f"health is fine, but {url} lists no model yet")
    listed = ", ".join(sorted(named)[:LISTED])
    return Verdict(
        f"health is fine, but the server serves {listed}, not {model}: give it that name"
        " (vLLM: --served-model-name; MindIE: modelName), or the agent another --model",
        Patience.FEW_UNUSABLE,
    )


def names(document: Any, protocol: Protocol) -> set[str] | None:
    """The models that are listed; None if that is no list of models."""
    if not isinstance(document, dict):
        return None
    if protocol is Protocol.KSERVE:
        name = document.get("name")
        return {name} if isinstance(name, str) else None
    data = document.get("data")
    if not isinstance(data, list):
        return None
    return {one["id"] for one in data if isinstance(one, dict) and isinstance(one.get("id"), str)}


# --- verification ---------------------------------------------------------------------------------


def text_question(base: str, route: str, model: str, prompt: str) -> Question:
    """The smallest request that has to run the model. Routes of other names are completions."""
    document: dict[str, Any] = {"model": model}
    if route.endswith("/embeddings"):
        document["input"] = prompt
    else:
        if "chat" in route:
            document["messages"] = [{"role": "user", "content": prompt}]
        else:
            document["prompt"] = prompt
        document |= {"max_tokens": 1, "temperature": 0}
    return Question("POST", f"{base}{route}", document)


_FILLERS: Final[dict[str, Any]] = {"BOOL": False, "BYTES": ""}


def tensor_question(base: str, model: str, metadata: bytes) -> Question | None:
    """Zeros of the shapes that the model's metadata name; None if those cannot be read."""
    document = _parsed(metadata)
    inputs = document.get("inputs") if isinstance(document, dict) else None
    if not isinstance(inputs, list):
        return None
    given = []
    for one in inputs:
        if not (isinstance(one, dict) and isinstance(one.get("shape"), list)):
            return None
        if not all(isinstance(size, int) for size in one["shape"]):
            return None
        shape = [size if size > 0 else 1 for size in one["shape"]]
        count = 1
        for size in shape:
            count *= size
        if count > 1 << 24:  # 16 million numbers as JSON: somebody else may ask that
            return None
        filler = _FILLERS.get(str(one.get("datatype")), 0)
        tensor = {"name": one.get("name"), "datatype": one.get("datatype"), "shape": shape}
        given.append(tensor | {"data": [filler] * count})
    return Question("POST", f"{base}/v2/models/{model}/infer", {"inputs": given})


def sample(words: int) -> str:
    """A prompt of about so many tokens."""
    return " ".join(["hello"] * words)


def judge_answer(reply: Reply, question: Question) -> Verdict:
    """Whether a real request was really answered."""
    if isinstance(reply, Silent):
        return Verdict(f"the verification request got no answer: {reply.why}", Patience.FEW)
    if reply.status != 200:
        problem = f"the verification request ({question.url}) is answered {reply.status}"
        asked_wrongly = 400 <= reply.status < 500 and reply.status not in LATER
        patience = Patience.FEW_UNUSABLE if asked_wrongly else Patience.FEW
        return Verdict(f"{problem}: {_quoted(reply.body)}", patience)
    if not is_well_formed(_parsed(reply.body)):
        return Verdict(
            f"the answer to the verification request is not one: {_quoted(reply.body)}",
            Patience.FEW,
        )
    return FINE


def is_well_formed(document: Any) -> bool:
    """An answer of a text model, an embedding, or tensors; and something in it."""
    if not isinstance(document, dict):
        return False
    if _first(document.get("outputs")):
        return True
    if isinstance(_first(document.get("data")).get("embedding"), list | str):
        return True
    choice = _first(document.get("choices"))
    return isinstance(choice.get("text"), str) or isinstance(choice.get("message"), dict)


def _first(listed: Any) -> dict[str, Any]:
    if isinstance(listed, Sequence) and listed and isinstance(listed[0], dict):
        return listed[0]
    return {}


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _quoted(body: bytes) -> str:
    text = " ".join(body[: 4 * QUOTED].decode(errors="replace").split())
    return repr(text[:QUOTED]) if text else "nothing"
