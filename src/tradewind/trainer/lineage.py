"""The policy's versions as the trainer holds them: parent tensors, publish, announce, look up.

Order of durability: frames and manifest in the bucket, then the ledger's commit, then the pointer
`latest/<version>`. Whoever starts again announces the newest committed version once more. Shortcuts
for late pools come after that, in the background (see `weights/ladder.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tradewind.ledger.ledger import Ledger
from tradewind.types import UserError, WeightVersion
from tradewind.weights.bucket import Bucket
from tradewind.weights.follow import Follower
from tradewind.weights.ladder import Ladder, LadderStatus
from tradewind.weights.probe import Ids, Probe, draw_ids
from tradewind.weights.publish import Publisher
from tradewind.weights.state import State
from tradewind.weights.tensors import Array, TensorSet

PROBE_IDS = "probe_ids"
"""Key in the ledger's run table."""


class Lineage:
    """One run's weight versions. `version` and `tensors` are the newest committed ones.

    `span` is the number of versions between two rungs of the ladder; 0: no shortcuts.
    """

    def __init__(
        self, ledger: Ledger, bucket: Bucket, run_id: str, base: TensorSet, span: int = 0
    ) -> None:
        odd = sorted(name for name in base if base.tag(name) != "BF16")
        if odd:
            raise UserError(
                "the base checkpoint is not all bf16", value=odd[:5], fix="convert it to bf16"
            )
        self._ledger, self._bucket, self._run_id, self._base = ledger, bucket, run_id, base
        self._publisher = Publisher(bucket, run_id)
        if not ledger.versions():
            ledger.commit_version(self._publisher.publish(0, None, {}, base, "base"))
        self.version = ledger.versions()[-1]
        self._announce_all(ledger.versions())
        self.tensors = self.at(self.version)
        self._ladder: Ladder | None = None
        if span:
            trained = [v.version for v in ledger.versions() if v.stage != "rl"]
            first = State.of(0, base)
            self._ladder = Ladder(bucket, run_id, first, span=span, rungs=trained)
            self._ladder.offer(self.version, self.tensors)  # its shortcuts may have been lost

    def at(self, version: WeightVersion) -> TensorSet:
        """The tensors of a committed version, read from the bucket and verified.

        Raises:
            RefusedWeights: an object is damaged or missing.
            UserError: the base is not the one with which the run began.
        """
        follower = Follower(self._bucket, self._base, run_id=self._run_id)
        first = self._ledger.versions()[0]
        if follower.state_id != first.state_id:
            raise UserError(
                f"the model folder is not the base of this run, {first.state_id}",
                value=follower.state_id,
                fix="give the model folder with which the run was started",
            )
        if version.version == 0:
            return self._base
        return follower.stage(version.version).state.tensors

    def probe_ids(self, vocabulary: int, texts: Sequence[Sequence[int]] = ()) -> tuple[Ids, ...]:
        """The id sequences by which this run's versions are probed: the same in every version.

        Whoever asks first decides: openings of `texts` if it has some, and draws of the run's seed.
        """
        known = self._ledger.meta(PROBE_IDS)
        if known is None:
            known = draw_ids(vocabulary, self._run_id, texts)
            self._ledger.set_meta(PROBE_IDS, known)
        return tuple(tuple(ids) for ids in known)

    def publish(
        self, new: Mapping[str, Array], stage: str, step: int, probes: tuple[Probe, ...]
    ) -> WeightVersion:
        """Upload the successor of `version`; nothing is committed or announced yet.

        `probes` are computed with `new`.
        """
        return self._publisher.publish(
            self.version.version + 1,
            self.version,
            self.tensors,
            self.named(new),
            stage,
            step=step,
            probes=probes,
        )

    def announce(self, version: WeightVersion, new: Mapping[str, Array]) -> None:
        """Let pools see a committed version; it is the parent from now on."""
        self._publisher.announce(version)
        self.version, self.tensors = version, self.named(new)
        if self._ladder is not None:
            self._ladder.offer(self.version, self.tensors)

    def close(self, deadline_s: float) -> LadderStatus:
        """Let the shortcuts that are due be published, for at most `deadline_s` seconds."""
        return self._ladder.close(deadline_s) if self._ladder is not None else LadderStatus()

    def state_id(self, new: Mapping[str, Array]) -> str:
        """The state id of a set of weights."""
        return State.of(0, self.named(new)).state_id

    def named(self, trained: Mapping[str, Array]) -> TensorSet:
        """Trained weights under the names of the base: a tied head repeats the embedding."""
        whole = dict(trained)
        if "lm_head.weight" in self._base and "lm_head.weight" not in whole:
            whole["lm_head.weight"] = whole["model.embed_tokens.weight"]
        if whole.keys() != self._base.keys():
            raise UserError(
                "the trainer's weights and the checkpoint differ in their names",
                value=sorted(whole.keys() ^ self._base.keys())[:5],
                fix="use a model family whose checkpoint names transformers keeps",
            )
        return TensorSet(whole)

    def _announce_all(self, versions: list[WeightVersion]) -> None:
        """After a crash the newest may lack its pointer; after one at the base, both may."""
        for version in versions[-2:]:
            self._publisher.announce(version)
