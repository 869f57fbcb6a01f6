"""Nothing of the worker's environment leaves it."""

from __future__ import annotations

from tradewind.envs.secrets import Secrets
from tradewind.types import Outcome

ENVIRONMENT = {
    "STRIPE_API_KEY": "sk-live-abcdef",
    "PGPASSWORD": "correct horse",
    "PIN_TOKEN": "1234",
    "HOME": "/home/somebody",
    "GIT_AUTHOR_NAME": "Somebody Else",
    "TOKENIZERS_PARALLELISM": "sometimes",
    "KEYBOARD_LAYOUT": "us-international",
    "CRM_LOGIN": "margaret-thirteen",
}


def test_secrets_are_taken_out_of_detail_artefacts_and_keys_of_any_depth():
    secrets = Secrets.from_environment(ENVIRONMENT, more=["CRM_LOGIN"])
    outcome = Outcome(
        status="env_error",
        detail="401 for key sk-live-abcdef",
        artefacts={
            "log": ["login margaret-thirteen:correct horse", 7, None],
            "by": {"sk-live-abcdef": True},
            "home": "/home/somebody",
            "pin": "1234",
        },
    )
    clean = secrets.scrub(outcome)
    assert clean.detail == "401 for key [removed: STRIPE_API_KEY]"
    assert clean.artefacts == {
        "log": ["login [removed: CRM_LOGIN]:[removed: PGPASSWORD]", 7, None],
        "by": {"[removed: STRIPE_API_KEY]": True},
        "home": "/home/somebody",
        "pin": "1234",
    }


def test_what_holds_no_secret_is_left_as_it_is():
    said = "by Somebody Else, sometimes, us-international"
    outcome = Outcome(status="completed", artefacts={"rows": [[1, said]]})
    assert Secrets.from_environment(ENVIRONMENT).scrub(outcome) is outcome
