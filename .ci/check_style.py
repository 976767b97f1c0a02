"""Check what the linter cannot: sizes of modules and functions.

A module has at most 500 lines and a function at most 70, its docstring not counted: one idea each, to be read at a
glance. In tests only modules are measured: a state machine is one function with many steps.
Usage: check_style.py DIRECTORY...
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def main(directories: list[str]) -> int:
    """Print each finding; return 1 if there is one."""
    files = sorted(file for name in directories for file in Path(name).rglob("*.py"))
    findings = [finding for file in files for finding in check(file)]
    for finding in findings:
        print(finding)
    print(f"sizes: {len(files)} modules, {len(findings)} findings")
    return 1 if findings else 0


def check(file: Path) -> Iterator[str]:
    """Yield what is wrong with one module."""
    text = file.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{file}:1: {lines} lines, at most {MODULE_LINES_MAX}: split the module"
    if file.parts[0] == "tests":
        return
    for node in ast.walk(ast.parse(text, filename=str(file))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > FUNCTION_LINES_MAX:
            yield f"{file}:{node.lineno}: {node.name} has {length(node)} lines, at most {FUNCTION_LINES_MAX}"


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function without its docstring."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and ast.get_docstring(function)
    return total - ((first.end_lineno or first.lineno) - first.lineno + 1) if documented else total


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
