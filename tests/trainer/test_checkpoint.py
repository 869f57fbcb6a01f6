import pytest
import torch
from pydantic import ValidationError

from tradewind.trainer import checkpoint
from tradewind.trainer.config import TrainerConfig
from tradewind.trainer.learner import Learner
from tradewind.trainer.policy import Policy
from tradewind.types import UserError


@pytest.fixture
def learner(tiny):
    return Learner(Policy.wrap(tiny.tiny_model(), torch.float32), TrainerConfig())


def test_old_checkpoints_fill_the_disk(learner, tmp_path):
    for done in (2, 4, 10):
        checkpoint.save(tmp_path, "rl", done, learner.masters, learner.ranks, keep=2)
    checkpoint.save(tmp_path, "midtrain", 1, learner.masters, learner.ranks, keep=2)
    assert checkpoint.found(tmp_path, "rl") == [4, 10]
    assert checkpoint.found(tmp_path, "midtrain") == [1]
    checkpoint.discard(tmp_path, "rl", above=4)
    assert checkpoint.found(tmp_path, "rl") == [4]


def test_half_written_checkpoint_is_found(learner, tmp_path, monkeypatch):
    def crash(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(checkpoint, "write_file", crash)
        checkpoint.save(tmp_path, "rl", 2, learner.masters, learner.ranks, keep=2)
    assert checkpoint.found(tmp_path, "rl") == []
    checkpoint.save(tmp_path, "rl", 2, learner.masters, learner.ranks, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rl-00000002"]


def test_only_checkpoint_is_deleted_before_the_next_one_is_complete(learner, tmp_path, monkeypatch):
    checkpoint.save(tmp_path, "rl", 2, learner.masters, learner.ranks, keep=1)
    before = {p: p.read_bytes() for p in (tmp_path / "rl-00000002").iterdir()}

    def crash(*_):
        assert {p: p.read_bytes() for p in before} == before, "it is there while the next is made"
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(checkpoint, "write_file", crash)
        checkpoint.save(tmp_path, "rl", 4, learner.masters, learner.ranks, keep=1)
    assert checkpoint.found(tmp_path, "rl") == [2]
    checkpoint.save(tmp_path, "rl", 4, learner.masters, learner.ranks, keep=1)
    assert checkpoint.found(tmp_path, "rl") == [4]


def test_a_crash_before_the_commit_leaves_no_checkpoint_that_was_committed():
    """The newest one may be ahead of the ledger, and is thrown away then."""
    with pytest.raises(ValidationError, match="keep_checkpoints"):
        TrainerConfig(keep_checkpoints=1)


def test_checkpoint_of_two_ranks_is_read_by_one(learner, tmp_path):
    checkpoint.save(tmp_path, "rl", 3, learner.masters, learner.ranks, 2)
    state = tmp_path / "rl-00000003" / "state.json"
    state.write_text(state.read_text().replace('"world":1', '"world":2'))
    with pytest.raises(UserError, match=r"written by 2 ranks, there are 1 now.*start 2 ranks"):
        checkpoint.load(tmp_path, "rl", 3, learner)


def test_checkpoint_holds_a_pickle(learner, tmp_path):
    checkpoint.save(tmp_path, "rl", 3, learner.masters, learner.ranks, 2)
    names = {p.name for p in (tmp_path / "rl-00000003").iterdir()}
    assert names == {"state.json", "rank-0-of-1.safetensors"}
    assert (tmp_path / "rl-00000003" / "rank-0-of-1.safetensors").read_bytes()[8:9] == b"{"
