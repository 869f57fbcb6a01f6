"""One task, asked everything that can be asked without a policy.

reference ──► oracle ──► must reach the maximum, every time
                │
                ├──► mutants: most of them must not
input     ──► guesses: none of them may pass the floor
          ──► leak scan: nothing of the reference stands in the input
"""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.rewards.admission.bench import MUTANT, Bench, Made, fault_in, known_of
from tradewind.rewards.admission.guesses import Guess, guesses
from tradewind.rewards.admission.leaks import leaks
from tradewind.rewards.admission.mutants import mutants
from tradewind.rewards.admission.options import AdmissionOptions
from tradewind.rewards.admission.record import Admission, Failure, Hashes
from tradewind.rewards.panel import Panel
from tradewind.types.record import Json
from tradewind.types.task import Task

SHOWN = 3
"""Guesses and mutants that a sentence names."""


def examine(
    task: Task,
    panel: Panel | None,
    options: AdmissionOptions,
    now: Hashes,
    shared: Sequence[Failure] = (),
) -> Admission:
    """What a task shows; `shared` is what was found out about all tasks of its kind.

    Without a panel (no signal of the reward can be verified) only its text is looked at.
    """
    found = _Found(task, now, shared)
    if panel is None:
        found.leaks(None, options)
        return found.admission(None)
    bench = Bench(task, panel)
    if (fault := fault_in(task, panel)) is not None:
        found.fail("scorable", fault)
        return found.admission(bench)
    oracle, result = known_of(task, panel)
    found.values["oracle"] = oracle is not None
    if oracle is not None:
        if not found.oracle(oracle, bench, options):
            return found.admission(bench)
    elif options.need_oracle:
        found.fail("oracle", "nobody knows a right answer")
    found.guesses(guesses(task, oracle, result), bench, options)
    found.leaks(oracle, options)
    if bench.slowest_s > options.budget_s:
        took = f"{bench.slowest_s:.1f} s, at most {options.budget_s:g} s are allowed"
        found.fail("time", f"a verdict took {took}")
    return found.admission(bench)


class _Found:
    """Collects what becomes an `Admission`."""

    def __init__(self, task: Task, now: Hashes, shared: Sequence[Failure]) -> None:
        self.task, self.now = task, now
        self.failures: list[Failure] = [*shared]
        self.values: Json = {}

    def fail(self, rule: str, sentence: str) -> None:
        self.failures.append(Failure(rule=rule, sentence=sentence))

    def oracle(self, oracle: Json, bench: Bench, options: AdmissionOptions) -> bool:
        """It reaches the maximum, every time, and mutants do not; whether it has a verdict."""
        runs = [bench.score(oracle, "oracle")]
        if runs[0].reward is None:  # then nothing has one, and each attempt may be a deadline
            self.fail("scorable", f"the oracle gets no verdict: {_cause(runs[0])}")
            return False
        runs += [bench.score(oracle, "oracle") for _ in range(1, options.repeats)]
        if (what := _disagreement(runs)) is not None:
            self.fail("agreement", f"the oracle was scored {len(runs)} times: {what}")
        if runs[0].reward < options.maximum:
            got = f"gets {runs[0].reward:g} and should get {options.maximum:g}"
            self.fail("oracle", f"the oracle {got}: {_cause(runs[0])}")
            return True  # mutants of an answer that is not right show nothing
        passed = []
        tried = mutants(oracle, options.mutants)
        for mutant in tried:
            reward = bench.score(mutant.artefacts, MUTANT).reward
            if reward is not None and reward >= options.maximum:
                passed.append(mutant.done)
        rejected = len(tried) - len(passed)
        self.values |= {"mutants": len(tried), "rejected": rejected, "passed_mutants": passed}
        if tried and rejected / len(tried) < options.rejected:
            share = f"{rejected} of {len(tried)} are rejected, {options.rejected:.0%} should be"
            named = "; ".join(passed[:SHOWN])
            self.fail("mutants", f"wrong answers pass: {share} ({named})")
        return True

    def guesses(self, tried: list[Guess], bench: Bench, options: AdmissionOptions) -> None:
        """None passes the floor; doing nothing gets the same every time."""
        passed, undecided = [], 0
        for guess in tried:
            runs = [bench.score(guess.artefacts, guess.kind)]
            if guess.kind == "no-op":
                runs += [
                    bench.score(guess.artefacts, guess.kind) for _ in range(1, options.repeats)
                ]
            if (what := _disagreement(runs)) is not None:
                self.fail("agreement", f"nothing was scored {len(runs)} times: {what}")
            reward = runs[0].reward
            undecided += reward is None
            if reward is not None and reward > options.floor:
                passed.append(f"{guess.kind} {guess.shown} gets {reward:g}")
        self.values |= {"guesses": len(tried), "undecided": undecided}
        if passed:
            more = f"; {len(passed) - SHOWN} more" if passed[SHOWN:] else ""
            named = "; ".join(passed[:SHOWN])
            self.fail("guess", f"{named}{more}; at most {options.floor:g} is allowed")

    def leaks(self, oracle: Json | None, options: AdmissionOptions) -> None:
        for sentence in leaks(self.task, oracle, options.leak_characters, options.leak_share):
            self.fail("leak", sentence)

    def admission(self, bench: Bench | None) -> Admission:
        if bench is not None:
            self.values |= {"verdicts": bench.verdicts, "slowest_s": bench.slowest_s}
        return Admission(
            task_id=self.task.task_id,
            task_hash=self.now.task,
            kind_hash=self.now.kind,
            failures=tuple(self.failures),
            **self.values,
        )


def _disagreement(runs: list[Made]) -> str | None:
    """Which signal said different things about the same answer."""
    for scores in zip(*(run.scores for run in runs), strict=True):
        values = [score.value for score in scores]
        if len(set(values)) > 1:
            said = ", ".join("null" if value is None else f"{value:g}" for value in values)
            return f"{scores[0].source} said {said}"
    return None


def _cause(made: Made) -> str:
    causes = [f"{s.source}: {s.cause}" for s in made.scores if s.cause]
    return "; ".join(causes) or "no cause was given"
