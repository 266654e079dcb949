"""What operators ask of rollouts, and what rollouts say to those who set weights by hand.

Floor 1, pure.   Flow: Asked -> [rollout_asks] -> Plan
The plan of a start is what a person reads before he says yes: what is started, what it needs, each
step, the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from pydantic import ValidationError

from gateway.config import INSTANCES_MAX, NAME, NAME_RULE, Model, Problem, Settings, Step
from gateway.control import Denied, SetWeights
from gateway.fleet import capacity, groups
from gateway.fleet.plan import NOTHING, Plan
from gateway.fleet.rollout import Move, Rollout, Transition
from gateway.fleet.rollout_documents import rollout_change
from gateway.fleet.snapshot import FleetSnapshot
from gateway.fleet.stepping import changes, drawn_up
from gateway.fleet.stock import Stock
from gateway.fleet.weights import NO_OVERRIDES
from gateway.problems import named
from gateway.rollout.machine import Happened, Phase, Refusal, transition
from gateway.rollouts import (
    AbortRollout,
    PauseRollout,
    PromoteRollout,
    ResumeRollout,
    RetryRollout,
    RolloutAsk,
    StartRollout,
)

BACK: Final = frozenset({Phase.ROLLING_BACK, Phase.ROLLED_BACK})
NAMED_MAX: Final = 10  # versions that a refusal names


def plan(fleet: FleetSnapshot, ask: RolloutAsk | Move, by: str, now: float) -> Plan:
    """Raises: Denied; there is nothing to be carried out."""
    if isinstance(ask, StartRollout):
        return _plan_start(fleet, ask, by, now)
    last = _last(fleet, ask.model)
    match ask:
        case Move():
            if ask.of is not None and ask.of != last.position:
                raise Denied("conflict", f"rollout {last.id} is somewhere else by now")
            return _plan_move(fleet, last, ask, "gateway", now)
        case RetryRollout():
            return _plan_retry(fleet, last, ask, by, now)
        case PauseRollout() if last.phase is Phase.PAUSED:
            return Plan(NOTHING, (f"rollout {last.id} is paused already",))
        case ResumeRollout() if last.phase is Phase.STEP:
            return Plan(NOTHING, (f"rollout {last.id} is not paused",))
        case AbortRollout() if last.phase in BACK:
            return Plan(NOTHING, (f"rollout {last.id} is {last.phase.value} already",))
        case PauseRollout():
            move = Move(ask.model, Happened.PAUSED, "paused by an operator")
        case ResumeRollout():
            move = Move(ask.model, Happened.RESUMED, "resumed by an operator")
        case AbortRollout(_, reason):
            told = f"aborted: {reason}" if reason else "aborted by an operator"
            move = Move(ask.model, Happened.ABORTED, told, "aborted")
        case PromoteRollout(step=step) if step is not None and step != last.step:
            text = f"rollout {last.id} is at step {last.step} by now, not {step}: look again"
            raise Denied("conflict", text)
        case PromoteRollout(_, full):
            whole = full or last.last
            happened = Happened.PROMOTED_FULLY if whole else Happened.PROMOTED
            move = Move(ask.model, happened, f"promoted{' fully' if full else ''} by an operator")
    return _plan_move(fleet, last, move, by, now)


def _last(fleet: FleetSnapshot, model: str) -> Rollout:
    if fleet.model(model) is None:
        raise Denied("unknown_model", f"no model {model} in config.toml")
    last = fleet.rollout(model)
    if last is None:
        raise Denied("unknown_rollout", f"{model} has had no rollout: start one")
    return last


def _plan_move(fleet: FleetSnapshot, last: Rollout, move: Move, by: str, now: float) -> Plan:
    after = drawn_up(fleet, last, move, by, now)
    return Plan(changes(fleet, after), (entered(after),), rollout=after)


def entered(after: Rollout) -> str:
    """Where it is now and why, a sentence."""
    where = {
        Phase.STEP: f"step {after.step} of {len(after.steps)}, {after.weight:g} %",
        Phase.PROMOTING: f"all traffic to version {after.version}",
    }.get(after.phase, after.phase.value.replace("_", " "))
    return f"rollout {after.id} of version {after.version}: {where}: {after.reason}"


# --- starting ------------------------------------------------------------------------------------


def _plan_start(fleet: FleetSnapshot, ask: StartRollout, by: str, now: float) -> Plan:
    found = fleet.model(ask.model)
    if found is None:
        raise Denied("unknown_model", f"no model {ask.model} in config.toml")
    last = fleet.rollout(ask.model)
    if last is not None:
        if last.active and last.version == ask.version and last.phase is not Phase.ROLLING_BACK:
            text = f"rollout {last.id} of version {last.version} is {last.phase.value} already"
            return Plan(NOTHING, (text,))
        refusal = transition(last.phase, Happened.STARTED)
        if isinstance(refusal, Refusal):
            raise Denied("conflict", f"rollout {last.id}: {refusal.text}")
    return _started(fleet, found, ask, by, now)


def _plan_retry(
    fleet: FleetSnapshot, last: Rollout, ask: RetryRollout, by: str, now: float
) -> Plan:
    refusal = transition(last.phase, Happened.RETRIED)
    if isinstance(refusal, Refusal):
        raise Denied("conflict", f"rollout {last.id}: {refusal.text}")
    steps = tuple(step.model_dump() for step in last.steps)
    again = StartRollout(
        last.model, last.version, last.replicas, steps, last.samples, ask.force or last.force
    )
    found = fleet.model(last.model)
    assert found is not None, "looked up with the rollout"
    return _started(fleet, found, again, by, now)


def _started(fleet: FleetSnapshot, found: Model, ask: StartRollout, by: str, now: float) -> Plan:
    rest = {
        version: one.weight
        for version, one in fleet.weights(found.name).items()
        if one.weight > 0 and version not in {ask.version, *fleet.blocked(found.name)}
    }
    stable = max(rest, key=lambda version: rest[version], default="")
    problems = _malformed(ask)
    if problems:
        raise Denied("invalid", "; ".join(map(str, problems)), tuple(problems))
    if not stable:
        text = f"no other version of {found.name} has a weight: there is nothing to roll out from"
        raise Denied("conflict", text)
    share = fleet.weights(found.name).get(ask.version)
    if share is not None and share.weight > 0 and ask.version not in fleet.blocked(found.name):
        text = f"version {ask.version} has a weight of {share.weight:g}: a rollout begins with 0"
        raise Denied("conflict", text)
    at, reason = fleet.wall + now, f"started by {by}" if by else "started"
    rollout = Rollout(
        model=found.name,
        number=1 + max((one.number for one in fleet.rollouts.get(found.name, ())), default=0),
        version=ask.version,
        stable=stable,
        steps=_steps(found, ask),
        replicas=_replicas(fleet, ask, stable),
        rest=rest,
        before=fleet.overrides.get(found.name, NO_OVERRIDES),
        began=at,
        since=at,
        entered=now,
        samples=found.rollout.validation.samples if ask.samples is None else ask.samples,
        force=ask.force,
        reason=reason,
        transitions=(Transition(at, Phase.PENDING, 0, reason, by),),
    )
    _check_ids(fleet, found, rollout)
    return Plan(changes(fleet, rollout), _outlook(fleet, found, rollout), rollout=rollout)


def _steps(found: Model, ask: StartRollout) -> tuple[Step, ...]:
    return found.rollout.steps if ask.steps is None else tuple(Step(**one) for one in ask.steps)


def _malformed(ask: StartRollout) -> list[Problem]:
    """Everything that is wrong with what is asked for."""
    problems = []
    if not NAME.fullmatch(ask.version):
        problems.append(Problem("version", f"must be {NAME_RULE}, not {ask.version!a}"))
    if ask.replicas is not None and not 0 <= ask.replicas <= INSTANCES_MAX:
        rule = f"must be from 0 to {INSTANCES_MAX}, not {ask.replicas}"
        problems.append(Problem("replicas", rule))
    if ask.steps is not None:
        problems += _bad_steps(ask)
    return problems


def _bad_steps(ask: StartRollout) -> list[Problem]:
    problems: list[Problem] = []
    for index, one in enumerate(ask.steps or ()):
        try:
            Step(**one)
        except ValidationError as exc:
            found = [problem for error in exc.errors() for problem in named(error)]
            problems += (replace(p, path=f"steps[{index}].{p.path}".rstrip(".")) for p in found)
    if not ask.steps:
        problems.append(Problem("steps", "must have at least 1 entry"))
    if not problems:
        weights = [Step(**one).weight for one in ask.steps or ()]
        problems += (
            Problem(f"steps[{index}].weight", f"must be more than {one:g}, not {after:g}")
            for index, (one, after) in enumerate(pairwise(weights), 1)
            if after <= one
        )
    return problems


def _replicas(fleet: FleetSnapshot, ask: StartRollout, stable: str) -> int:
    """Of the new group, that we start: as asked, those that there are, as many as the old one."""
    if ask.replicas is not None:
        return ask.replicas
    ours = fleet.replicas(ask.model).get(ask.version, 0)
    if ours or groups.group(fleet, ask.model, ask.version):
        return ours
    return max(1, groups.size(fleet, ask.model, stable))


def _check_ids(fleet: FleetSnapshot, found: Model, rollout: Rollout) -> None:
    """Raises: Denied when the new group cannot be started under its own names."""
    names = [f"{found.name}-{rollout.version}-{n}" for n in range(rollout.replicas)]
    if not names:
        if not groups.group(fleet, found.name, rollout.version):
            text = f"no instance of version {rollout.version} is there, and none is to be started"
            raise Denied("conflict", text)
        return
    if not capacity.devices(fleet, found.device):
        problem = Problem("replicas", "needs a [[device]] to start instances on")
        raise Denied("invalid", str(problem), (problem,))
    if not NAME.fullmatch(names[-1]):
        problem = Problem("version", f'must make ids of at most 128 characters, not "{names[-1]}"')
        raise Denied("invalid", str(problem), (problem,))
    for name in names:
        seen = fleet.instances.get(name)
        own = seen is None or (seen.model, seen.version) == (found.name, rollout.version)
        if not own or (seen is not None and name not in fleet.launches):
            raise Denied("conflict", f"{name} is taken by another instance: remove that one first")
    new = sum(name not in fleet.instances for name in names)
    if len(fleet.instances) + new > INSTANCES_MAX:
        raise Denied("conflict", f"there would be more than {INSTANCES_MAX} instances")


# --- what the repository has ----------------------------------------------------------------------


def unlooked(fleet: FleetSnapshot, plan: Plan, stock: Stock | None) -> bool:
    """Whether it begins a rollout for which the repository has to be looked at first."""
    after = plan.rollout
    if after is None or after.phase is not Phase.PENDING or not capacity.imported(fleet, after):
        return False
    return stock is None or stock.version != after.version


def in_stock(fleet: FleetSnapshot, plan: Plan, stock: Stock | None) -> Plan:
    """The plan, with a warning where nobody can say whether there is such a snapshot.

    Raises: Denied when there is none.
    """
    after = plan.rollout
    if stock is None or after is None or not capacity.imported(fleet, after) or stock.has:
        return plan
    model, root = after.model, fleet.settings.repository.root
    if stock.has is None:
        text = f"the model repository {root} cannot be looked at just now ({stock.doubt}): whether"
        text += f" it has version {after.version} is seen when its instances start"
        return plan._replace(sentences=(*plan.sentences, f"warning: {text}"))
    text = f"the model repository {root} has no version {after.version} of {model}"
    text += f", only {listed(stock.others)}" if stock.others else ""
    hint = f"sluicegate models import SOURCE --model {model} --version {after.version}"
    raise Denied("unknown_version", f"{text}: import it: {hint} --root {root}")


def listed(names: Sequence[str]) -> str:
    """The last ones of many."""
    more = len(names) - NAMED_MAX
    shown = [*([f"{more} more"] if more > 0 else []), *names[-NAMED_MAX:]]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if shown[1:] else shown[0]


def _outlook(fleet: FleetSnapshot, found: Model, rollout: Rollout) -> tuple[str, ...]:
    """The whole way, a sentence for each part of it."""
    keys, version = found.rollout, rollout.version
    first = f"rollout {rollout.id}: version {version} takes the traffic of {rollout.stable}"
    if rollout.replicas:
        count = "1 instance" if rollout.replicas == 1 else f"{rollout.replicas} instances"
        group = f"group of {count} beside that of {rollout.stable}: {capacity.told(fleet, rollout)}"
        group += ", and started whatever is free" if rollout.force else ""
    else:
        there = len(groups.group(fleet, found.name, version))
        group = f"its {there} instances are there, and started by others"
    checked = (
        f"validated with {rollout.samples}" if rollout.samples else "no samples: not validated"
    )
    steps = (
        f"step {number}: {step.weight:g} % for {step.hold_s:g} s and {step.requests_min} requests"
        + (", then waits for promote" if step.gate else "")
        for number, step in enumerate(rollout.steps, 1)
    )
    end = f"then all traffic; the old group is kept for {keys.keep_old_s:g} s, and stopped"
    return (first, group, checked, *steps, end)


# --- weights by hand -----------------------------------------------------------------------------


def refuse_owned(fleet: FleetSnapshot, model: str) -> None:
    """Raises: Denied while the weights are a rollout's."""
    last = fleet.rollout(model)
    if last is not None and last.owns:
        text = f"rollout {last.id} of version {last.version} owns the weights of {model}"
        raise Denied("conflict", f"{text}: abort it, or override, which pauses it")


def refuse_blocked(fleet: FleetSnapshot, model: str, weights: Mapping[str, float]) -> None:
    """Raises: Denied while one of them is of a version to which nothing is sent."""
    for version, one in fleet.blocked(model).items():
        if weights.get(version):
            text = f"version {version} was rolled back ({one.reason})"
            raise Denied("conflict", f"{text}: retry its rollout, or override")


def overridden(fleet: FleetSnapshot, ask: SetWeights, by: str, now: float) -> Plan:
    """What weights set by hand do to the model's rollouts. Raises: Denied."""
    last, blocked = fleet.rollout(ask.model), fleet.blocked(ask.model)
    if not ask.override:
        refuse_owned(fleet, ask.model)
        refuse_blocked(fleet, ask.model, ask.weights)
    if last is not None and last.owns:
        move = Move(ask.model, Happened.OVERRIDDEN, "weights were set by hand")
        after = drawn_up(fleet, last, move, by, now)
        return Plan((rollout_change(after),), (entered(after),), rollout=after)
    freed = [one for version, one in blocked.items() if ask.weights.get(version)]
    if len(freed) > 1 or any(one.active for one in freed):
        text = f"version {freed[0].version} was rolled back by {freed[0].id}: it gets a weight when"
        raise Denied("conflict", f"{text} its instances have left, and no other such one with it")
    if not freed:
        return Plan(NOTHING, ())
    after = replace(freed[0], forgiven=True)
    text = f"version {after.version} is not blocked any more"
    return Plan((rollout_change(after),), (text,), rollout=after)


def owned(fleet: FleetSnapshot, settings: Settings) -> tuple[Problem, ...]:
    """What a new file says of weights and replicas that rollouts have a say in."""
    problems: list[Problem] = []
    at = {model.name: index for index, model in enumerate(settings.model)}
    for model in fleet.settings.model:
        last = fleet.rollout(model.name)
        if last is not None and last.active:
            new = next((one for one in settings.model if one.name == model.name), None)
            path = f"model[{at[model.name]}]" if new else "model"
            problems += _claimed(last, model, new, path)
    for new in settings.model:
        old = fleet.model(new.name)
        for version, one in fleet.blocked(new.name).items():
            before = old.weights.get(version, 0.0) if old else 0.0
            if new.weights.get(version, 0.0) > 0 and before <= 0:
                text = f"was rolled back ({one.reason}): retry its rollout"
                problems.append(Problem(f"model[{at[new.name]}].weights.{version}", text))
    return tuple(problems)


def _claimed(last: Rollout, old: Model, new: Model | None, path: str) -> Iterator[Problem]:
    """Of one model whose rollout is under way."""
    text = f"is for rollout {last.id} to say, which is {last.phase.value}: abort it first"
    if new is None:
        yield Problem(path, f"must name {old.name}: rollout {last.id} is under way, abort it first")
        return
    moved = {
        version
        for version in old.weights.keys() | new.weights.keys()
        if old.weights.get(version) != new.weights.get(version)
    }
    yield from (Problem(f"{path}.weights.{version}", text) for version in sorted(moved))
    for version in sorted({last.version, *last.rest}):
        if old.replicas.get(version) != new.replicas.get(version):
            yield Problem(f"{path}.replicas.{version}", text)
