"""`tradewind weights`: look at a bucket of versions, promote one, send a pool to one, write one as
a checkpoint, delete what nobody needs.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tradewind.run.goto import go_to
from tradewind.run.model import check_model_folder, fresh_folder
from tradewind.run.options import AsJson
from tradewind.types import UserError
from tradewind.weights import pointer
from tradewind.weights.bucket import Bucket, NotInBucket
from tradewind.weights.chain import read_base
from tradewind.weights.checkpoint import SINGLE, read_folder, write_file
from tradewind.weights.collect import GRACE_S, KEEP, Collector, Garbage, find_garbage
from tradewind.weights.follow import Follower
from tradewind.weights.manifest import pointer_key
from tradewind.weights.publish import Publisher
from tradewind.weights.serving import promote as promote_version
from tradewind.weights.serving import serving_version
from tradewind.weights.signing import VARIABLE, Signer, new_key
from tradewind.weights.state import State

app = typer.Typer(
    help="Look at weight versions, promote one, send a pool to one, delete what nobody needs.",
    no_args_is_help=True,
)

Url = Annotated[str, typer.Argument(metavar="BUCKET", help="file:///folder or s3://name/prefix.")]


@app.command()
def history(bucket: Url, as_json: AsJson = False) -> None:
    """List the versions, checked as a chain: sizes, states, signers, and which one is served."""
    store = Bucket.open(bucket)
    run_id = _run_id(store)
    versions = Publisher(store, run_id).history()
    signers = [pointer.read(store, pointer_key(v.version)).signer for v in versions]
    served = serving_version(store)
    rows = [
        {**v.model_dump(), "signer": signer, "serving": v.version == served}
        for v, signer in zip(versions, signers, strict=True)
    ]
    if as_json:
        print(json.dumps({"run_id": run_id, "versions": rows}))
        return
    table = Table(title=f"run {run_id}", caption=None if served is None else f"serves {served}")
    for name in ("version", "stage", "state", "shipped", "of a copy", "signed by"):
        table.add_column(name, justify="left" if name in ("stage", "state") else "right")
    for version, signer in zip(versions, signers, strict=True):
        table.add_row(
            f"{version.version}{' *' if version.version == served else ''}",
            version.stage,
            version.state_id[:15],
            f"{version.bytes_shipped / 1e6:.3f} MB",
            f"{version.bytes_shipped / version.bytes_full:.2%}",
            signer[:12] if signer else "nobody",
        )
    Console().print(table)


@app.command()
def promote(bucket: Url, version: Annotated[int, typer.Argument(help="An announced one.")]) -> None:
    """Serve users from a version from now on; an older one is a roll back."""
    number = promote_version(Bucket.open(bucket), version, Signer.from_environment())
    print(f"version {version} is served (promotion {number})")


@app.command()
def collect(
    bucket: Url,
    live: Annotated[
        list[int] | None,
        typer.Option("--live", metavar="VERSION", help="Version of a pool at work; repeat."),
    ] = None,
    keep: Annotated[int, typer.Option(help="Newest versions that stay reachable.")] = KEEP,
    grace: Annotated[
        float, typer.Option(help="Deleted is what is still garbage after so many s.")
    ] = GRACE_S,
    delete: Annotated[bool, typer.Option("--delete", help="Delete; otherwise only say.")] = False,
) -> None:
    """Find the objects that no pool can need any more; with --delete, look again after the grace
    and delete those that nobody needs then. If nobody writes to the bucket, --grace 0 is safe.
    """
    store = Bucket.open(bucket)
    run_id, held = _run_id(store), live or ()
    said = _said(find_garbage(store, run_id, held, keep=keep))
    if not delete:
        print(f"nobody needs {said}; add --delete to delete them")
        return
    collector = Collector(store, run_id, keep=keep, grace_s=grace)
    deleted = collector.collect(held)
    if grace > 0:
        print(f"nobody needs {said}; what nobody needs in {grace:g} s either is deleted then")
        time.sleep(grace)
        deleted = collector.collect(held)
    print(f"deleted {_said(deleted)}")


@app.command("go-to")
def send(
    pool: Annotated[str, typer.Argument(metavar="URL", help="Of a running pool.")],
    version: Annotated[str, typer.Argument(help="A number, back or forward; or `newest`.")],
    wait: Annotated[float, typer.Option(help="How long to wait for it to serve, in s.")] = 120.0,
) -> None:
    """Send a running pool back to a version, or forward: no restart, and proven as any other. It
    stays there until it is sent to `newest`, or started again. Needs TRADEWIND_POOL_KEY.
    """
    if version != "newest" and not version.isdecimal():
        raise UserError("not a version", value=version, fix="give a number, or newest")
    report = go_to(pool, None if version == "newest" else int(version), wait)
    stays = "stays there" if report.pinned is not None else "follows the newest"
    print(f"pool {report.pool} serves version {report.version} and {stays}")


@app.command()
def export(
    bucket: Url,
    version: Annotated[int, typer.Argument(min=0, help="An announced one.")],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Base checkpoint: runs/NAME/model.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A folder that is not there yet.")],
) -> None:
    """Write a version as a checkpoint folder; a run begins from it with --set model.path=DIR."""
    if out.exists():
        raise UserError("this is there already", value=str(out), fix="give a new folder")
    store = Bucket.open(bucket)
    check_model_folder(model)
    state = State.of(0, read_folder(model))
    run_id = _run_id(store)
    if state.state_id != read_base(store, run_id=run_id).state_id:
        raise UserError(
            "this is not the base checkpoint of that bucket's run",
            value=str(model),
            fix="give runs/NAME/model of the same run",
        )
    if version:
        state = Follower(store, state, run_id=run_id).stage(version).state
    with fresh_folder(out) as scratch:
        for file in model.iterdir():
            if file.is_file() and ".safetensors" not in file.name:
                shutil.copy(file, scratch / file.name)
        write_file(scratch / SINGLE, state.tensors)
    print(f"version {version} ({state.state_id[:15]}) is in {out}")


@app.command()
def keygen() -> None:
    """Make a key pair: the trainer signs with the private half, pools trust the public one."""
    secret = new_key()
    print(f"{VARIABLE}={secret}")
    print(f'trust = ["{Signer(secret).public}"]')


def _said(garbage: Garbage) -> str:
    return f"{len(garbage.objects)} objects, {garbage.size / 1e6:.3f} MB"


def _run_id(bucket: Bucket) -> str:
    try:
        return read_base(bucket, run_id=None).run_id
    except NotInBucket as error:
        raise UserError(
            "there are no versions in this bucket",
            value=bucket.url,
            fix=f"give the bucket of a run, for example file://{Path.cwd()}/runs/quickstart/bucket",
        ) from error
