"""What the tests of verbs share: every verb by its name, typed against a served admin port."""

from collections.abc import Callable
from typing import Any

import orjson
from click.testing import CliRunner, Result

from admin import commands
from admin.rollouts.commands import rollout

VERBS = {
    "status": commands.status,
    "instances": commands.instances,
    "weight": commands.weight,
    "drain": commands.drain,
    "undrain": commands.undrain,
    "stop": commands.stop,
    "start": commands.start,
    "leases": commands.leases,
    "events": commands.events,
    "history": commands.history,
    "reload": commands.reload,
    "config": commands.config,
    "rollout": rollout,
}
Run = Callable[..., Result]


def running(address: str) -> Run:
    """Types a verb at the gateway there."""

    def typed(verb: str, *arguments: str) -> Result:
        environment = {"SLUICEGATE_ADMIN": address}
        return CliRunner().invoke(VERBS[verb], list(arguments), env=environment)

    return typed


def document_of(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)
