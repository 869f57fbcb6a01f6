"""Rules that ruff and mypy cannot express. Each failure names the file and the fix."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "examples").rglob("*.py"))
CONFIGS = [path for path in SOURCES if path.name in ("config.py", "recipe.py")]
MAX_FILE, MAX_FUNCTION = 400, 60


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_there_are_sources_to_check() -> None:
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_is_one_noun(path: Path) -> None:
    lines = path.read_text().count("\n")
    assert lines <= MAX_FILE, f"{lines} lines: its noun is two nouns, split it"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_function_fits_on_a_screen(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= MAX_FUNCTION, f"{node.name} at line {node.lineno} has {length} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_broad_except_states_its_boundary(path: Path) -> None:
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if re.search(r"except\s*(\(?(Base)?Exception\b|:)", line):
            assert "# boundary:" in line, f"line {number}: say which boundary this except is"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_partial_load_of_weights(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("load_state_dict"):
            assert "strict=False" not in ast.unparse(node), f"line {node.lineno} loads in part"


@pytest.mark.parametrize("path", CONFIGS, ids=relative)
def test_every_config_field_has_a_default_and_a_docstring(path: Path) -> None:
    for model in ast.walk(ast.parse(path.read_text())):
        if not (isinstance(model, ast.ClassDef) and model.name.endswith("Config")):
            continue
        for field, after in zip(model.body, [*model.body[1:], None], strict=True):
            if not isinstance(field, ast.AnnAssign) or ast.unparse(field.target) == "model_config":
                continue
            name = f"{model.name}.{ast.unparse(field.target)}"
            assert field.value is not None, f"{name} has no default"
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            assert documented, f"{name} has no docstring under it"
