"""The way to READY, phase by phase.

Floor 3, I/O.
Flow: find > check what is needed > check every byte > load > compile > warm up > one real answer.
What can fail in a second is checked before what takes minutes. READY follows `run` only because
everything a request can need has been done once by then. The load is held back where that was asked
for; the warm-up is not, because its times have to be those of requests.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Final

from backends import checks
from backends.asking import ask
from backends.batcher import Batcher
from backends.engines.families import Family, GraphParts, Parts
from backends.errors import DependencyMissing, InstanceError, LoadFailed
from backends.executor import Executor
from backends.facts import Facts, Loaded, LoadedGraph
from backends.keeping import Keeping
from backends.restraint import Restraint
from backends.settings import Settings
from backends.snapshots import measured
from backends.snapshots.repository import Repository, Snapshot
from backends.snapshots.steps import OnBytes
from backends.warmup import Warmed
from backends.warmup_rounds import Plan, warm_up
from sluicegate.v1.states import Phase

log = logging.getLogger(__name__)

MIB: Final = 2**20
RUN_AGAIN: Final = 0.2  # of the warm-up: each shape a second time, before any sample
FETCHED: Final = "snapshots"  # in the cache: a repository of what came from a remote one


class GivenUp(InstanceError):
    pass


class Loading:
    """One load. Afterwards `facts` can answer requests."""

    def __init__(
        self, settings: Settings, families: Mapping[str, Family], facts: Facts, rng: Random
    ) -> None:
        self._settings = settings
        self._families = families
        self._facts = facts
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self.is_given_up = False  # read by the thread that checks the files
        self._checked_bytes = 0
        self.executor: Executor | Batcher | None = None

    def give_up(self) -> None:
        """What runs in a thread ends at its next chance; a compile has none."""
        self.is_given_up = True

    async def run(self, held: ExitStack) -> None:
        """Raises: InstanceError. The snapshot cannot be removed until `held` is closed."""
        settings = self._settings
        self._report(Phase.FETCHING_MODEL, 0.0, f"looking in {settings.root}")
        repository, snapshot = await self._find(held)
        held.enter_context(repository.hold(snapshot))
        restraint = Restraint(settings.load_threads, settings.load_nice)
        restraint.begin()
        try:
            loaded = await self._load(repository, snapshot)
        finally:
            restraint.lift()
        if settings.warmup_rounds:
            self._facts.warmed = await self._warm_up(loaded)
        self._report(Phase.WARMING_UP, 1.0, "asking for an answer")
        await ask(loaded)
        if isinstance(loaded, Loaded):
            loaded.executor.forget()
        self._facts.count_from_now()
        self._keep_measured(snapshot)
        # Whoever made it fail may be gone, and no request may come to find out.
        loaded.executor.on_given_up = lambda: self._facts.blame_engine(self._loop.time())

    async def _load(self, repository: Repository, snapshot: Snapshot) -> Loaded | LoadedGraph:
        """Every shape has run.

        Raises: InstanceError.
        """
        settings = self._settings
        family = self._families[snapshot.manifest.engine]
        needs = self._check(family, snapshot)
        await self._check_files(repository, snapshot)
        loaded = _loaded(family.build(snapshot, settings), settings, self._rng)
        self.executor = loaded.executor
        self._facts.load(loaded, settings.queue_max)
        try:
            await loaded.executor.start(self._loads)
        except LoadFailed as exc:
            held_bytes = self._facts.readings().memory_peak_bytes
            raise checks.told(exc, needs, self._facts.memory(), held_bytes) from exc
        return loaded

    def _check(self, family: Family, snapshot: Snapshot) -> checks.Needed:
        """What takes no time to find out. Each finding is told.

        Raises: DependencyMissing, SnapshotInvalid, LoadFailed.
        """
        settings = self._settings
        needs = checks.needed(snapshot, settings)
        steps: tuple[Callable[[], str], ...] = (
            lambda: checks.device(settings.device_kind),
            lambda: checks.cache(settings.cache_root),
            lambda: checks.memory(needs, self._facts.memory()),
        )
        self._report(Phase.CHECKING_DEPENDENCIES, 0.0, "checking what must be installed")
        family.require()
        for step in steps:
            self._report(Phase.CHECKING_DEPENDENCIES, 0.0, step())
        return needs

    async def _warm_up(self, loaded: Loaded | LoadedGraph) -> Warmed:
        """Raises: LoadFailed."""
        settings = self._settings
        plan = Plan(settings.warmup_rounds, settings.warmup_samples, settings.warmup_baseline_ms)

        def told(share: float, words: str) -> None:
            self._report(Phase.WARMING_UP, RUN_AGAIN + (1 - RUN_AGAIN) * share, words)

        return await warm_up(loaded, settings.model, plan, told)

    async def _find(self, held: ExitStack) -> tuple[Repository, Snapshot]:
        """Raises: SnapshotInvalid, DependencyMissing, StoreFailed."""
        settings = self._settings
        if isinstance(settings.root, Path):
            repository = Repository(settings.root)
            return repository, repository.locate(settings.model, settings.version)
        try:
            from backends.snapshots.remote import RemoteRepository, fetch
        except ModuleNotFoundError as exc:
            raise DependencyMissing(f"{exc}: pip install 'sluicegate[mindspore]'") from exc
        named = (settings.model, settings.version)
        remote, local = RemoteRepository(settings.root), Repository(settings.cache_root / FETCHED)
        # The same house rule is broken as below, for the same reason.
        snapshot = await asyncio.to_thread(fetch, remote, local, *named, self._steps)
        holder = f"{settings.instance_id}.{self._rng.getrandbits(32):08x}"
        await Keeping(remote, *named, holder).begin(held)
        return local, snapshot

    @contextmanager
    def _steps(self, what: str, total_bytes: int) -> Iterator[OnBytes]:
        """A step of fetching, told from a thread."""
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            if self.is_given_up:
                raise GivenUp(f"stopped while {what}")
            done += count
            share, words = done / max(total_bytes, 1), f"{done // MIB} of {total_bytes // MIB} MiB"
            self._loop.call_soon_threadsafe(
                self._report, Phase.FETCHING_MODEL, share, f"{words} fetched"
            )

        yield on_bytes

    def _keep_measured(self, snapshot: Snapshot) -> None:
        """Note beside the snapshot what it really takes, if this is what it promises."""
        settings = self._settings
        if not checks.keeps_promise(snapshot, settings):
            return
        held_bytes = self._facts.readings().memory_peak_bytes
        try:
            measured.keep(snapshot.folder, settings.device_kind, held_bytes)
        except OSError as exc:  # often on purpose: weights that instances cannot write to
            log.info("measured memory was not kept", extra={"reason": str(exc)})

    async def _check_files(self, repository: Repository, snapshot: Snapshot) -> None:
        """Raises: SnapshotInvalid naming the file."""
        total = sum(entry.bytes for entry in snapshot.manifest.files)

        def on_bytes(count: int) -> None:
            if self.is_given_up:
                raise GivenUp("stopped while the files were checked")
            self._loop.call_soon_threadsafe(self._checked, count, total)

        # A house rule broken (one thread): the model's thread does not exist yet, and the loop must
        # answer polls while gigabytes are hashed.
        await asyncio.to_thread(repository.verify, snapshot, on_bytes)

    def _checked(self, count: int, total: int) -> None:
        self._checked_bytes += count
        done = f"{self._checked_bytes // MIB} of {total // MIB} MiB checked"
        self._report(Phase.CHECKING_DEPENDENCIES, self._checked_bytes / max(total, 1), done)

    def _loads(self, phase: Phase, share: float, words: str) -> None:
        """From the engine. What it runs a second time is the beginning of the warm-up only."""
        rest = RUN_AGAIN if phase is Phase.WARMING_UP and self._settings.warmup_rounds else 1.0
        self._report(phase, rest * share, words)

    def _report(self, phase: Phase, share: float, words: str) -> None:
        self._facts.life.progress(phase, share, words, self._loop.time())


def _loaded(parts: Parts | GraphParts, settings: Settings, rng: Random) -> Loaded | LoadedGraph:
    """What will answer once it is started."""
    if isinstance(parts, GraphParts):
        batcher = Batcher(parts.engine, parts.max_delay_s, settings.queue_max)
        return LoadedGraph(batcher, parts.engine.signature)
    return Loaded(
        executor=Executor(
            parts.engine, settings.queue_max, prefix_reuse=settings.prefix_reuse, rng=rng
        ),
        text=parts.text,
        scan=parts.scan,
        defaults=parts.defaults,
        slots=parts.engine.slots,
        max_seq_len=parts.engine.max_seq_len,
    )
