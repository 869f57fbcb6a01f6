"""A worker extension for vLLM's CPU build that leaves linear weights as they are, as on a GPU.

Runs in vLLM's worker process. The CPU build packs them for oneDNN, or for AMX where there is one;
without either it multiplies the plain parameters, whose loaders then work after the start as well.
"""

from __future__ import annotations

from vllm import _custom_ops
from vllm.model_executor.layers import utils

from tradewind.pool.engines.vllm.plugin import TradewindWorker

_custom_ops._supports_onednn = False
utils.check_cpu_sgl_kernel = lambda *_: False

__all__ = ["TradewindWorker"]
