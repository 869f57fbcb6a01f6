"""What a piece of text would do if it were run, as the readers of shell and Python say it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Deeds:
    """Lines by what they are about; nothing of the text was run."""

    commands: list[str] = field(default_factory=list)
    """Simple shell commands, words separated by one space."""
    reads: list[str] = field(default_factory=list)
    """Paths that are read or listed."""
    creates: list[str] = field(default_factory=list)
    """Paths that are written as a whole: new, or overwritten."""
    changes: list[str] = field(default_factory=list)
    """Paths that were there before: edited, moved or removed."""
    effects: list[str] = field(default_factory=list)
    """Of Python: `exit ...` (`halt ...` if it happens at import), `fetch ...`, `patch ...`,
    `print ...`, `equal <class>.<method>`, `import ...`, `frames ...`, `unreadable`."""
    shell: list[str] = field(default_factory=list)
    """Shell text given to a shell on the spot."""
    python: list[str] = field(default_factory=list)
    """Programs given to an interpreter on the spot."""
    contents: list[str] = field(default_factory=list)
    """Text of here-documents and of echo into a file."""
