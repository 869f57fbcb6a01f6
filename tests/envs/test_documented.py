"""docs/environments.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from tradewind.envs.check.examine import CHECKS
from tradewind.envs.signature import WINDOW_S, SignatureCheck
from tradewind.types import Lease, OutcomeStatus
from tradewind.types.assignment import Assignment, RolloutState

PAGE = (Path(__file__).parents[2] / "docs/environments.md").read_text(encoding="utf-8")


def test_the_outcome_table_has_every_status_and_how_it_counts():
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (graded|null)[^|]*\|$", PAGE, re.MULTILINE))
    assert rows == {s.value: "graded" if s.gradable else "null" for s in OutcomeStatus}


def test_the_messages_list_every_field():
    for record in (Lease, Assignment):
        for name in record.model_fields:
            assert f"`{name}`" in PAGE, f"{record.__name__}.{name}"
    for state in RolloutState:
        assert f"`{state.value}`" in PAGE
    assert f"{len(CHECKS)} checks" in PAGE and f"at most {WINDOW_S:.0f} s off" in PAGE


def test_the_example_of_a_signature_passes():
    said = re.search(r"secret `(.+?)`, timestamp `(\d+)`, nonce `(\w+)`", PAGE)
    assert said is not None
    secret, timestamp, nonce = said.groups()
    body = re.search(r"body `(.+?)`", PAGE)
    signature = re.search(r"`(v1=[0-9a-f]{64})`", PAGE)
    assert body is not None and signature is not None
    headers = {
        "Tradewind-Key-Id": "k1",
        "Tradewind-Timestamp": timestamp,
        "Tradewind-Nonce": nonce,
        "Tradewind-Signature": signature[1],
    }
    check = SignatureCheck({"k1": secret}, clock=lambda: float(timestamp))
    check.check("POST", "/rollouts", headers, body[1].encode())


def test_the_first_environment_of_the_page_runs(tmp_path):
    from tradewind.envs.protocol import load_env

    source = re.search(r"```python\n(# my_env\.py\n.*?)```", PAGE, re.DOTALL)
    assert source is not None
    (tmp_path / "my_env_of_the_docs.py").write_text(source[1])
    assert load_env(f"{tmp_path}/my_env_of_the_docs.py").__name__ == "rollout"
