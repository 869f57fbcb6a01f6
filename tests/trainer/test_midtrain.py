import json
import random

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tradewind.ledger.ledger import Ledger
from tradewind.trainer import checkpoint, corpus
from tradewind.trainer.config import MidtrainConfig, TrainerConfig
from tradewind.trainer.crew import Crew
from tradewind.trainer.learner import Learner
from tradewind.trainer.loop import train
from tradewind.trainer.midtrain import midtrain
from tradewind.trainer.next_token import next_token
from tradewind.trainer.policy import Policy
from tradewind.trainer.progress import MetricsFile
from tradewind.trainer.run import Run
from tradewind.types import Conflict, UserError
from tradewind.weights.publish import Publisher

CONFIG = {
    "steps": 6,
    "lr": 1e-2,
    "sequence_length": 16,
    "rows_per_step": 2,
    "heldout_every": 3,
    "checkpoint_every": 2,
    "lease_ttl_s": 1.0,
    "dtype": "fp32",
}
WORDS = ["select", "from", "where", "orders", "customers", "name", "id", "count", "group", "by"]


class Crash(Exception):
    pass


@pytest.fixture
def run(tiny, tmp_path):
    model = tiny.save_model(tmp_path / "model", eos_token_id=2)
    vocabulary = {word: 10 + i for i, word in enumerate(WORDS)} | {"?": 9}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(model / "tokenizer.json"))
    tiny.fill(tmp_path / "ledger.sqlite", 2).close()
    return Run(workspace=tmp_path, model=model, run_id="tiny")


@pytest.fixture
def documents(tmp_path):
    draw = random.Random(0)
    lines = []
    for number in range(40):
        start = draw.randrange(5)
        text = " ".join(WORDS[start : start + draw.randint(3, 6)])
        split = "heldout" if number % 8 == 0 else "train"
        lines.append({"doc_id": f"d{number}", "kind": "k", "split": split, "text": text})
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def outcome(run):
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    states = [(v.version, v.stage, v.state_id) for v in ledger.versions()]
    heldout = ledger.meta("midtrain_heldout")
    assert ledger.meta("midtrain_step") == CONFIG["steps"]
    ledger.close()
    lines = MetricsFile(run.workspace, "midtrain").read()
    return states, heldout, [(line["step"], line.get("loss")) for line in lines]


def test_heldout_loss_does_not_fall(run, documents):
    midtrain(MidtrainConfig(**CONFIG), run, documents)
    states, heldout, lines = outcome(run)
    assert [(version, stage) for version, stage, _ in states] == [(0, "base"), (1, "midtrain")]
    assert [step for step, _ in heldout] == [0, 3, 6]
    assert heldout[-1][1] < 0.8 * heldout[0][1]
    assert [step for step, _ in lines] == list(range(7))
    assert checkpoint.found(run.checkpoints, "midtrain") == []


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [(Learner, "update", 4), (Crew, "save", 2), (Publisher, "seal", 1),
     (Ledger, "commit_version", 2), (Publisher, "announce", 2)],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True])
def test_crash_changes_the_published_weights(run, documents, tmp_path, owner, name, calls, after):
    midtrain(MidtrainConfig(**CONFIG), run, documents)
    expected = outcome(run)
    other = Run(tmp_path / "other", run.model, "tiny")
    other.workspace.mkdir()
    original, seen = getattr(owner, name), []

    def crashing(*args, **kwargs):
        seen.append(name)
        if len(seen) == calls and not after:
            raise Crash
        result = original(*args, **kwargs)
        if len(seen) == calls:
            raise Crash
        return result

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(owner, name, crashing)
        midtrain(MidtrainConfig(**CONFIG), other, documents)
    midtrain(MidtrainConfig(**CONFIG), other, documents)
    assert outcome(other) == expected


def test_rl_starts_from_the_base_after_mid_training(run, documents):
    midtrain(MidtrainConfig(**CONFIG), run, documents)
    train(TrainerConfig(steps=1, groups_per_step=2, max_staleness=1, lr=1e-12, dtype="fp32"), run)
    ledger = Ledger.open(run.workspace / "ledger.sqlite")
    _, middle, last = ledger.versions()
    assert last.state_id == middle.state_id and last.stage == "rl"
    ledger.close()
    with pytest.raises(Conflict, match="RL has begun"):
        raise_after_forgetting(run, documents)


def raise_after_forgetting(run, documents):
    """As if the ledger had an RL version and no mid-trained one."""
    with pytest.MonkeyPatch.context() as patch:
        original = Ledger.versions
        patch.setattr(
            Ledger,
            "versions",
            lambda self: [v.model_copy(update={"stage": "rl"}) for v in original(self)],
        )
        midtrain(MidtrainConfig(**CONFIG), run, documents)


def test_documents_see_each_other_or_are_scored_wrongly(tiny):
    row = [[5, 6, 7, 2], [8, 9], [5, 6, 3, 2]]
    policy = Policy(tiny.tiny_model())
    learner = Learner(policy, MidtrainConfig())
    plain = tiny.tiny_model()

    def expected(pieces):
        total = 0.0
        for piece in pieces:
            logp = plain(torch.tensor([piece])).logits[0].detach().log_softmax(-1)
            total -= sum(float(logp[i, piece[i + 1]]) for i in range(len(piece) - 1))
        return total

    apart = learner.measure(corpus.row_samples(row, True, "r"), 0, next_token)
    joined = learner.measure(corpus.row_samples(row, False, "r"), 0, next_token)
    assert apart["loss"] == pytest.approx(expected(row), rel=1e-5)
    assert joined["loss"] == pytest.approx(expected([[t for p in row for t in p]]), rel=1e-5)
    assert (apart["tokens"], joined["tokens"]) == (7, 9)


def test_rows_lose_tokens_or_repeat_their_order():
    documents = [[n] * (n + 1) for n in range(1, 8)]
    total = sum(map(len, documents))
    stream = corpus.rows(documents, 5, seed=1)
    taken = [next(stream) for _ in range(2 * total // 5)]
    assert all(sum(map(len, row)) == 5 for row in taken)
    tokens = [t for row in taken for piece in row for t in piece]
    assert sorted(tokens[:total]) == sorted(t for d in documents for t in d)
    assert tokens[:total] != tokens[total : 2 * total]
    again = corpus.rows(documents, 5, seed=1)
    assert [next(again) for _ in taken] == taken
    other = corpus.rows(documents, 5, seed=2)
    assert [next(other) for _ in taken] != taken


def test_a_document_with_an_unescaped_end_of_line_is_no_document(run, tmp_path):
    """JSON escapes neither U+2028 nor U+0085, at which `str.splitlines` cuts."""
    file = tmp_path / "corpus.jsonl"
    line = {"doc_id": "a", "kind": "k", "split": "train", "text": "name\u2028id\x85count"}
    file.write_text(json.dumps(line, ensure_ascii=False) + "\r\n", encoding="utf-8")
    found = corpus.read_corpus(file, run.model)
    assert found.train == [[15, 16, 17, 2]]


def test_limits_saved_with_the_tokenizer_cut_or_pad_documents(run, documents):
    expected = corpus.read_corpus(documents, run.model)
    file = str(run.model / "tokenizer.json")
    probe = run.probe_text()
    tokenizer = Tokenizer.from_file(file)
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    tokenizer.save(file)
    assert corpus.read_corpus(documents, run.model) == expected
    assert run.probe_text() == probe


@pytest.mark.parametrize("eos", [None, []])
def test_a_model_without_an_end_of_text_is_a_traceback(run, documents, eos):
    file = run.model / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": eos}))
    with pytest.raises(UserError, match="no token that ends a document"):
        corpus.read_corpus(documents, run.model)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1 of the corpus is not a document"),
        ('{"doc_id": "a", "kind": "k", "split": "test", "text": "x"}', "split"),
        ('{"doc_id": "a", "kind": "k", "split": "heldout", "text": "x"}', "no document to train"),
        ("", "no document to train"),
        ('{"doc_id": "a", "kind": "k", "split": "train", "text": " "}', "no document to train"),
        ("\udcff", "not UTF-8"),
    ],
)
def test_bad_corpus_is_a_traceback(run, tmp_path, text, sentence):
    file = tmp_path / "bad.jsonl"
    file.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError, match=sentence):
        midtrain(MidtrainConfig(**CONFIG), run, file)
    with pytest.raises(UserError, match="corpus file does not exist"):
        midtrain(MidtrainConfig(**CONFIG), run, tmp_path / "missing")
