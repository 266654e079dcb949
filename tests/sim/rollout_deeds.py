"""What befalls a rollout: operators who press every button, bad versions, outages, silence."""

from random import Random

from gateway.control import SetWeights
from gateway.fleet.rollout import Watch
from gateway.rollout.machine import Phase
from gateway.rollouts import (
    AbortRollout,
    PauseRollout,
    PromoteRollout,
    ResumeRollout,
    RetryRollout,
    StartRollout,
)
from tests.sim.deeds import ORDERLY, TROUBLE, Deeds, File, Step
from tests.sim.rollout_world import MODEL, NEW, NEWER, OLD, RolloutWorld
from tests.sim.schedule import Kind

STEPS = 40
WAYS = (
    (
        {"weight": 20, "hold_s": 1, "requests_min": 4},
        {"weight": 100, "hold_s": 1, "requests_min": 4},
    ),
    (
        {"weight": 5, "hold_s": 0.5, "requests_min": 1},
        {"weight": 50, "hold_s": 2, "requests_min": 8},
    ),
    ({"weight": 50, "hold_s": 1, "requests_min": 3, "gate": True},),
)
KEYS = """
[model.rollout]
keep_old_s = 2
ready_timeout_s = 8
[[model]]
name = "n"
"""


def text_of(file: File) -> str:
    return file.text().replace('[[model]]\nname = "n"\n', KEYS)


class RolloutDeeds(Deeds):
    def traffic(self) -> None:
        """A second or two of it, at m."""
        for _ in range(self.rng.randrange(10, 40)):
            self._later(self.rng.uniform(0, 2.0), self.one_request)

    def one_request(self) -> None:
        self.world.request(MODEL, "", -1, 0.03, True)

    def start_rollout(self) -> None:
        replicas = self.rng.choice((None, None, 1, 0))
        steps = self.rng.choice(WAYS)
        self.world.ask(StartRollout(MODEL, NEW, replicas, steps, None, self.rng.random() < 0.3))

    def roll_out_the_old_one(self) -> None:
        self.world.ask(StartRollout(MODEL, OLD, None, WAYS[0]))

    def roll_out_another(self) -> None:
        """That no file names: nothing of it stays when it has been replaced in its turn."""
        self.world.ask(StartRollout(MODEL, self.rng.choice(NEWER), 1, self.rng.choice(WAYS)))

    def promote(self) -> None:
        self.world.ask(PromoteRollout(MODEL, self.rng.random() < 0.3))

    def pause(self) -> None:
        self.world.ask(PauseRollout(MODEL))

    def resume(self) -> None:
        self.world.ask(ResumeRollout(MODEL))

    def abort(self) -> None:
        self.world.ask(AbortRollout(MODEL, self.rng.choice(("", "too slow"))))

    def retry(self) -> None:
        self.world.ask(RetryRollout(MODEL, self.rng.random() < 0.5))

    def weights_over_it(self) -> None:
        self.world.ask(SetWeights(MODEL, {OLD: 70.0, NEW: 30.0}, override=True))

    def break_new(self) -> None:
        """It fails, for good or for a while."""
        self.world.failing[NEW] = self.rng.choice((0.1, 0.5, 1.0))
        if self.rng.random() < 0.5:
            self._later(self.rng.choice((0.2, 1.0, 3.0)), self.mend)

    def outage(self) -> None:
        self.world.failing = {OLD: 0.5, NEW: 0.5}
        self._later(self.rng.choice((0.2, 1.0)), self.mend)

    def mend(self) -> None:
        self.world.failing = {}

    def settle(self) -> None:
        """Somebody looks after it until it has ended, and clients come."""
        for _ in range(20):
            self._later(self.rng.uniform(0, 0.5), self.one_request)
        control = self.world.control
        rollout = control.fleet.rollout(MODEL) if control is not None else None
        if rollout is None or control is None or control.fleet.asks:
            return
        if rollout.phase is Phase.PAUSED:
            self.resume()
        elif control.fleet.watches.get(MODEL, Watch()).said.startswith("waits for promote"):
            self.promote()

    def reload(self) -> None:
        rng = self.rng
        file = File(ones=rng.choice((1, 2, 2)), weight=rng.choice((0, 0, 0, 10)), statics=("s-0",))
        self.world.file_text = text_of(file)
        self.world.reload()


PRESSED = {
    "traffic": 40, "start_rollout": 14, "promote": 5, "pause": 3, "resume": 5, "abort": 3,
    "retry": 5, "weights_over_it": 2, "weights": 2, "reset_weights": 1, "break_new": 6,
    "outage": 3, "mend": 3, "roll_out_the_old_one": 2, "roll_out_another": 8,
}  # fmt: skip
LESS = {name: max(1, often // 3) for name, often in {**ORDERLY, **TROUBLE}.items()}


def draw(seed: int) -> tuple[Step, ...]:
    """The schedule of a number. Each third has no misfortune."""
    rng = Random(seed)
    calm = {name: often for name, often in LESS.items() if name in ORDERLY}
    deeds = {**(calm if seed % 3 == 0 else LESS), **PRESSED}
    names = rng.choices(list(deeds), list(deeds.values()), k=STEPS)
    pauses = (0.0, 0.003, 0.05, 0.5, 1.5, 3.0)
    return tuple(Step(name, rng.getrandbits(48), rng.choice(pauses)) for name in names)


ROLLOUTS = Kind(RolloutWorld, text_of(File(weight=0)), RolloutDeeds)
