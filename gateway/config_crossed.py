"""What is wrong between tables of config.toml that are each right alone.

Floor 1, pure.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gateway.config_tables import INSTANCES_MAX, Device, Instance, Model, Webhook
from gateway.config_values import NAME, is_url
from gateway.problems import Problem


def crossed(
    devices: Sequence[Device],
    models: Sequence[Model],
    instances: Sequence[Instance],
    default_model: str,
) -> Iterator[Problem]:
    """Every problem, in the order of the tables."""
    yield from _repeated("device", "name", [device.name for device in devices])
    yield from _repeated("model", "name", [model.name for model in models])
    yield from _repeated("instance", "id", [instance.id for instance in instances])
    yield from _cards(devices)
    yield from _models(models, {device.name for device in devices})
    by_name = {model.name: model for model in models}
    for index, instance in enumerate(instances):
        at = f"instance[{index}]"
        if instance.model not in by_name:
            yield Problem(f"{at}.model", f'must name a [[model]], not "{instance.model}"')
        elif instance.version not in by_name[instance.model].weights:
            rule = f'must be a version that [[model]] weights name, not "{instance.version}"'
            yield Problem(f"{at}.version", rule)
    if default_model and default_model not in by_name:
        rule = f'must name a [[model]], not "{default_model}"'
        yield Problem("gateway.default_model", rule)
    yield from _launched(models, instances)


def webhooks(hooks: Sequence[Webhook]) -> Iterator[Problem]:
    """A URL is not shown: it may hold what only its receiver should know."""
    yield from _repeated("webhook", "name", [hook.name for hook in hooks])
    for index, hook in enumerate(hooks):
        at = f"webhook[{index}]"
        if not is_url(hook.url):
            rule = "must be an http:// or https:// URL without user and password"
            yield Problem(f"{at}.url", rule)
        if hook.secret_env and hook.secret_file:
            yield Problem(f"{at}.secret_file", "must be left out: secret_env says it already")


def _repeated(table: str, key: str, names: Sequence[str]) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        first = seen.setdefault(name, index)
        if first != index:
            rule = f'must be unique, not "{name}", which {table}[{first}] has already'
            yield Problem(f"{table}[{index}].{key}", rule)


def _cards(devices: Sequence[Device]) -> Iterator[Problem]:
    """Two tables for one card would load two models onto it at a time."""
    cards: dict[tuple[str, int], int] = {}
    for index, device in enumerate(devices):
        first = cards.setdefault((device.kind, device.index), index)
        if first != index and device.kind != "cpu":
            rule = f"must be unique, not {device.index}, which device[{first}] has already"
            yield Problem(f"device[{index}].index", rule)


def _models(models: Sequence[Model], devices: set[str]) -> Iterator[Problem]:
    for index, model in enumerate(models):
        at = f"model[{index}]"
        if model.device and model.device not in devices:
            yield Problem(f"{at}.device", f'must name a [[device]], not "{model.device}"')
        if any(model.replicas.values()) and not devices:
            yield Problem(f"{at}.replicas", "needs a [[device]] to start instances on")
        for version in model.replicas:
            if version not in model.weights:
                rule = "must be a version with a weight: add it to weights, with 0 for none"
                yield Problem(f"{at}.replicas.{version}", rule)
        for number, (one, after) in enumerate(pairwise(model.rollout.steps), 1):
            if after.weight <= one.weight:
                rule = f"must be more than {one.weight:g}, which the step before has, "
                path = f"{at}.rollout.steps[{number}].weight"
                yield Problem(path, f"{rule}not {after.weight:g}")


def _launched(models: Sequence[Model], instances: Sequence[Instance]) -> Iterator[Problem]:
    """What is wrong with the ids of the instances that `replicas` ask for."""
    total = sum(sum(model.replicas.values()) for model in models) + len(instances)
    if total > INSTANCES_MAX:
        rule = f"must ask for at most {INSTANCES_MAX} instances, with those of [[instance]], "
        yield Problem("model", f"{rule}not {total}")
        return
    owners: dict[str, str] = {}
    for index, model in enumerate(models):
        for version, count in model.replicas.items():
            at = f"model[{index}].replicas.{version}"
            names = [f"{model.name}-{version}-{ordinal}" for ordinal in range(count)]
            taken = next((name for name in names if owners.setdefault(name, at) != at), "")
            if taken:
                rule = f'must not start "{taken}" again, which {owners[taken]} does already'
                yield Problem(at, rule)
            if names and not NAME.fullmatch(names[-1]):
                rule = f'must make ids of at most 128 characters, not "{names[-1]}"'
                yield Problem(at, rule)
    for index, row in enumerate(instances):
        if row.id in owners:
            rule = f'must not be "{row.id}", which {owners[row.id]} starts'
            yield Problem(f"instance[{index}].id", rule)
