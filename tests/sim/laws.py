"""The laws: what must hold at every step of every schedule, whatever befalls the gateway.

Each is a function of plain facts that raises Broken; who collects the facts is `world.py`, and it
takes them from the simulated world itself, never from what the gateway believes of it. `test_laws`
shows of each that it can fail.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.records import RouteTable, Target


class Broken(AssertionError):
    """A law does not hold."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


def targets(table: RouteTable) -> Iterable[Target]:
    return (one for route in table.routes for version in route.versions for one in version.targets)


# --- tables --------------------------------------------------------------------------------------


def table_names_only_what_is_known_good(table: RouteTable, hindrance: Mapping[str, str]) -> None:
    """`hindrance`: why the newest facts that control has heard forbid it, by target's slot."""
    for target in targets(table):
        why = hindrance.get(str(target.slot), "")
        if why:
            raise Broken(
                "table_names_only_what_is_known_good",
                f"table {table.generation} names {target.incarnation}: {why}",
            )


def slot_is_kept_before_a_table_names_it(
    table: RouteTable, kept: Mapping[str, Mapping[str, object]]
) -> None:
    """`kept`: the store's documents of slots."""
    for target in targets(table):
        document = kept.get(str(target.slot), {})
        if document.get("incarnation") != target.incarnation:
            raise Broken(
                "slot_is_kept_before_a_table_names_it",
                f"slot {target.slot} of {target.incarnation}: the store says {document}",
            )


def a_generation_is_one_table(published: dict[int, RouteTable], table: RouteTable) -> None:
    """Over all lives of control; `published` remembers."""
    old = published.setdefault(table.generation, table)
    if old is not table and old.routes != table.routes:
        raise Broken("a_generation_is_one_table", f"two tables have number {table.generation}")


def numbers_only_grow(what: str, before: int, after: int) -> None:
    if after < before:
        raise Broken("numbers_only_grow", f"{what} went from {before} to {after}")


# --- requests ------------------------------------------------------------------------------------


def nothing_opens_on_what_is_known_bad(
    target: str, bad_since: float | None, excused_until: float, now: float, bound_s: float
) -> None:
    """`bad_since`: when control heard what forbids it. `excused_until`: control was dead, or its
    worker stopped or cut off, until then. After that a table without it is there within a bound."""
    if bad_since is not None and now > max(bad_since, excused_until) + bound_s:
        raise Broken(
            "nothing_opens_on_what_is_known_bad",
            f"a request goes to {target}, known bad for {now - bad_since:.3f} s",
        )


def nothing_reaches_what_we_drained(instance: str, request: int) -> None:
    """Called where it is so: the instance has heard Drain or Stop from us."""
    raise Broken("nothing_reaches_what_we_drained", f"request {request} reached {instance}")


def conserved(where: str, accepted: int, settled: int, held: int) -> None:
    """`held`: requests that hold a lease there, counted by themselves."""
    if accepted - settled < 0:
        raise Broken("conserved", f"{where}: in flight is {accepted - settled}")
    if accepted != settled + held:
        raise Broken("conserved", f"{where}: accepted {accepted}, settled {settled}, held {held}")


def limit_holds(target: str, held: int, limit: int, workers: int) -> None:
    """Over all workers, to within one for each worker but one."""
    if held > limit + workers - 1:
        raise Broken("limit_holds", f"{target} holds {held}, its limit is {limit}")


def answered_once(request: int, before: str, how: str) -> None:
    if before:
        raise Broken("answered_once", f"request {request} ended by {before} and by {how}")


def losses_are_named(ended: Mapping[int, str], named: Collection[int]) -> None:
    """What we ended ourselves, or lost with a process of ours, is told by name."""
    missing = [f"{request:x} ({how})" for request, how in ended.items() if request not in named]
    if missing:
        raise Broken("losses_are_named", f"{len(missing)} are not: {', '.join(missing[:3])}")


def named_once(request: int, so_far: Collection[int]) -> None:
    """In one life of control."""
    if request in so_far:
        raise Broken("named_once", f"request {request:x} is named twice")


def counts_never_go_back(key: tuple[str, str], counted: int, truth: int) -> None:
    """Attempts of a version, folded and not, are those that there were."""
    if counted != truth:
        raise Broken("counts_never_go_back", f"{key}: counted {counted}, there were {truth}")


# --- drains --------------------------------------------------------------------------------------


def drain_waits_for_every_worker(instance: str, still: Sequence[int]) -> None:
    """`still`: pids whose table leads there when the drain holds the publication for served."""
    if still:
        raise Broken("drain_waits_for_every_worker", f"{instance} is in the tables of {still}")


def drain_ends_empty(instance: str, held: int) -> None:
    """`held`: leases of living workers on it when the drain is over, or stops it."""
    if held:
        raise Broken("drain_ends_empty", f"{instance} has {held} requests in flight still")


def drain_ends_in_time(
    instance: str, phase: str, deadline: float, undisturbed: float, now: float, bound_s: float
) -> None:
    """`undisturbed`: since when no process of ours has been dead or stopped."""
    if now > max(deadline, undisturbed) + bound_s:
        late_s = now - deadline
        raise Broken("drain_ends_in_time", f"{instance} is {phase}, {late_s:.1f} s too late")


# --- intent and processes ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promise:
    """What an operator was told is so."""

    text: str
    kept: bool


def intent_is_kept(promises: Iterable[Promise]) -> None:
    for promise in promises:
        if not promise.kept:
            raise Broken("intent_is_kept", f"{promise.text}, and it is not so")


def one_loads_at_a_time(device: str, loading: Sequence[str]) -> None:
    if len(loading) > 1:
        raise Broken("one_loads_at_a_time", f"{' and '.join(loading)} load on {device}")


def started_once(name: str, running: Collection[str]) -> None:
    if name in running:
        raise Broken("started_once", f"{name} is started while it runs")


def all_is_well(complaints: Sequence[str]) -> None:
    """After a time of quiet."""
    if complaints:
        raise Broken("all_is_well", "; ".join(complaints[:4]))
