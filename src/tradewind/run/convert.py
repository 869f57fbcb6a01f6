"""Turn one GGUF file into a folder of bf16 safetensors, config and tokenizer.

    python -m tradewind.run.convert FILE.gguf FOLDER

A program of its own so that the launcher never imports torch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def convert(gguf: Path, folder: Path) -> None:
    """Read `gguf` with transformers and write `folder`; peak memory is about 6 bytes a weight."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = loaded.config
    # The loader marks the model as quantised, and save_pretrained then refuses; it no longer is.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    plain: Any = type(loaded)(config)
    plain.to(torch.bfloat16)
    plain.load_state_dict({k: v.to(torch.bfloat16) for k, v in loaded.state_dict().items()})
    plain.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))


def main() -> None:
    """Command line."""
    gguf, folder = map(Path, sys.argv[1:])
    convert(gguf, folder)


if __name__ == "__main__":
    main()
