"""The OpenAPI document of the admin API: one row per call.

Floor 1, pure.
The tests walk OPERATIONS against the application's routes, both ways, and check every answer that
they provoke against its schema, so the document cannot drift from what is served.
"""

from dataclasses import dataclass
from typing import Final

from admin.schemas import TEXT, reference, schemas
from admin.views import Document

PREFIX: Final = "/admin/v1"
SAYS: Final = "X-Sluicegate-By"  # a field of requests: who asks, in his own words, for the history


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. `refused`: statuses besides 403 and 422, which every call may answer."""

    method: str
    path: str
    summary: str
    answer: str  # a schema, or a media type
    refused: tuple[int, ...] = ()
    body: str = ""  # a schema
    query: tuple[str, ...] = ()


MADE: Final = ("wait", "dry_run")  # how a change may be made
CHANGE: Final = (400, 408, 409, 412, 413, 415, 503, 504)  # what every change may answer


def _change(
    method: str,
    path: str,
    summary: str,
    body: str = "",
    answer: str = "Receipt",
    also: tuple[str, ...] = (),
) -> Operation:
    query = (*MADE, *also)
    return Operation(method, PREFIX + path, summary, answer, (404, *CHANGE), body, query)


def _rollout(verb: str, summary: str, body: str = "") -> Operation:
    path = "/models/{model}/rollout" + (f"/{verb}" if verb else "")
    return _change("POST", path, summary, body, "RolloutReceipt")


def _read(path: str, summary: str, answer: str, *refused: int) -> Operation:
    return Operation("GET", PREFIX + path, summary, answer, refused)


OPERATIONS: Final = (
    Operation("GET", "/", "Where to look.", "text/plain"),
    Operation("GET", "/metrics", "Prometheus text format.", "text/plain"),
    Operation("GET", "/livez", "Does the control process answer?", "Probe", (503,)),
    Operation("GET", "/readyz", "Can a request be served now?", "Probe", (503,)),
    Operation("GET", "/startupz", "Does every worker hold a table?", "Probe", (503,)),
    _read("/status", "The gateway as a whole.", "Status"),
    _read("/instances", "Every known instance.", "Instances"),
    _change("POST", "/instances", "Add an instance that somebody else runs.", "InstanceToAdd"),
    _read("/instances/{instance}", "One instance.", "Instance", 404),
    _change("DELETE", "/instances/{instance}", "Drain an instance and forget it."),
    _change("PUT", "/instances/{instance}/weight", "Its weight in its group.", "InstanceWeight"),
    _change("DELETE", "/instances/{instance}/weight", "Back to what it was given first."),
    _change(
        "PUT",
        "/instances/{instance}/drain",
        "Take it out of traffic, losing nothing.",
        "DrainToStart",
        "DrainReceipt",
    ),
    _change("DELETE", "/instances/{instance}/drain", "Give it back to traffic."),
    _change("POST", "/instances/{instance}/stop", "Drain it, then end it.", "InstanceToStop"),
    _change("POST", "/instances/{instance}/start", "Start it anew, its failures forgotten."),
    _read("/drains", "Drains that run, and the last of each instance that ended.", "Drains"),
    _read("/drains/{instance}", "The drain of one instance.", "Drain", 404),
    _read("/models", "Models, versions and weights.", "Models"),
    _read("/models/{model}", "One model.", "Model", 404),
    _change(
        "PUT",
        "/models/{model}/weights",
        "All weights of the model at once.",
        "Weights",
        also=("override",),
    ),
    _change("DELETE", "/models/{model}/weights", "Back to what config.toml says."),
    _read("/rollouts", "Rollouts of every model, newest first.", "Rollouts"),
    _read("/models/{model}/rollouts", "Those of one model, newest first.", "Rollouts", 404),
    _read("/models/{model}/rollout", "The one that runs, or that ended last.", "Rollout", 404),
    _rollout("", "Roll a version out, step by step.", "RolloutToStart"),
    _rollout("promote", "To the next step now; `full`: to all traffic.", "RolloutToPromote"),
    _rollout("pause", "Stay at this weight until it is resumed."),
    _rollout("resume", "Go on from where it was paused."),
    _rollout("abort", "Roll back: no new request goes to the version.", "RolloutToAbort"),
    _rollout("retry", "The one that was rolled back, from its beginning.", "RolloutToRetry"),
    Operation(
        "GET",
        f"{PREFIX}/leases",
        "Requests in flight, one by one.",
        "Leases",
        query=("instance", "model"),
    ),
    _change("DELETE", "/leases/{request_id}", "End one request now."),
    Operation(
        "GET",
        f"{PREFIX}/events",
        "What happens, as server-sent events; Last-Event-ID resumes.",
        "text/event-stream",
        (503,),
        query=("after", "follow"),
    ),
    _read("/history", "Who changed what and when, oldest first; over restarts.", "History"),
    _read("/config", "Every key in force, with its origin.", "Config"),
    Operation(
        "POST",
        f"{PREFIX}/config/check",
        "What is wrong with a candidate config.toml.",
        "Checked",
        (400, 408, 413, 415),
        "ConfigText",
    ),
    _change("POST", "/config/reload", "Read config.toml again: whole, or not at all."),
    _read("/openapi.json", "This document.", "Document"),
)

PARAMETERS: Final = {
    "wait": ("Answer once every worker serves the change.", {"enum": ["1", "true", "0", "false"]}),
    "dry_run": ("Say what would change.", {"enum": ["1", "true", "0", "false"]}),
    "override": (
        "Although a rollout owns the weights.",
        {"enum": ["1", "true", "0", "false"]},
    ),
    "follow": ("0: end after what is remembered.", {"enum": ["1", "true", "0", "false"]}),
    "after": ("The number of the last event that is known.", {"type": "integer", "minimum": 0}),
    "instance": ("Only of this instance.", {"type": "string"}),
    "model": ("Only of this model.", {"type": "string"}),
}


def specification() -> Document:
    paths: Document = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sluicegate admin API", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas()},
    }


def _operation(operation: Operation) -> Document:
    is_media = "/" in operation.answer
    media = operation.answer if is_media else "application/json"
    schema = {"type": "string"} if is_media else reference(operation.answer)
    answers: Document = {"200": {"description": "Done.", "content": {media: {"schema": schema}}}}
    for status in sorted({403, 422, *operation.refused}):
        is_probe = operation.answer == "Probe" and status == 503  # it says why in its own shape
        content = {"application/json": {"schema": reference("Probe" if is_probe else "Refusal")}}
        answers[str(status)] = {"description": "Refused.", "content": content}
    document: Document = {
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": answers,
    }
    if operation.body:
        content = {"application/json": {"schema": reference(operation.body)}}
        document["requestBody"] = {"content": content}
    return document


def _parameters(operation: Operation) -> list[Document]:
    segments = (part for part in operation.path.split("/") if part.startswith("{"))
    found: list[Document] = [
        {"name": part.strip("{}"), "in": "path", "required": True, "schema": TEXT}
        for part in segments
    ]
    for name in operation.query:
        description, schema = PARAMETERS[name]
        found.append({"name": name, "in": "query", "description": description, "schema": schema})
    if set(MADE) <= set(operation.query):
        description = "Only while this is the revision; else 412."
        schema = {"type": "string"}
        found.append(
            {"name": "If-Match", "in": "header", "description": description, "schema": schema}
        )
    return found
