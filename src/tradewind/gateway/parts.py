"""What every answer needs, whoever asked."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.gateway.config import GatewayConfig
from tradewind.gateway.generation import Generator
from tradewind.gateway.journal import Journal
from tradewind.gateway.metrics import Metrics
from tradewind.gateway.router import Router
from tradewind.render.renderer import Renderer


@dataclass(frozen=True)
class Parts:
    """What every answer needs; one set per process."""

    config: GatewayConfig
    renderer: Renderer
    journal: Journal
    router: Router
    generator: Generator
    metrics: Metrics

    @property
    def window(self) -> int:
        """Most tokens of prompt and answer together."""
        own = self.renderer.context_window
        return min(self.config.context_window or own, own)
