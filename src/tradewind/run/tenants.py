"""`tradewind tenants`: give customers a worker key and quotas of their own, and take them back."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.table import Table

from tradewind.run.options import AsJson
from tradewind.types import UserError

KEY_VARIABLE = "TRADEWIND_ADMIN_KEY"
_TIMEOUT_S = 30.0

app = typer.Typer(
    help="Customers of a run: a worker key and quotas for each.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Lower case, as in acme-eu.")]
Url = Annotated[str, typer.Option("--controller", metavar="URL", help="The run's controller.")]


@app.command()
def add(
    name: Name,
    controller: Url,
    max_open: Annotated[int, typer.Option(help="Leases at the same time.")] = 32,
    per_minute: Annotated[int, typer.Option(help="Leases in any 60 seconds.")] = 600,
    token_budget: Annotated[
        int | None, typer.Option(help="Tokens that one of its rollouts may sample.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="A kind of tasks it may see; repeat it. All if none.")
    ] = None,
) -> None:
    """Add a tenant and print its worker key, once."""
    quotas = {"max_open": max_open, "per_minute": per_minute, "token_budget": token_budget}
    body = {"name": name, **quotas, "kinds": kind or None}
    print(_call(controller, "POST", "/v1/tenants", body)["key"])


@app.command()
def rotate(name: Name, controller: Url) -> None:
    """Print a new worker key for a tenant; the old one is dead."""
    print(_call(controller, "POST", f"/v1/tenants/{name}/key")["key"])


@app.command()
def revoke(name: Name, controller: Url) -> None:
    """Give a tenant no more leases; what it holds may end."""
    _call(controller, "DELETE", f"/v1/tenants/{name}")


@app.command("list")
def show(controller: Url, as_json: AsJson = False) -> None:
    """List tenants, their quotas and what they hold."""
    found = _call(controller, "GET", "/v1/tenants")["tenants"]
    if as_json:
        print(json.dumps(found))
        return
    table = Table()
    for column in ("tenant", "open", "of", "last minute", "of", "kinds", ""):
        table.add_column(column, justify="left" if column in ("tenant", "kinds", "") else "right")
    for use in found:
        tenant = use["tenant"]
        table.add_row(
            tenant["name"],
            str(use["open"]),
            str(tenant["max_open"]),
            str(use["last_minute"]),
            str(tenant["per_minute"]),
            ", ".join(tenant["kinds"] or ["all"]),
            "revoked" if use["revoked"] else "",
        )
    Console().print(table)


def _call(controller: str, method: str, path: str, body: object = None) -> Any:
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise UserError(
            "the admin key is missing", value=KEY_VARIABLE, fix="set this environment variable"
        )
    headers = {"authorization": f"Bearer {key}"}
    try:
        answer = httpx.request(
            method, controller.rstrip("/") + path, json=body, headers=headers, timeout=_TIMEOUT_S
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UserError(
            f"the controller cannot be reached ({error})",
            value=controller,
            fix="check the address after --controller",
        ) from error
    if answer.is_success:
        return answer.json() if answer.content else None
    raise UserError(
        f"the controller refuses this ({_sentence(answer)})",
        value=f"{method} {path}",
        fix="correct it",
    )


def _sentence(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status_code}"
