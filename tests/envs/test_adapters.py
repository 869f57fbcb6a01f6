"""Adapters against the real packages, which `make test` installs beside the tests' environment."""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import json
import logging
import os
import sys
import time
import types
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from tradewind.envs.adapters.eval_protocol import EvalProtocol, init_request
from tradewind.envs.adapters.gymnasium import GymnasiumEnv, last_number
from tradewind.envs.adapters.harbor import HarborTasks, read_reward, read_tasks
from tradewind.envs.adapters.openenv import OpenEnv
from tradewind.envs.adapters.reasoning_gym import ReasoningGym
from tradewind.envs.adapters.verifiers import VerifiersTaskset
from tradewind.envs.play import play
from tradewind.envs.protocol import Policy
from tradewind.types import UserError

PACKAGES = os.environ.get("TRADEWIND_ENVS_PACKAGES")
real = pytest.mark.skipif(not PACKAGES, reason="make test names the folder of the real packages")
pytestmark = pytest.mark.filterwarnings("ignore")  # other people's modules


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    if PACKAGES:
        monkeypatch.setattr(sys, "path", [*sys.path, str(Path(PACKAGES).resolve())])
        importlib.invalidate_caches()


@pytest.fixture
def against(serve):
    """Play a rollout with a model that answers by a function of the messages."""

    def run(env, task, answer, app=None, before=None, seconds=60.0):
        async def chat(request):
            said = answer((await request.json())["messages"])
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return JSONResponse({"choices": [choice], "usage": {"total_tokens": 1}})

        model = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])

        async def once():
            async with serve(model) as url:
                policy = Policy(
                    base_url=f"{url}/v1", api_key="k", model="m", deadline=time.time() + seconds
                )
                if app is None:
                    return await play(env.rollout, task.input, policy)
                async with serve(app) as there:
                    adapter = env(there)
                    return await play(adapter.rollout, task.input, policy)

        return asyncio.run(once())

    return run


def scored(env, task, outcome) -> float:
    """As the grader's child calls it: with plain JSON."""
    return env.score(json.loads(task.model_dump_json()), json.loads(outcome.model_dump_json()))


@real
def test_reasoning_gym_scores_with_its_own_checker(against):
    env = ReasoningGym("chain_sum", seed=1, size=5)
    task = list(env.tasks())[3]
    assert set(task.input) == {"question"} and env.check(task.model_dump()) is None
    numbers = task.input["question"].split("=")[0].rpartition(": ")[2]
    right = str(eval(numbers, {}))

    good = against(env, task, lambda _: f"well, <answer>{right}</answer>")
    bad = against(env, task, lambda _: "<answer>a lot</answer>")
    none = against(env, task, lambda _: "I do not know")
    assert scored(env, task, good) == 1.0
    assert scored(env, task, bad) < 0.1 and scored(env, task, none) == 0.0
    moved = {**task.model_dump(), "input": {"question": "another?"}}
    assert "another question" in env.check(moved)
    with pytest.raises(UserError, match="cannot make this dataset"):
        ReasoningGym("no_such_puzzle")


@real
def test_gymnasium_replays_the_actions_and_does_not_believe_the_worker(against):
    env = GymnasiumEnv("FrozenLake-v1", instructions="0 left, 1 down, 2 right, 3 up", max_steps=40)
    env.check_env()
    moves = iter([1, 1, 2, 2, 1, 2])
    still = GymnasiumEnv(make_lake, instructions="0 left, 1 down, 2 right, 3 up", max_steps=8)
    task = next(iter(still.tasks([7])))
    outcome = against(still, task, lambda _: f"I go {next(moves)}")
    assert outcome.status == "completed" and outcome.artefacts["return"] == 1.0
    assert scored(still, task, outcome) == 1.0
    lie = outcome.model_copy(update={"artefacts": {"actions": [0, 0], "return": 1.0}})
    assert scored(still, task, lie) == 0.0

    idle = against(still, task, lambda _: "hm")
    assert idle.status == "agent_limit" and idle.artefacts["actions"] == [None] * 8
    with pytest.raises(UserError, match="cannot be made"):
        GymnasiumEnv("NoSuchLake-v9", instructions="")


def make_lake():
    import gymnasium

    return gymnasium.make("FrozenLake-v1", is_slippery=False)


@real
def test_a_gymnasium_environment_that_breaks_the_rules_is_told_so():
    import gymnasium

    class Broken(gymnasium.Env):
        action_space = gymnasium.spaces.Discrete(2)
        observation_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 5, {}

        def step(self, action):
            return 5, 0.0, True, False, {}

    with pytest.raises(UserError, match="breaks Gymnasium's rules"):
        GymnasiumEnv(Broken, instructions="").check_env()


@real
def test_the_last_number_of_the_space_is_the_action():
    import gymnasium

    space = gymnasium.spaces.Discrete(4)
    assert last_number("1, or rather 2. Not 17!", space) == 2
    assert last_number("left", space) is None


@real
def test_openenv_plays_over_a_session_of_its_websocket(against):
    task = next(iter(open_env("http://x").tasks([3])))
    outcome = against(open_env, task, lambda m: "5" if len(m) > 2 else "1", app=guessing_app())
    assert outcome.status == "completed", outcome.detail
    assert outcome.artefacts["rewards"] == [0.0, 1.0]
    assert scored(open_env("http://x"), task, outcome) == 1.0
    lost = against(open_env, task, lambda _: "1", app=guessing_app())
    assert lost.status == "agent_limit" and lost.artefacts["return"] == 0.0


@real
def test_an_openenv_episode_without_a_reward_is_the_graders_error(against):
    task = next(iter(open_env("http://x").tasks([3])))
    outcome = against(open_env, task, lambda _: "5", app=guessing_app(reward=None))
    assert outcome.status == "grader_error" and "no reward" in outcome.detail


@real
def test_an_openenv_server_that_is_away_is_the_environments_error(against):
    env = open_env("http://127.0.0.1:9")
    outcome = against(env, next(iter(env.tasks([3]))), lambda _: "5")
    assert outcome.status == "env_error"


def open_env(url):
    return OpenEnv(
        url,
        instructions="Guess a number.",
        observe=lambda fields: fields["hint"],
        act=lambda reply: {"guess": int(reply)} if reply.isdigit() else None,
        max_steps=3,
    )


def guessing_app(reward=1.0):
    from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

    class Guess(Action):
        guess: int

    class Hint(Observation):
        hint: str

    class Guessing(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__()
            self._state = State()

        def reset(self, seed=None, episode_id=None, **_):
            return Hint(hint="between 1 and 9", done=False)

        def step(self, action, timeout_s=None, **_):
            right = action.guess == 5
            return Hint(
                hint="higher", done=right, reward=reward if right else 0.0 if reward else None
            )

        @property
        def state(self):
            return self._state

    return create_fastapi_app(Guessing, Guess, Hint)


def additions(count=3, container=False):
    """A taskset of verifiers."""
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        sum: int

    class Addition(vf.Task[Data]):
        NEEDS_CONTAINER = container

        @vf.reward(weight=2.0)
        async def right(self, trace) -> float:
            return float(trace.last_reply == str(self.data.sum))

        @vf.reward
        async def polite(self, trace) -> float:
            assert [m.role for m in trace.branches[0].messages] == ["system", "user", "assistant"]
            return 0.5

    class Additions(vf.Taskset[Addition, vf.TasksetConfig]):
        def load(self):
            for n in range(count):
                data = Data(prompt=f"{n} + 1?", system_prompt="Add.", sum=n + 1)
                yield Addition(data, self.config.task)

    return Additions(vf.TasksetConfig(id="additions"))


@real
def test_a_verifiers_taskset_scores_with_its_own_rewards(against):
    env = VerifiersTaskset(additions())
    task = list(env.tasks())[1]
    assert task.input == {"system_prompt": "Add.", "prompt": "1 + 1?"}
    assert env.check(task.model_dump()) is None
    good = against(env, task, lambda m: "2" if m[0]["content"] == "Add." else "")
    bad = against(env, task, lambda _: "3")
    assert (scored(env, task, good), scored(env, task, bad)) == (2.5, 0.5)
    assert "no task 1" in VerifiersTaskset(additions(1)).check(task.model_dump())
    with pytest.raises(UserError, match="needs a container"):
        VerifiersTaskset(additions(container=True))


TOML = """
schema_version = "1.4"
[metadata]
category = "files"
[agent]
timeout_sec = 20.0
[verifier]
timeout_sec = 20.0
[environment]
docker_image = "debian:stable-slim"
"""


@pytest.fixture
def harbor(tmp_path):
    task = tmp_path / "dataset" / "write-hello"
    (task / "tests").mkdir(parents=True)
    (task / "solution").mkdir()
    (task / "task.toml").write_text(TOML)
    (task / "instruction.md").write_text("Write hello to out.txt.\n")
    (task / "solution/solve.sh").write_text("echo hello > out.txt\n")
    (task / "tests/test.sh").write_text(
        'if grep -qx hello "$WORK/out.txt"; then echo 1; else echo 0; fi > "$LOGS/reward.txt"\n'
    )
    return tmp_path / "dataset"


class Folder:
    """A box without a container: the agent writes what the model says."""

    def __init__(self, folder: Path) -> None:
        self.work_folder, self.logs = folder / "work", folder / "logs"
        self.work_folder.mkdir()
        self.logs.mkdir()
        (self.logs / "reward.json").write_text('{"reward": 1.0}')  # a forged verdict

    async def work(self, instruction, policy):
        from tradewind.envs.chat import Chat, Message

        async with Chat(policy) as chat:
            reply = await chat.ask([Message(role="user", content=instruction)])
        (self.work_folder / "out.txt").write_text(reply.text + "\n")

    async def verify(self, tests):
        env = {"WORK": str(self.work_folder), "LOGS": str(self.logs), "PATH": os.environ["PATH"]}
        process = await asyncio.create_subprocess_exec("sh", str(tests / "test.sh"), env=env)
        return await process.wait()


def test_a_harbor_folder_is_worked_on_and_verified(harbor, tmp_path, against):
    opened = []

    @asynccontextmanager
    async def open_box(task):
        assert task.config["environment"]["docker_image"] == "debian:stable-slim"
        opened.append(tmp_path / f"box{len(opened)}")
        opened[-1].mkdir()
        yield Folder(opened[-1])

    env = HarborTasks(harbor, open_box)
    (task,) = env.tasks()
    assert task.kind == "files" and "solve" not in task.model_dump_json()
    good = against(env, task, lambda m: "hello" if "Write hello" in m[-1]["content"] else "")
    bad = against(env, task, lambda _: "goodbye")
    assert (scored(env, task, good), scored(env, task, bad)) == (1.0, 0.0), "no forged verdict"


@pytest.mark.parametrize(
    "files,says",
    [
        ({}, "neither reward.json nor reward.txt"),
        ({"reward.txt": "nan"}, "not finite"),
        ({"reward.txt": "great"}, "could not convert"),
        ({"reward.json": "[1]"}, "no object"),
    ],
)
def test_tests_without_a_usable_reward_are_the_graders_error(tmp_path, files, says):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=says):
        read_reward(tmp_path)


def test_named_rewards_come_before_the_single_number(tmp_path):
    (tmp_path / "reward.txt").write_text("0")
    (tmp_path / "reward.json").write_text('{"tests": 1, "style": 0.5}')
    assert read_reward(tmp_path) == {"tests": 1.0, "style": 0.5}


def test_a_folder_that_is_no_harbor_task_is_a_sentence(tmp_path, harbor):
    with pytest.raises(UserError, match="no Harbor task"):
        read_tasks(tmp_path)
    (harbor / "write-hello/tests/test.sh").unlink()
    with pytest.raises(UserError, match="no verifier"):
        read_tasks(harbor)
    (harbor / "write-hello/task.toml").write_text("= 1")
    with pytest.raises(UserError, match="does not read"):
        read_tasks(harbor)


@pytest.fixture
def eval_protocol():
    """The real package's modules, without its __init__, which imports half a gigabyte."""
    package = types.ModuleType("eval_protocol")
    package.__path__ = [str(Path(PACKAGES).resolve() / "eval_protocol")]
    sys.modules["eval_protocol"] = package
    models = importlib.import_module("eval_protocol.models")
    remote = importlib.import_module("eval_protocol.types.remote_rollout_processor")
    tracing = importlib.import_module("eval_protocol.log_utils.fireworks_tracing_http_handler")
    yield types.SimpleNamespace(
        Status=models.Status,
        InitRequest=remote.InitRequest,
        Handler=tracing.FireworksTracingHttpHandler,
    )
    for name in [name for name in sys.modules if name.split(".")[0] == "eval_protocol"]:
        del sys.modules[name]


@real
@pytest.mark.parametrize(
    "status,counts_as",
    [
        ("rollout_finished", "completed"),
        ("rollout_internal_error", "env_error"),
        ("rollout_invalid_argument_error", "agent_error"),
    ],
)
def test_an_eval_protocol_server_plays_and_ends_by_its_own_log_handler(
    against, eval_protocol, status, counts_as
):
    """eval-protocol PR#446 polled the log table for the end; here the log comes to us."""
    adapter = EvalProtocol("", "127.0.0.1:0")
    seen = []

    def run_there(asked, here):
        handler = eval_protocol.Handler(gateway_base_url=here)
        logger = logging.Logger("their-agent")
        logger.addHandler(handler)
        extra = {"rollout_id": asked.metadata.rollout_id}
        logger.info("going", extra={**extra, "status": eval_protocol.Status.rollout_running()})
        made = getattr(eval_protocol.Status, status)
        ended = made() if status == "rollout_finished" else made("because")
        logger.info("over", extra={**extra, "status": ended, "extras": {"turns": 1}})
        handler._session.close()

    async def init(request):
        asked = eval_protocol.InitRequest(**await request.json())
        seen.append(asked)
        here = await adapter.listen()
        background.append(asyncio.create_task(asyncio.to_thread(run_there, asked, here)))
        return JSONResponse({"status": "accepted"})

    background = []
    server = Starlette(routes=[Route("/init", init, methods=["POST"])])

    class Once:
        def __init__(self, url):
            adapter._server = url

        async def rollout(self, task, policy):
            try:
                return await adapter.rollout(task, policy)
            finally:
                await asyncio.gather(*background)
                await adapter.close()

    task = types.SimpleNamespace(input={"messages": [{"role": "user", "content": "hi"}]})
    outcome = against(Once, task, lambda _: "x", app=server)
    assert outcome.status == counts_as, outcome.detail
    assert outcome.artefacts["extras"]["turns"] == 1
    assert seen[0].api_key == "k" and seen[0].model_base_url.endswith("/v1")
    assert seen[0].messages[0].content == "hi" and seen[0].completion_params["model"] == "m"


def test_what_an_init_tells_is_the_rollouts_own():
    policy = Policy(base_url="http://g/v1", api_key="model-key", model="m", deadline=0.0)
    body = init_request({"messages": [], "completion_params": {"top_p": 1}}, policy, "r")
    assert body["api_key"] == "model-key" and body["metadata"]["rollout_id"] == "r"
    assert body["completion_params"] == {"top_p": 1, "model": "m"}


def test_a_missing_package_is_a_sentence_with_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match=r"needs 'gymnasium'.*tradewind\[envs\]"):
        GymnasiumEnv("FrozenLake-v1", instructions="")
