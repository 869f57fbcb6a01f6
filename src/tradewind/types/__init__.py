"""Records that cross a process boundary. Torch-free, frozen, closed to unknown keys."""

from tradewind.types.beat import Beat, Event
from tradewind.types.composed import Composed
from tradewind.types.episode import Episode
from tradewind.types.errors import (
    Conflict,
    LedgerAway,
    ParentLost,
    RefusedWeights,
    Stalled,
    TradewindError,
    UserError,
)
from tradewind.types.generate import GenerateChunk, GenerateRequest, Priority
from tradewind.types.group import ClosedGroup, GradedRollout, Group, GroupState, Purpose
from tradewind.types.ids import (
    GroupId,
    RolloutId,
    TurnId,
    group_id,
    group_of,
    rollout_id,
    rollout_of,
    turn_id,
)
from tradewind.types.lease import Lease
from tradewind.types.outcome import Outcome, OutcomeStatus
from tradewind.types.record import Json, Record
from tradewind.types.sample import Sample
from tradewind.types.score import Score
from tradewind.types.step import Step
from tradewind.types.task import Split, Task
from tradewind.types.turn import Completion, FinishReason, TokenParts, Turn, TurnState, VersionSpan
from tradewind.types.weights import (
    Attestation,
    Fingerprint,
    GoTo,
    PoolOrder,
    PoolReport,
    PoolState,
    Quarantine,
    WeightVersion,
)

__all__ = [
    "Attestation",
    "Beat",
    "ClosedGroup",
    "Completion",
    "Composed",
    "Conflict",
    "Episode",
    "Event",
    "Fingerprint",
    "FinishReason",
    "GenerateChunk",
    "GenerateRequest",
    "GoTo",
    "GradedRollout",
    "Group",
    "GroupId",
    "GroupState",
    "Json",
    "Lease",
    "LedgerAway",
    "Outcome",
    "OutcomeStatus",
    "ParentLost",
    "PoolOrder",
    "PoolReport",
    "PoolState",
    "Priority",
    "Purpose",
    "Quarantine",
    "Record",
    "RefusedWeights",
    "RolloutId",
    "Sample",
    "Score",
    "Split",
    "Stalled",
    "Step",
    "Task",
    "TokenParts",
    "TradewindError",
    "Turn",
    "TurnId",
    "TurnState",
    "UserError",
    "VersionSpan",
    "WeightVersion",
    "group_id",
    "group_of",
    "rollout_id",
    "rollout_of",
    "turn_id",
]
