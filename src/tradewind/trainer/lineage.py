"""The policy's versions as the trainer holds them: the newest one, publish, announce, look up.

Order of durability: frames and manifest in the bucket, then the ledger's commit, then the pointer
`latest/<version>`. Whoever starts again announces the newest committed version once more. Shortcuts
for late pools come after that, in the background (see `weights/ladder.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from tradewind.ledger.ledger import Ledger
from tradewind.types import UserError, WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.collect import Collector
from tradewind.weights.digest import Leaf, root
from tradewind.weights.follow import Follower
from tradewind.weights.ladder import Ladder, LadderStatus
from tradewind.weights.probe import Ids, Probe, draw_ids
from tradewind.weights.publish import Publisher
from tradewind.weights.signing import Signer
from tradewind.weights.state import State
from tradewind.weights.tensors import TensorSet
from tradewind.weights.upload import Uploaded

LIVE_S = 3600.0
"""A pool that has not been heard of for so many seconds comes back by way of the base."""
PROBE_IDS = "probe_ids"
"""Key in the ledger's run table."""
TIED_HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class Lineage:
    """One run's weight versions. `version` is the newest committed one, `leaves` are its tensors'.

    `span` is the number of versions between two rungs of the ladder; 0: no shortcuts. `probe_text`
    gives the ids of a text to probe with. Raises UserError if `base` is not all bf16, or not the
    one with which the run began.
    """

    def __init__(
        self,
        ledger: Ledger,
        bucket: Bucket,
        run_id: str,
        base: TensorSet,
        span: int = 0,
        probe_text: Callable[[], Sequence[int]] = tuple,
    ) -> None:
        odd = sorted(name for name in base if base.tag(name) != "BF16")
        if odd:
            raise UserError(
                "the base checkpoint is not all bf16", value=odd[:5], fix="convert it to bf16"
            )
        self._ledger, self._bucket, self._run_id, self._base = ledger, bucket, run_id, base
        self._publisher = Publisher(bucket, run_id, signer=Signer.from_environment())
        self._collector = Collector(bucket, run_id)
        self._probe_text = probe_text
        if not ledger.versions():
            ledger.commit_version(self._publisher.publish(0, None, {}, base, "base"))
        first = State.of(0, base)
        if first.state_id != ledger.versions()[0].state_id:
            raise UserError(
                f"the model folder is not the base of this run, {ledger.versions()[0].state_id}",
                value=first.state_id,
                fix="give the model folder with which the run was started",
            )
        self.version = ledger.versions()[-1]
        self._announce_all(ledger.versions())
        self.leaves: Mapping[str, Leaf] = {}
        self._ladder: Ladder | None = None
        if span:
            trained = [v.version for v in ledger.versions() if v.stage != "rl"]
            self._ladder = Ladder(bucket, run_id, first, span=span, rungs=trained)

    def at(self, version: WeightVersion) -> TensorSet:
        """The tensors of a committed version, read from the bucket and verified.

        Raises:
            RefusedWeights: an object is damaged or missing.
        """
        if version.version == 0:
            return self._base
        follower = Follower(self._bucket, self._base, run_id=self._run_id)
        return follower.stage(version.version).state.tensors

    def probe_ids(self, vocabulary: int) -> tuple[Ids, ...]:
        """The id sequences by which this run's versions are probed: the same in every version."""
        known = self._ledger.meta(PROBE_IDS)
        if known is None:
            known = draw_ids(vocabulary, self._run_id, self._probe_text())
            self._ledger.set_meta(PROBE_IDS, known)
        return tuple(tuple(ids) for ids in known)

    def resume(self, leaves: Mapping[str, Leaf], tensors: TensorSet | None) -> None:
        """The trainer holds `version`, and its tensors if it is one rank; shortcuts to it may have
        been lost.
        """
        assert root(leaves) == self.version.state_id, "the weights in memory are the newest version"
        self.leaves = leaves
        self._offer(tensors)

    def seal(
        self,
        leaves: Mapping[str, Leaf],
        delta: Uploaded,
        stage: str,
        step: int,
        probes: tuple[Probe, ...],
    ) -> WeightVersion:
        """Name an uploaded delta as the successor of `version`; it is not committed or announced.

        `leaves` are those of all tensors after it, `probes` are computed with them.
        """
        return self._publisher.seal(self.version, self.leaves, leaves, delta, stage, step, probes)

    def announce(
        self, version: WeightVersion, leaves: Mapping[str, Leaf], tensors: TensorSet | None
    ) -> None:
        """Let pools see a committed version; it is the parent from now on.

        Without its tensors, which a rank of several does not hold, the ladder fetches them.
        """
        self._publisher.announce(version)
        self.version, self.leaves = version, leaves
        self._offer(tensors)

    def _offer(self, tensors: TensorSet | None) -> None:
        if self._ladder is not None:
            self._ladder.offer(self.version, tensors)

    def collect(self) -> int:
        """Delete what no pool has needed for a while; the bytes that are free now.

        Raises:
            RefusedWeights: something in the bucket is damaged; nothing is deleted then.
        """
        reports = self._ledger.pools(since=time.time() - LIVE_S)
        live = [report.version for report in reports]
        return self._collector.collect(live).size

    def close(self, deadline_s: float) -> LadderStatus:
        """Let the shortcuts that are due be published, for at most `deadline_s` seconds."""
        return self._ladder.close(deadline_s) if self._ladder is not None else LadderStatus()

    def twins(self, trained: Iterable[str]) -> dict[str, str]:
        """Names of the base that repeat a trained parameter: a tied head repeats the embedding.

        Raises:
            UserError: the names differ otherwise.
        """
        names = set(trained)
        found = {TIED_HEAD: EMBEDDING} if TIED_HEAD in self._base and TIED_HEAD not in names else {}
        if names | found.keys() != self._base.keys():
            raise UserError(
                "the trainer's weights and the checkpoint differ in their names",
                value=sorted((names | found.keys()) ^ self._base.keys())[:5],
                fix="use a model family whose checkpoint names transformers keeps",
            )
        return found

    def _announce_all(self, versions: list[WeightVersion]) -> None:
        """After a crash the newest may lack its pointer; after one at the base, both may."""
        for version in versions[-2:]:
            self._publisher.announce(version)
