"""The schema.

    run, tasks                      what the run is about
    draws -> groups -> rollouts     one draw of a task, its attempts, their rollouts
    keys, turns                     what the gateway needs and captures
    tenants                         customers with a worker key and quotas of their own
    compositions                    what the reward of a group is made of
    judges, standings               who judges, how far each is trusted and since when
    labels, probes                  what people said, what judges were asked beside the rewards
    outcomes, scores, credits       what came of a rollout
    rescorings, rescored            what another reward would have said of it
    steps, consumption, versions    what was trained, from which groups, into which weights
    returns                         versions that have the weights of an earlier one again
    pools, attestations             who serves which version, and its proof
    evals, beats, events, user_chats, holders

What is queried is a column; what nobody queries is JSON, and tokens are payloads (`payloads.py`).
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA = 9
"""Raised with every incompatible change; a ledger of another schema is refused."""

metadata = MetaData()

run = Table(
    "run",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", JSON, nullable=False),
)

tasks = Table(
    "tasks",
    metadata,
    Column("task_id", String, primary_key=True),
    Column("position", Integer, nullable=False, unique=True),
    Column("kind", String, nullable=False),
    Column("split", String, nullable=False),
    Column("input", JSON, nullable=False),
    Column("reference", JSON, nullable=False),
)

draws = Table(
    "draws",
    metadata,
    Column("draw", Integer, primary_key=True, autoincrement=False),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("state", String, nullable=False),  # open | queued | consumed
    Column("attempt", Integer, nullable=False, default=0),
    Column("not_before", Integer, nullable=False, default=0),  # fresh draws that come before it
    Index("draws_by_state", "state", "draw"),
)

groups = Table(
    "groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("number", Integer, nullable=False, unique=True),
    Column("task_id", ForeignKey("tasks.task_id"), nullable=False),
    Column("draw", ForeignKey("draws.draw")),  # None for evaluation
    Column("purpose", String, nullable=False),
    Column("size", Integer, nullable=False),
    Column("attempt", Integer, nullable=False, default=0),
    Column("eval_name", ForeignKey("evals.name")),
    Column("opened_version", Integer, nullable=False),
    Column("min_version", Integer, nullable=False),  # older weights must not answer
    Column("state", String, nullable=False),
    Column("cause", Text),
    Column("composition", ForeignKey("compositions.version")),  # set with its first graded rollout
    Column("factors", JSON),  # trust of each judged signal when it closed
    Column("left_out", JSON),  # signals that left the formula, and why
    Column("opened_at", Double, nullable=False),
    Column("closed_at", Double),
    Index("groups_by_state", "state", "purpose", "number"),
    Index("groups_by_eval", "eval_name"),
)

rollouts = Table(
    "rollouts",
    metadata,
    Column("rollout_id", String, primary_key=True),
    Column("group_id", ForeignKey("groups.group_id"), nullable=False),
    Column("number", Integer, nullable=False),  # of its group, for ordering
    Column("idx", Integer, nullable=False),
    Column("priority", Integer, nullable=False),  # 0 evaluation, 1 training
    Column("state", String, nullable=False),  # waiting | running | finished | graded | cancelled
    Column("null", Integer, nullable=False, default=0),  # 1: graded, and a score is null
    Column("worker", String),
    Column("tenant", ForeignKey("tenants.name")),  # None: leased with the run's own worker key
    Column("request", String),  # the caller's id of the request that leased it
    Column("leased_at", Double),
    Column("lease_until", Double),
    Column("lease_ttl", Double),
    Column("deadline", Double),
    Column("token_budget", Integer),  # of its model key; None: no limit
    Column("dismissed", Boolean, nullable=False, default=False),  # told that it is used up
    Column("grader", String),
    Column("grader_until", Double),
    Column("grader_claims", Integer, nullable=False, default=0),
    Column("put_off", Integer, nullable=False, default=0),  # how often a judge was waited for
    UniqueConstraint("group_id", "idx"),
    Index("rollouts_by_state", "state", "priority", "number", "idx"),
    Index("rollouts_by_number", "number", "idx"),
    Index("rollouts_by_tenant", "tenant", "leased_at"),
    Index("rollouts_by_request", "request"),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", String, primary_key=True),
    Column("digest", String, nullable=False, unique=True),  # sha256 of its worker key
    Column("max_open", Integer, nullable=False),
    Column("per_minute", Integer, nullable=False),
    Column("token_budget", Integer),  # of each of its rollouts; None: the run's
    Column("kinds", JSON),  # of tasks that it may see; None: all
    Column("revoked", Boolean, nullable=False, default=False),
    Column("added_at", Double, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("digest", String, primary_key=True),  # sha256 of the key; the key itself is nowhere
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), nullable=False),
    Column("kind", String, nullable=False),  # model | result
)

turns = Table(
    "turns",
    metadata,
    Column("turn_id", String, primary_key=True),
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), nullable=False),
    Column("idx", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("delivered", Boolean, nullable=False, default=False),
    Column("oldest_version", Integer),
    Column("newest_version", Integer),
    Column("tokens", Integer),  # sampled, of a lost turn too
    Column("pool", String),
    Column("started_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("request", String(64), nullable=False),  # payloads, see payloads.py
    Column("answer", String(64)),  # None unless done
    UniqueConstraint("rollout_id", "idx"),
    Index("turns_by_state", "state", "delivered", "tokens"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("status", String, nullable=False),  # as it counts
    Column("detail", Text),
    Column("reported", JSON, nullable=False),  # as the worker sent it
    Column("at", Double, nullable=False),
)

compositions = Table(
    "compositions",
    metadata,
    Column("version", String, primary_key=True),
    Column("position", Integer, nullable=False, unique=True),  # the newest one is in use
    Column("data", JSON, nullable=False),
    Column("registered_at", Double, nullable=False),
)

scores = Table(
    "scores",
    metadata,
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("source", String, primary_key=True),
    Column("source_version", String, nullable=False),
    Column("value", Double),
    Column("cause", Text),
    Column("evidence", JSON, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("at", Double, nullable=False),
    Index("scores_by_source", "source", "source_version", "at"),
)

judges = Table(
    "judges",
    metadata,
    Column("signal", String, primary_key=True),
    Column("version", String, nullable=False),  # the one that graders ask now
    Column("minimum", String, nullable=False),  # state below which it has no weight
    Column("truth", String),  # signal whose verdicts are free labels
    Column("about", JSON, nullable=False),
)

standings = Table(
    "standings",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("signal", String, nullable=False),
    Column("version", String, nullable=False),
    Column("state", String, nullable=False),
    Column("data", JSON, nullable=False),  # as it was decided
    Column("now", JSON, nullable=False),  # the same state as last seen
    Index("standings_by_judge", "signal", "version", "number"),
)

labels = Table(
    "labels",
    metadata,
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("signal", String, primary_key=True),
    Column("rater", String, primary_key=True),
    Column("source", String, nullable=False),  # person | model
    Column("sampling", String, nullable=False),  # random | disagreement
    Column("value", Double, nullable=False),
    Column("at", Double, nullable=False),
    Index("labels_by_signal", "signal", "at"),
)

probes = Table(
    "probes",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("signal", String, nullable=False),
    Column("version", String, nullable=False),
    Column("rollout_id", ForeignKey("rollouts.rollout_id")),
    Column("values", JSON, nullable=False),
    Column("expected", Double),
    Column("evidence", JSON, nullable=False),
    Column("at", Double, nullable=False),
    Index("probes_by_judge", "signal", "version", "kind", "number"),
)

rescorings = Table(
    "rescorings",
    metadata,
    Column("rescoring", Integer, primary_key=True, autoincrement=False),
    Column("composition", String, nullable=False),  # its version; it need never have been in use
    Column("data", JSON, nullable=False),
    Column("at", Double, nullable=False),
)

rescored = Table(
    "rescored",
    metadata,
    Column("rescoring", ForeignKey("rescorings.rescoring"), primary_key=True),
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("reward", Double),  # what it would have been; what was trained is in `credits`
    Column("scores", JSON, nullable=False),
)

credits = Table(
    "credits",
    metadata,
    Column("rollout_id", ForeignKey("rollouts.rollout_id"), primary_key=True),
    Column("reward", Double),
    Column("advantage", Double),
)

versions = Table(
    "versions",
    metadata,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("state_id", String, nullable=False),
    Column("parent_state_id", String),
    Column("manifest", String, nullable=False),
    Column("stage", String, nullable=False),
    Column("bytes_shipped", BigInteger, nullable=False),
    Column("bytes_full", BigInteger, nullable=False),
    Column("committed_at", Double, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("version", ForeignKey("versions.version"), nullable=False, unique=True),
    Column("metrics", JSON, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("committed_at", Double, nullable=False),
)

returns = Table(
    "returns",
    metadata,
    Column("version", ForeignKey("versions.version"), primary_key=True),
    Column("back_to", ForeignKey("versions.version"), nullable=False),
    Column("who", String, nullable=False),
    Column("why", Text, nullable=False),
    Column("at", Double, nullable=False),  # when it was asked for
)

consumption = Table(
    "consumption",
    metadata,
    Column("group_id", ForeignKey("groups.group_id"), primary_key=True),  # at most once (R7)
    Column("step", ForeignKey("steps.step"), nullable=False, index=True),
    Column("position", Integer, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("pool", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("report", JSON, nullable=False),
    Column("at", Double, nullable=False),  # by the controller's clock
)

attestations = Table(
    "attestations",
    metadata,
    Column("pool", String, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("activated_at", Double, primary_key=True),
    Column("state_id", String, nullable=False),
    Column("bytes_fetched", BigInteger, nullable=False),
    Column("stage_s", Double, nullable=False),
    Column("pause_ms", Double, nullable=False),
    Column("probe_mean", Double),
    Column("probe_max", Double),
)

evals = Table(
    "evals",
    metadata,
    Column("name", String, primary_key=True),
    Column("split", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("limit", Integer),
    Column("opened", Boolean, nullable=False, default=False),
    Column("requested_at", Double, nullable=False),
)

beats = Table(
    "beats",
    metadata,
    Column("process", String, primary_key=True),
    Column("doing", Text, nullable=False),
    Column("waiting_for", Text),
    Column("owner", String),
    Column("since", Double, nullable=False),
    Column("at", Double, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("event", Integer, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("process", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("subject", String),
    Column("detail", Text, nullable=False),
)

user_chats = Table(
    "user_chats",
    metadata,
    Column("request_id", String, primary_key=True),
    Column("started_at", Double, nullable=False),
    Column("ttft_s", Double),
    Column("seconds", Double, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("version", Integer),
    Column("pool", String),
    Column("error", Text),
)

holders = Table(
    "holders",
    metadata,
    Column("name", String, primary_key=True),  # `trainer`
    Column("owner", String, nullable=False),
    Column("until", Double, nullable=False),
)
