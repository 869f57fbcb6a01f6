"""What a customer may get wrong in an environment or a taskset file, each as a sentence."""

from __future__ import annotations

import asyncio
import json

import pytest

from tradewind.envs.protocol import Policy, load_env
from tradewind.envs.taskset import load_tasks
from tradewind.types import UserError

ROW = {"task_id": "t1", "kind": "k", "split": "train", "input": {}, "reference": {"sql": "x"}}


@pytest.fixture
def project(tmp_path):
    """A customer's folder: a package whose environment imports its sibling absolutely."""
    package = tmp_path / "somedesk"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "agent.py").write_text("NAME = 'agent'\n")
    (package / "env.py").write_text(
        "from somedesk.agent import NAME\n"
        "from tradewind.types import Outcome\n"
        "async def rollout(task, policy):\n"
        "    return Outcome(status='completed', artefacts={'by': NAME, 'model': policy.model})\n"
        "def plain(task, policy):\n"
        "    return None\n"
        "class Desk:\n"
        "    async def rollout(self, task, policy):\n"
        "        return Outcome(status='completed', artefacts={'by': 'a method'})\n"
        "desk = Desk()\n"
        "class Needy(Desk):\n"
        "    def __init__(self, database):\n"
        "        pass\n"
    )
    (package / "single.py").write_text(
        "from somedesk.env import Desk\nclass Only(Desk):\n    pass\n"
    )
    (package / "broken.py").write_text("import a_module_that_is_not_there\n")
    return tmp_path


def test_an_environment_is_found_by_path_with_its_packages_imports(project):
    env = load_env(f"{project}/somedesk/env.py:rollout")
    policy = Policy(base_url="b", api_key="k", model="m", deadline=0.0)
    outcome = asyncio.run(env({}, policy))
    assert outcome.artefacts == {"by": "agent", "model": "m"}
    assert load_env("somedesk.env:rollout") is env
    assert load_env("somedesk.env") is env, "rollout is the name if none is given"


@pytest.mark.parametrize("name", ["env.py:Desk", "env.py:desk", "single.py"])
def test_an_environment_may_be_a_class_or_an_object_with_a_method(project, name):
    env = load_env(f"{project}/somedesk/{name}")
    policy = Policy(base_url="b", api_key="k", model="m", deadline=0.0)
    assert asyncio.run(env({}, policy)).artefacts == {"by": "a method"}


@pytest.mark.parametrize(
    "entry,says",
    [
        (":rollout", "does not name an environment"),
        ("{0}/somedesk/agent.py", "has no 'rollout'"),
        ("{0}/somedesk/env.py:Needy", "cannot be made .*database"),
        ("{0}/somedesk/gone.py:rollout", "file does not exist"),
        ("{0}/somedesk/env.py:gone", "has no 'gone'"),
        ("{0}/somedesk/env.py:plain", "not an async function"),
        ("{0}/somedesk/broken.py:rollout", "a_module_that_is_not_there"),
        ("no.such.module:rollout", "cannot be imported"),
    ],
)
def test_an_environment_that_cannot_be_loaded_is_a_sentence(project, entry, says):
    with pytest.raises(UserError, match=says):
        load_env(entry.format(project))


def test_tasks_come_in_the_order_of_the_file(tmp_path):
    file = tmp_path / "tasks.jsonl"
    rows = [{**ROW, "task_id": name} for name in ("b", "a")]
    file.write_text("\n\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    assert [task.task_id for task in load_tasks(file)] == ["b", "a"]


@pytest.mark.parametrize(
    "text,says",
    [
        ("", "no tasks"),
        ("\n\n", "no tasks"),
        ("{", r"1 bad row \(line 1"),
        (json.dumps(ROW) + "\n" + json.dumps(ROW), "line 2: task_id 't1' is already on line 1"),
        (json.dumps({**ROW, "split": "test"}), "line 1: split"),
        (json.dumps({**ROW, "extra": 1}), "line 1: extra"),
        ("\n".join(["{}"] * 5), r"5 bad rows.*line 3.*\.\.\."),
    ],
)
def test_a_bad_taskset_is_a_sentence_with_the_line(tmp_path, text, says):
    file = tmp_path / "tasks.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        load_tasks(file)


def test_a_missing_or_binary_taskset_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_tasks(tmp_path / "gone.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not UTF-8"):
        load_tasks(tmp_path / "binary")
