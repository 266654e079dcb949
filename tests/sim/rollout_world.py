"""A world in which model m is rolled out, and the laws of rollouts are watched.

Facts are taken from tables, from the store, and from what requests did.
"""

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

from gateway.fleet import events as e
from gateway.fleet.drain import REPLACED
from gateway.fleet.rollout import Rollout
from gateway.fleet.rollout_events import CountsRead
from gateway.fleet.snapshot import FleetSnapshot
from gateway.records import BLAMES_INSTANCE, Outcome, RouteTable
from gateway.rollout.machine import Phase
from tests.sim import rollout_laws as laws
from tests.sim.facts import AWAIT_S, TABLE_BOUND_S
from tests.sim.laws import Broken
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.caller import Request
    from tests.sim.control import Control

MODEL, OLD, NEW = "m", "1", "2"
NEWER = "3", "4"  # that no file names


class RolloutWorld(World):
    def __init__(self, seed: int, text: str) -> None:
        super().__init__(seed, text)
        self.failed_by = Counter[str]()  # attempts of m, by version, ever
        self.answered_by = Counter[str]()
        self.at_start: dict[str, int] = {}  # failed attempts of its version, by rollout
        self.at_step: dict[tuple[str, int], int] = {}  # answered ones, by rollout and step
        self.asked_of: dict[str, int] = {}  # answered ones when a reading was asked for last
        self.at_reading: dict[str, int] = {}  # and as of the reading that came last
        self.blocked_since: dict[str, float] = {}  # by version
        self.ended_as: dict[str, str] = {}  # for whoever asks how much has happened

    # -- facts

    def attempted(self, model: str, version: str, outcome: Outcome) -> None:
        if model == MODEL:
            self.failed_by[version] += outcome in BLAMES_INSTANCE
            self.answered_by[version] += outcome in BLAMES_INSTANCE or outcome is Outcome.SERVED

    def opened(self, request: "Request") -> None:
        super().opened(request)
        version, control = request.claim.version.name, self.control
        if request.claim.route.model != MODEL or control is None:
            return
        excused = max(
            control.started_at + AWAIT_S,
            request.worker.thawed_at,
            self.unlinked_at.get(request.worker.row, 0.0) + 0.5,
            self._others_trouble(),
        )
        since = self.blocked_since.get(version)
        laws.nothing_opens_on_a_blocked_version(
            version, since, excused, self.agenda.now, TABLE_BOUND_S
        )

    # -- laws

    def decided(self, control: "Control", before: FleetSnapshot, event: e.Event) -> None:
        super().decided(control, before, event)
        fleet = control.fleet
        was, now = before.rollout(MODEL), fleet.rollout(MODEL)
        if now is None:
            return
        watch, watched = fleet.watches.get(MODEL), before.watches.get(MODEL)
        if watch is not None and watch.asked_at > (watched.asked_at if watched else -inf):
            self.asked_of[now.id] = self.answered_by[now.version]
        if isinstance(event, CountsRead):  # what ends after it belongs to the next reading
            self.at_reading[now.id] = self.asked_of.get(now.id, 0)
        if fleet.rollouts is not before.rollouts:  # an operator's weights lift a block, too
            since = self.blocked_since
            blocked = fleet.blocked(MODEL)
            self.blocked_since = {one: since.get(one, self.agenda.now) for one in blocked}
        if now is not was:
            self._judge_move(was, now)
        elif (
            was is not None
            and was.owns
            and before.begun  # what a file says that was changed meanwhile is weighed there
            and fleet.model(MODEL) == before.model(MODEL)
        ):
            laws.weights_have_one_owner(now.id, _weights(before), _weights(fleet))
        if fleet.table is not before.table and fleet.table is not None:
            self._judge_shares(now, fleet.table)
        if fleet.drains is not before.drains and now.active:
            leaving = [
                name
                for name, drain in fleet.drains.items()
                if drain.reason == REPLACED and name.startswith(f"{MODEL}-{now.stable}-")
                and name not in before.drains
            ]  # fmt: skip
            laws.the_old_group_stays(now.id, now.phase.value, leaving)

    def _judge_move(self, was: Rollout | None, now: Rollout) -> None:
        phase = now.phase.value
        self.promises.file_changed(MODEL)  # weights that an operator set are the rollout's again
        kept = self.store.documents.get("rollouts", {}).get(now.id, {})
        laws.the_store_has_it_first(now.id, (phase, now.step), kept)
        if was is None or was.number != now.number:
            self.at_start[now.id] = self.failed_by[now.version]
        elif was.position != now.position:
            laws.phases_follow(now.id, was.phase.value, phase)
            self._judge_verdict(was, now)
        if now.phase is Phase.STEP and (was is None or was.step != now.step):
            answered = self.answered_by[now.version]
            self.at_step[now.id, now.step] = self.at_reading.get(now.id, answered)
        if not now.active:
            self.ended_as[now.id] = f"{phase} {now.ground}".strip()

    def _judge_verdict(self, was: Rollout, now: Rollout) -> None:
        if now.phase is Phase.ROLLING_BACK and now.ground == "failures":
            failed = self.failed_by[now.version] - self.at_start.get(now.id, 0)
            laws.failures_were_seen(now.id, failed)
        passed = now.phase is Phase.PROMOTING or now.step > was.step
        if was.phase is Phase.STEP and passed and now.transitions[-1].by == "gateway":
            seen = self.answered_by[now.version] - self.at_step.get((was.id, was.step), 0)
            laws.a_pass_was_earned(now.id, seen, was.steps[was.step - 1].requests_min)

    def _judge_shares(self, rollout: Rollout, table: RouteTable) -> None:
        route = next((one for one in table.routes if one.model == MODEL), None)
        if route is None or rollout.by_hand:
            return
        shares: dict[str, float] = {
            one.name: 0.0 if one.blocked else one.weight for one in route.versions
        }
        phase, version = rollout.phase.value, rollout.version
        if rollout.watched:
            weight = rollout.steps[rollout.step - 1].weight
            laws.shares_are_as_promised(rollout.id, phase, weight, shares, version)
        elif rollout.blocks and shares.get(version, 0.0):
            laws.shares_are_as_promised(rollout.id, phase, 0.0, shares, version)

    def complaints(self) -> list[str]:
        """Of a version that is blocked nobody is to be routable; what is asked for has to end."""
        found = super().complaints()
        control = self.control
        if control is None:
            return found
        rollout = control.fleet.rollout(MODEL)
        blocked = control.fleet.blocked(MODEL)
        out = [
            f"{name} "
            for name, seen in control.fleet.instances.items()
            if seen.model == MODEL and seen.version in blocked
        ]
        found = [text for text in found if not text.startswith(tuple(out))]
        if rollout is not None and rollout.active:
            watch = control.fleet.watches.get(MODEL)
            said = (watch.said if watch else "") or rollout.reason
            if not said.endswith("not yet proof"):  # of what fails a little too often: it is held
                found.append(f"rollout {rollout.id} is {rollout.phase.value}: {said}")
        return found + self._left_behind(control.fleet)

    def _left_behind(self, fleet: FleetSnapshot) -> list[str]:
        """What is known of versions that nobody knows any more: in the table, in the store."""
        model, table = fleet.model(MODEL), fleet.table
        route = next((one for one in table.routes if one.model == MODEL), None) if table else None
        if model is None or route is None:
            return []
        there = {seen.version for seen in fleet.instances.values() if seen.model == MODEL}
        known = {one.name for one in route.versions if one.weight > 0 or one.blocked}
        used = {*known, *there, *model.weights, *model.replicas}
        kept = self.store.documents
        places = {
            "table": {one.name for one in route.versions},
            "store of weights": kept.get("weights", {}).get(MODEL, {}).keys(),
            "store of sizes": kept.get("replicas", {}).get(MODEL, {}).keys(),
        }
        found = []
        for where, named in places.items():
            try:
                laws.a_version_that_is_gone_leaves_nothing(where, named, used)
            except Broken as broken:  # it may still be on its way
                found.append(str(broken))
        return found


def _weights(fleet: FleetSnapshot) -> dict[str, float]:
    return {version: one.weight for version, one in fleet.weights(MODEL).items()}
