"""The package keeps what its py.typed promises: mypy, in strict mode, finds nothing in it and real types in a script."""

import ast
import pathlib
import re
import subprocess
import sys

CACHE = pathlib.Path(sys.prefix) / "mypy_cache"  # what mypy knows of torch serves every checkout
HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "python" / "deepspeed"


def check(*what):
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(CACHE), *what]
    return subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True)


def test_passes_mypy():
    found = check()
    assert found.returncode == 0, found.stdout + found.stderr


def test_shows_a_script_types():
    found = check(str(HERE / "programs" / "typed_script.py"))
    assert found.returncode == 0, found.stdout + found.stderr


def test_says_what_is_done_in_docstrings():
    idle = re.compile(r"(Is|Has|Does|Whether)\b")
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                assert not idle.match(text), f"{path}:{node.lineno}: begin with a verb that says what it does: {text.splitlines()[0]}"
