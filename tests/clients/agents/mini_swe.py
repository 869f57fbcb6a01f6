"""mini-swe-agent as it comes from PyPI, in the three dialects that it can speak."""

from __future__ import annotations

from typing import Any

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel
from minisweagent.models.litellm_response_model import LitellmResponseModel
from serving import serve

SYSTEM = "You work in a shell."
TASK = "{{task}}"


def play(rollout: dict[str, Any]) -> Any:
    dialect = rollout["dialect"]
    kind = LitellmResponseModel if dialect == "responses" else LitellmModel
    provider = "anthropic" if dialect == "messages" else "openai"
    base = rollout["base_url"] + ("" if dialect == "messages" else "/v1")
    options = {"api_key": rollout["key"], "api_base": base, "max_tokens": 64, "num_retries": 0}
    if dialect == "responses":
        options["max_output_tokens"] = options.pop("max_tokens")
    model = kind(model_name=f"{provider}/policy", model_kwargs=options)
    agent = DefaultAgent(
        model,
        LocalEnvironment(cwd=rollout["folder"]),
        system_template=SYSTEM,
        instance_template=TASK,
        step_limit=4,
        max_consecutive_format_errors=2,
    )
    return agent.run(rollout["task"]).get("exit_status")


if __name__ == "__main__":
    serve(play)
