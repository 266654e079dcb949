"""The way of a server to READY: asked, judged, and told, until it is there or never will be.

Floor 3, I/O.
Flow: health > models > verification > warm-up samples.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Final

from backends.errors import DependencyMissing, LoadFailed
from backends.external import questions
from backends.external.asking import Asker
from backends.external.derive import FINE, Patience, Stage, Verdict, Way, follow, place
from backends.external.presets import Protocol
from backends.external.questions import Answered, Question
from backends.external.settings import AgentSettings
from backends.life import Life
from sluicegate.v1.states import Phase

log = logging.getLogger(__name__)

FIRST_AGAIN_S: Final = 0.1  # while it is not up: small servers are up at once
EARLY_S: Final = 10.0
ROUNDS: Final = 3  # of the warm-up: the last is compared with the first


class Readiness:
    def __init__(self, settings: AgentSettings, asker: Asker, life: Life) -> None:
        self._settings = settings
        self._asker = asker
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._question: Question | None = None  # the verification, once its form is known
        self._warmed = 0

    async def reach(self) -> None:
        """Returns when the server has shown all that READY means.

        Raises: LoadFailed, DependencyMissing.
        """
        way, asked = Way(), False
        limit_s = self._settings.load_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while way.stage is not Stage.DONE:
                    self._tell(way, asked)
                    verdict = await self._ask(way.stage)
                    asked = True
                    way = follow(way, verdict)
                    if way.is_over:
                        raise (DependencyMissing if way.is_unusable else LoadFailed)(way.reason)
                    if verdict.problem:
                        self._tell(way, asked)
                        await asyncio.sleep(self._pause_s(way))
        except TimeoutError:
            raise LoadFailed(f"not ready after {limit_s:g} s: {way.reason}") from None

    def _pause_s(self, way: Way) -> float:
        early = self._loop.time() - self._began < EARLY_S
        return FIRST_AGAIN_S if early and not way.refusals else self._settings.again_s

    def _tell(self, way: Way, asked: bool) -> None:
        now = self._loop.time()
        samples = max(1, ROUNDS * len(self._settings.warm_up))
        phase, share = place(way, asked, now - self._began, self._warmed / samples)
        standing = self._life.standing
        if (phase, way.reason) != (standing.phase, standing.reason) or phase is Phase.LOADING_MODEL:
            self._life.progress(phase, share, way.reason, now)

    async def _ask(self, stage: Stage) -> Verdict:
        settings = self._settings
        match stage:
            case Stage.HEALTH:
                reply = await self._asker.ask(
                    Question("GET", settings.health), settings.health_timeout_s
                )
                return questions.judge_health(reply, settings.health)
            case Stage.MODELS:
                reply = await self._asker.ask(
                    Question("GET", settings.models), settings.health_timeout_s
                )
                return questions.judge_models(
                    reply, settings.models, settings.protocol, settings.model
                )
            case Stage.VERIFICATION:
                return await self._verify()
            case Stage.WARM_UP:
                return await self._warm_up()
            case _:
                return FINE

    # --- a real request -----------------------------------------------------------------------

    async def _verify(self) -> Verdict:
        if self._settings.protocol is Protocol.KSERVE:
            return await self._verify_tensors()
        settings = self._settings
        routes = (settings.verify,) if settings.verify else questions.ROUTES
        verdict = FINE
        for route in routes:
            question = questions.text_question(
                settings.base, route, settings.model, settings.verify_prompt
            )
            reply = await self._asker.ask(question, settings.verify_timeout_s)
            verdict = questions.judge_answer(reply, question)
            if isinstance(reply, Answered) and reply.status in questions.NOT_THERE:
                continue
            self._question = question
            break
        return verdict

    async def _verify_tensors(self) -> Verdict:
        settings = self._settings
        described = await self._asker.ask(
            Question("GET", settings.models), settings.health_timeout_s
        )
        body = described.body if isinstance(described, Answered) else b""
        question = questions.tensor_question(settings.base, settings.model, body)
        if question is None:
            problem = f"{settings.models} does not say which tensors {settings.model} takes"
            return Verdict(problem, Patience.FEW)
        reply = await self._asker.ask(question, settings.verify_timeout_s)
        self._question = question
        return questions.judge_answer(reply, question)

    async def _warm_up(self) -> Verdict:
        """Samples of every length, in rounds; those that the server finds too long are left out."""
        if self._question is None:
            return FINE
        rounds: list[float] = []
        for number in range(ROUNDS):
            began = self._loop.time()
            for words in self._settings.warm_up:
                question = self._sample(self._question, words)
                reply = await self._asker.ask(question, self._settings.verify_timeout_s)
                verdict = questions.judge_answer(reply, question)
                if verdict.patience is Patience.FEW_UNUSABLE:
                    log.info("sample left out", extra={"words": words, "why": verdict.problem})
                elif verdict.problem:
                    return replace(verdict, problem=f"warm-up, {words} words: {verdict.problem}")
                self._warmed += 1
                self._tell(Way(Stage.WARM_UP, f"round {number + 1} of {ROUNDS}"), asked=True)
            rounds.append(self._loop.time() - began)
        log.info("warmed up", extra={"first_round_s": rounds[0], "last_round_s": rounds[-1]})
        return FINE

    def _sample(self, question: Question, words: int) -> Question:
        settings = self._settings
        if settings.protocol is Protocol.KSERVE:
            return question
        route = question.url.removeprefix(settings.base)
        return questions.text_question(
            settings.base, route, settings.model, questions.sample(words)
        )
