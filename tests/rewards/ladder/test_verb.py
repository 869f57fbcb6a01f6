"""`tradewind rewards` on a run that was played and graded."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tradewind.run.cli import app
from tradewind.types.trust import Label


def test_a_run_is_ranked_on_its_own_rollouts_and_scored_again(desk, played, tmp_path):
    ledger = played()
    taskset, reward = tmp_path / "tasks.jsonl", tmp_path / "reward.toml"
    taskset.write_text("".join(task.model_dump_json() + "\n" for task in desk.tasks))
    options = f'{{ database = "{desk.database}", max_steps = 1000000 }}'
    reward.write_text(
        f'[[signals]]\nuse = "resultset"\noptions = {options}\n'
        f'[[signals]]\nname = "strict"\nuse = "{desk.folder}/signals.py:strict"\n'
    )
    place = str(tmp_path / "ledger.sqlite")

    def call(*arguments: object) -> dict:
        done = CliRunner().invoke(app, ["rewards", *map(str, arguments), "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    ranked = call("rank", taskset, "--reward", reward, "--run", place, "--tasks", 25)
    assert ranked["answers"]["stored rollouts"] == 40
    assert ranked["answers"]["attacks"] > 0
    rows, strict = ranked["signals"]
    assert (rows["name"], rows["verdict"], rows["groups"]) == ("resultset", "use", 10)
    assert 0.2 < rows["rate"] < 0.8 and rows["spread"] > 0.5
    assert strict["agreement"] < 1.0 and strict["concordance"] > 0.6

    names = [r.rollout_id for g in ledger.stored_groups() for r in g.rollouts]
    said = {"signal": "strict", "rater": "ana", "at": 1.0}
    ledger.add_labels(Label(rollout_id=name, value=1, **said) for name in names[:8])
    ledger.add_labels([Label(rollout_id=names[9], value=1, source="model", **said)])
    again = call("rank", taskset, "--reward", reward, "--run", place, "--tasks", 2)["signals"]
    _, strict, people = again
    assert (people["name"], people["kind"], people["n"]) == ("people.strict", "label", 8)
    assert strict["compared_with"]["labels"] == 8, "of people, out of the ledger"

    read = call("rescore", place, "--reward", reward)
    assert (read["rescoring"], read["rollouts"], read["new_signals"]) == (None, 40, ["strict"])
    same = call("rescore", place)  # by what the run uses
    assert same["signals"]["resultset"] == {
        "verdicts": 40,
        "changed": 0,
        "nulls_before": 0,
        "nulls_after": 0,
    }
    assert call("rescore", place, "--reward", reward, "--write")["rescoring"] == 0
    assert ledger.rescoring(0)[0] == read["composition"]
    assert ledger.audit() == []
