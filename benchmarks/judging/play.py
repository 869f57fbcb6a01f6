"""One run: the real ledger, grader, judge client and controller around a policy of five logits.

    Rounds (controller) ──► waiting rollouts ──► policy: five sampled choices ──► answer
         ▲    trust factors                                                          │
         │                                                                           ▼
    closed groups ◄── scores ◄── Grader ◄── judges over HTTP, truth (monitor), probes
         │
         ▼
    claimable ──► advantages ──► loss ──► step of Adam ──► commit_step

Worker, gateway, pool and trainer are played here; what decides about rewards is not.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from common.scripted_judge import ScriptedJudge

from judging.desk import CHOICES, CRITERIA, CRITERION, answer, tasks, true_reward
from judging.faults import Judges
from tradewind.algo.losses.reinforce import reinforce
from tradewind.algo.losses.terms import Terms
from tradewind.controller.config import ControllerConfig
from tradewind.controller.rounds import Rounds
from tradewind.grader.config import GraderConfig
from tradewind.grader.main import Grader
from tradewind.ledger.ledger import Ledger
from tradewind.ledger.rollouts import LeasedRollout, LeaseTerms
from tradewind.types import (
    ClosedGroup,
    Completion,
    Outcome,
    PoolReport,
    PoolState,
    Step,
    Turn,
    TurnState,
    VersionSpan,
    WeightVersion,
    turn_id,
)
from tradewind.types.trust import Standing

GROUP, GROUPS, STALENESS = 8, 4, 1
RATE = 0.4
"""Learning rate of Adam on the logits."""
MOST = 2.5
"""Bound of the logits, so that every choice is still tried in one of thirteen answers."""
START = (0.8, -1.7, -1.7, -1.7, -1.7)
"""Logits at the beginning: two thirds of the sums are worked out, few answers are decorated."""
FAULTY_WEIGHT = 4.0
"""Of the faulty judge; the honest one has 1."""
SOUND = 0.5
"""The judge that drifts is sound at first, for so many rollouts of each that it is faulty for."""
TERMS = LeaseTerms(ttl_s=600.0, deadline_s=600.0, max_running=10_000)


@dataclass
class Played:
    """What a run showed, after each step and each group that could not be trained."""

    rollouts: list[int] = field(default_factory=list)
    true: list[float] = field(default_factory=list)
    """Expected true reward of the policy, exact."""
    judged: list[float] = field(default_factory=list)
    """Mean composed reward of the last step's groups."""
    sound: int = 0
    """Rollouts before the judge became faulty."""
    steps: int = 0
    paused: str | None = None
    standings: list[Standing] = field(default_factory=list)
    factors: dict[str, float] = field(default_factory=dict)

    def faults(self, signal: str) -> set[str]:
        """Everything that this judge was ever caught at."""
        return {name for s in self.standings if s.signal == signal for name in s.faults}


class Policy:
    """Five independent choices; `log pi` of each is what a token's would be."""

    def __init__(self) -> None:
        self.logits = torch.tensor(START, requires_grad=True)
        self._adam = torch.optim.Adam([self.logits], lr=RATE)

    def probabilities(self) -> list[float]:
        """Of a yes to each choice."""
        return [float(p) for p in torch.sigmoid(self.logits.detach())]

    def sample(self, rng: random.Random) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Choices and their log-probabilities."""
        probabilities = self.probabilities()
        chosen = tuple(int(rng.random() < p) for p in probabilities)
        taken = (p if c else 1 - p for c, p in zip(chosen, probabilities, strict=True))
        return chosen, tuple(math.log(p) for p in taken)

    def learn(self, groups: list[ClosedGroup]) -> None:
        """One step on the tokens of these groups."""
        chosen, behaviour, advantage = [], [], []
        for rollout in (r for group in groups for r in group.rollouts):
            if rollout.advantage is None:
                continue
            (turn,) = rollout.turns
            assert turn.completion is not None
            chosen.append(turn.completion.output_ids)
            behaviour.append(turn.completion.logprobs)
            advantage.append([rollout.advantage] * len(CHOICES))
        logp = self._logp(torch.tensor(chosen)).flatten()
        terms = Terms(
            logp=logp,
            behaviour=torch.tensor(behaviour).flatten(),
            advantage=torch.tensor(advantage).flatten(),
            weight=torch.ones_like(logp.detach()),
        )
        loss, count, _ = reinforce(terms)
        self._adam.zero_grad()
        (loss / count).backward()
        self._adam.step()
        with torch.no_grad():
            self.logits.clamp_(-MOST, MOST)

    def _logp(self, chosen: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.logsigmoid(self.logits * (2.0 * chosen - 1.0))


class Run:
    """One arm of one scenario. `faulty` names the second judge, `honest` has two of that kind."""

    def __init__(self, folder: Path, faulty: str, seed: int, *, gated: bool) -> None:
        self._rng = random.Random(1000 + seed)
        self._judges = Judges(seed)
        self.policy, self.played = Policy(), Played()
        self._ledger = Ledger.open(folder / "ledger.sqlite", (folder / "bucket").as_uri())
        self._ledger.create_run({"run_id": f"{faulty}-{seed}", "seed": seed})
        self._ledger.add_tasks(tasks(40, seed))
        self._commit_base()
        self._criteria = folder / "criteria.toml"
        self.faulty = faulty.replace("_", "-")
        ids = ("honest", self.faulty if faulty != "honest" else "honest-too")
        self.faulty = ids[1]
        text = CRITERIA + "".join(CRITERION.format(id=name) for name in ids)
        self._criteria.write_text(text, encoding="utf-8")
        alarms = {"every_s": 0.0, "short": "off", "length": "off"}
        trust = {"off": not gated}
        self._rounds = Rounds(
            ControllerConfig(
                group_size=GROUP,
                groups_per_step=GROUPS,
                max_staleness=STALENESS,
                alarms=alarms,
                trust=trust,
            ),
            self._ledger,
            time.time,
        )

    def play(self, rollouts: int) -> Played:
        """Until so many rollouts are graded by a faulty judge, or training is paused."""
        with ScriptedJudge(self._judges.verdict) as judge, self._grader(judge.url) as grader:
            self._ledger.set_meta("training_open", True)
            sound = round(SOUND * rollouts) if self.faulty == "drift" else 0
            graded, self.played.sound = 0, sound
            with ThreadPoolExecutor(grader.threads) as threads:
                while graded < sound + rollouts:
                    self._judges.late = graded >= sound
                    self._report_pool()
                    self._rounds.look()
                    self._rounds.round()
                    played = self._play_waiting()
                    while grader.grader.grade_some(threads):
                        pass
                    graded += played
                    self._rounds.look()
                    self._rounds.round()
                    self._train()
                    self._note(graded)
                    if not played:
                        break  # paused: nothing is leased any more
        pause = self._ledger.paused()
        self.played.paused = None if pause is None else pause.cause
        now = [self._ledger.standing(j.signal, j.version) for j in self._ledger.judges()]
        self.played.standings = self._ledger.standings() + [s for s in now if s is not None]
        decided = self._ledger.factors_by_version()
        self.played.factors = {signal: factor for (signal, _), factor in decided.items()}
        self._ledger.close()
        return self.played

    @contextmanager
    def _grader(self, url: str) -> Iterator[_Graders]:
        judge = {"criteria": str(self._criteria), "url": url, "model": "scripted", "repeats": 1}
        weights = {"honest": 1.0, self.faulty: FAULTY_WEIGHT}
        signals = [
            {"name": name, "use": "judge", "weight": w, "options": {**judge, "criterion": name}}
            for name, w in weights.items()
        ]
        truth = {"use": f"{Path(__file__).with_name('truth.py')}:truth", "role": "monitor"}
        config = GraderConfig.model_validate(
            {
                "signals": [{"name": "truth", **truth}, *signals],
                "parallel": 8,
                "probes": {
                    "truth": dict.fromkeys(weights, "truth"),
                    "canary_every": 4,
                    "anchor_every": 2,
                },
            }
        )
        grader = Grader(config, self._ledger)
        try:
            yield _Graders(grader, config.parallel)
        finally:
            grader.close()

    def _play_waiting(self) -> int:
        """Lease and answer everything that waits; how many rollouts that were."""
        count = 0
        with self._ledger.together():
            while (leased := self._lease()) is not None:
                self._answer(leased)
                count += 1
        return count

    def _lease(self) -> LeasedRollout | None:
        if self._ledger.paused() is not None:
            return None
        return self._ledger.lease_next("desk", time.time(), TERMS, [self._version])

    def _answer(self, leased: LeasedRollout) -> None:
        prices = [int(n) for n in leased.input["question"][8:-1].split(" + ")]
        choices, logprobs = self.policy.sample(self._rng)
        given = answer(prices, choices, self._rng)
        turn = Turn(
            turn_id=turn_id(leased.rollout_id, 0),
            rollout_id=leased.rollout_id,
            index=0,
            parent=None,
            state=TurnState.INTENT,
            prompt_ids=(1,),
            completion=None,
            temperature=1.0,
            messages=({"role": "user", "content": leased.input["question"]},),
            started_at=time.time(),
        )
        self._ledger.write_intent(turn)
        completion = Completion(
            output_ids=choices,
            logprobs=logprobs,
            spans=(VersionSpan(version=self._version, count=len(choices)),),
            finish_reason="stop",
            pool="desk",
        )
        done = {"state": TurnState.DONE, "completion": completion, "text": given.artefacts["reply"]}
        self._ledger.finish_turn(turn.model_copy(update={**done, "finished_at": time.time()}))
        outcome = Outcome(status="completed", artefacts=given.artefacts)
        self._ledger.finish(leased.rollout_id, outcome, time.time())

    def _train(self) -> None:
        while groups := self._ledger.claimable(GROUPS, self._version, STALENESS):
            self.policy.learn(groups)
            rewards = [r.reward for g in groups for r in g.rollouts if r.reward is not None]
            self._judged = sum(rewards) / len(rewards)
            self._commit(groups)
            self.played.steps += 1

    def _note(self, graded: int) -> None:
        self.played.rollouts.append(graded)
        self.played.true.append(true_reward(self.policy.probabilities()))
        self.played.judged.append(self._judged)

    _version = 0
    _judged = float("nan")

    def _commit_base(self) -> None:
        self._ledger.commit_version(_version_record(0))

    def _commit(self, groups: list[ClosedGroup]) -> None:
        self._ledger.commit_step(
            Step(
                step=self._version,
                version=self._version + 1,
                group_ids=tuple(group.group.group_id for group in groups),
                metrics={"reward": self._judged},
                seconds=0.0,
                committed_at=time.time(),
            ),
            _version_record(self._version + 1),
        )
        self._version += 1

    def _report_pool(self) -> None:
        """The pool serves the newest version."""
        self._ledger.record_pool(
            PoolReport(
                pool="desk",
                url="http://127.0.0.1:1",
                version=self._version,
                base_state_id="s0",
                state=PoolState.SERVING,
                max_batch=64,
                running=0,
                waiting=0,
                tokens_per_s=0.0,
                dtype="float32",
                at=time.time(),
            ),
            time.time(),
        )


@dataclass(frozen=True)
class _Graders:
    grader: Grader
    threads: int


def _version_record(number: int) -> WeightVersion:
    return WeightVersion(
        version=number,
        state_id=f"s{number}",
        parent_state_id=None if number == 0 else f"s{number - 1}",
        manifest=f"manifests/{number}",
        stage="rl" if number else "base",
        bytes_shipped=1,
        bytes_full=1,
    )
