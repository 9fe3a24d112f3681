"""Rules that no general tool knows: `python -m tools.lint_rules` prints `file:line: rule broken` and fails if any is.

The files that a rule is about are in pyproject.toml under `[tool.lint_rules]`.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "pyclient"
TESTS: Final = ROOT / "tests"
MEASUREMENTS: Final = ROOT / "docs" / "measurements.md"
LONGEST_MODULE: Final = 600
LARGEST_CIRCLE: Final = 3
LONGEST_TEST_NAME: Final = 70

SECRET: Final = re.compile(r"password|secret|passphrase")
COMPILED_IO: Final = re.compile(
    r"sys/\w+\.h|\b(poll|unistd|fcntl|time|stdio)\.h|libc\.(stdio|time)|posix\.|\.(producer|net)\b|\.\./"
)
COMPILED_PRIVATE: Final = re.compile(
    r"(?<![\w.])(?!self\.|pyclient\.)\w+(?:\[\w+\])?\._[a-z]\w*|\bself(?:\.\w+)+\._[a-z]\w*"
)
HIDDEN: Final = re.compile(r"repr=False|secret=True")
QUESTION_WORD: Final = re.compile(
    r"\s*(What(ever)?|When|Where|Whether|Which|Who(se|ever)?|Why|How|Those|Nothing|None)\b"
)

LOOPS: Final = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OTHER_FRAMES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp, ast.ClassDef)

Finding = tuple[Path, int, str]


@cache
def settings() -> dict[str, Any]:
    """Return pyproject.toml's `[tool]`."""
    tool: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    return tool


def files(setting: str) -> list[Path]:
    """Return the existing files that a setting of `[tool.lint_rules]` lists."""
    return [path for name in settings()["lint_rules"][setting] if (path := ROOT / name).exists()]


def sources() -> list[Path]:
    """Return the package's Python and Cython files."""
    return [path for kind in ("py", "pyx", "pxi", "pxd") for path in sorted(PACKAGE.rglob(f"*.{kind}"))]


def python_files() -> list[Path]:
    """Return the Python files of the repository's own folders."""
    folders = ("pyclient", "tests", "benchmarks", "tools", "examples")
    return [path for name in folders for path in sorted((ROOT / name).rglob("*.py"))]


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# ---- code


def settings_name_files() -> Iterator[Finding]:
    """Files in `[tool.lint_rules]` exist."""
    path = ROOT / "pyproject.toml"
    text = path.read_text()
    for setting, names in settings()["lint_rules"].items():
        for name in names:
            if not (ROOT / name).exists():
                yield path, line_of(text, text.index(f'"{name}"')), f"{setting}: there is no such file"


def modules_are_not_too_long() -> Iterator[Finding]:
    """A module has at most 600 lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        lines = path.read_text().count("\n")
        if lines > LONGEST_MODULE:
            yield path, lines, f"a module has at most {LONGEST_MODULE} lines"


def few_files_import_each_other() -> Iterator[Finding]:
    """At most 3 files import each other in a loop; imports for annotations and within functions count."""
    imports = _imports()
    reached = {path: _reached_from(path, imports) for path in imports}
    for path in imports:
        circle = [other for other in imports if other in reached[path] and path in reached[other]]
        if len(circle) > LARGEST_CIRCLE and path == circle[0]:
            line = min(imports[path][other] for other in circle if other in imports[path])
            names = ", ".join(other.relative_to(PACKAGE).as_posix() for other in circle)
            yield path, line, f"{len(circle)} files import each other in a loop, at most {LARGEST_CIRCLE} may: {names}"


def _imports() -> dict[Path, dict[Path, int]]:
    """Return for each Python file of the package those of its files that it imports, with the lines."""
    modules = {_module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
    imports: dict[Path, dict[Path, int]] = {path: {} for path in modules.values()}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported, line in _imported_names(path, package):
            target = modules.get(imported) or modules.get(imported.rpartition(".")[0])
            if target is not None and target != path:
                imports[path].setdefault(target, line)
    return imports


def _module_of(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def _imported_names(path: Path, package: str) -> Iterator[tuple[str, int]]:
    """Yield what a file of `package` imports, `package.name` for a `from package import name`, with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            yield from ((f"{source}.{alias.name}", node.lineno) for alias in node.names)


def _reached_from(path: Path, imports: dict[Path, dict[Path, int]]) -> set[Path]:
    """Return the files that a file imports, and that those import, and so on."""
    reached: set[Path] = set()
    to_visit = [path]
    while to_visit:
        new = imports[to_visit.pop()].keys() - reached
        reached |= new
        to_visit += new
    return reached


def no_loop_is_inside_cleanup_on_users_threads() -> Iterator[Finding]:
    """No loop in a user's thread is inside `with`, or `try` with `finally`.

    From Python 3.12 on a loop's jump back is in no exception table: Ctrl-C there leaves a `with` without its end.
    """
    for path in files("run-on-users-threads"):
        tree = ast.parse(path.read_text())
        coroutines = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)]  # on the loop's thread
        excused = {id(inner) for coroutine in coroutines for inner in ast.walk(coroutine)}
        for node in ast.walk(tree):
            cleans_up = isinstance(node, ast.With) or (isinstance(node, ast.Try) and node.finalbody)
            if cleans_up and id(node) not in excused:
                for line in _loops_in(node):
                    yield path, line, "a loop inside `with` or `try` with `finally`: Ctrl-C may skip the cleanup"


def _loops_in(node: ast.AST) -> Iterator[int]:
    """Yield the lines of the loops that run in the frame of this node, except those in a `finally`."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(node, ast.Try) and inner in node.finalbody:
            continue
        if isinstance(inner, LOOPS):
            yield inner.lineno
        elif not isinstance(inner, OTHER_FRAMES):
            yield from _loops_in(inner)


def compiled_codec_does_no_io() -> Iterator[Finding]:
    """Cython files in records/ use no header of sockets, files or clocks, and nothing of rooms above."""
    for path in [path for path in sources() if path.parent == PACKAGE / "records" and path.suffix != ".py"]:
        text = path.read_text()
        for found in COMPILED_IO.finditer(text):
            yield path, line_of(text, found.start()), f"the codec does no I/O and reads no clock: {found[0]}"


def compiled_code_touches_no_private_fields_of_others() -> Iterator[Finding]:
    """Cython code reads and writes private attributes of `self` only, as ruff checks it for Python."""
    for path in [path for path in sources() if path.suffix != ".py"]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = None if "import" in line else COMPILED_PRIVATE.search(line.partition("#")[0])
            if found:
                yield path, number, f"a private attribute of another object: {found[0]}"


def secrets_are_in_no_repr() -> Iterator[Finding]:
    """A field of a dataclass or named tuple that has a secret is left out of its repr."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "messages" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and _has_repr_of_fields(node):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and SECRET.search(ast.unparse(field.target)):
                        hides = field.value is not None and HIDDEN.search(ast.unparse(field.value))
                        if not hides:
                            yield path, field.lineno, "a secret in a repr: give the field repr=False or secret=True"


def docstrings_begin_with_no_question_word() -> Iterator[Finding]:
    """A docstring does not begin with a question word, `Those`, `Nothing` or `None`; one of an attribute neither."""
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, DOCUMENTED):
                strings = [(each.lineno, each.value) for each in node.body if isinstance(each, ast.Expr)]
                for line, value in strings:
                    text = value.value if isinstance(value, ast.Constant) else None
                    if isinstance(text, str) and (found := QUESTION_WORD.match(text)):
                        yield path, line, f"a docstring begins with a verb or a noun, not with {found[1]!r}"


def _has_repr_of_fields(node: ast.ClassDef) -> bool:
    names = " ".join(ast.unparse(each) for each in (*node.bases, *node.decorator_list))
    own = any(isinstance(each, ast.FunctionDef) and each.name == "__repr__" for each in node.body)
    return ("NamedTuple" in names or "dataclass" in names) and not own


# ---- tests


def test_names_are_short() -> Iterator[Finding]:
    """A test's name has at most 70 characters."""
    for path in sorted(TESTS.rglob("*.py")):
        for row, line in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r"\s*(?:async )?def (test_\w+)", line)
            if found and len(found[1]) > LONGEST_TEST_NAME:
                yield path, row, f"a test's name has at most {LONGEST_TEST_NAME} characters, not {len(found[1])}"


def sleeps_have_a_reason() -> Iterator[Finding]:
    """Tests wait for a state: a sleep outside of a `while` that checks one has a comment with its reason."""
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text()
        if "sleep(" not in text:
            continue
        tree = ast.parse(text)
        checking = {id(inner) for loop in ast.walk(tree) if isinstance(loop, ast.While) for inner in ast.walk(loop)}
        with path.open("rb") as file:
            comments = {token.start[0] for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT}
        sleeps = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _sleeps(node)]
        for node in sleeps:
            if id(node) not in checking and not comments & {node.lineno - 1, node.lineno}:
                yield path, node.lineno, "a sleep that checks no state and has no comment with its reason"


def _sleeps(call: ast.Call) -> bool:
    """Return True for a call of `sleep` that is not `sleep(0)`."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    zero = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name == "sleep" and not zero


# ---- documents


def architecture_shows_the_layers() -> Iterator[Finding]:
    """The rooms of ARCHITECTURE.md are those of the import contract."""
    path = ROOT / "ARCHITECTURE.md"
    diagram = path.read_text().split("```")[1]
    lines = [re.split(r"  +", line)[0] for line in diagram.splitlines() if line.strip(" |")]
    (layers,) = (each["layers"] for each in settings()["importlinter"]["contracts"] if each["type"] == "layers")
    if lines != layers:
        yield path, 1, f"the rooms of the diagram are not the layers of pyproject.toml: {sorted({*lines} ^ {*layers})}"


def architecture_names_what_exists() -> Iterator[Finding]:
    """Files and classes that ARCHITECTURE.md names exist."""
    path = ROOT / "ARCHITECTURE.md"
    text = path.read_text()
    folders = (PACKAGE, *(folder for folder in PACKAGE.rglob("*/") if folder.is_dir()))
    for found in re.finditer(r"`([\w/]+\.py)`", text):
        if not any((folder / found[1]).exists() for folder in folders):
            yield path, line_of(text, found.start()), f"there is no file {found[1]}"
    for found in re.finditer(r"`([A-Z]\w*[a-z]\w*)(?:\.\w+)?`", text):
        if found[1] not in _declared():
            yield path, line_of(text, found.start()), f"there is no class {found[1]}"


def rooms_name_what_exists() -> Iterator[Finding]:
    """The `__init__` of each package says what it does; files and classes that it names exist."""
    declared = _declared()
    for path in sorted(PACKAGE.rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        if not text:
            yield path, 1, "a package begins with what it does and its main classes"
        for name in re.findall(r"`([\w/]+\.py)`", text):
            if not (path.parent / name).exists():
                yield path, 1, f"there is no file {name}"
        for name in re.findall(r"`([A-Z]\w*[a-z]\w*)`", text):
            if name not in declared:
                yield path, 1, f"there is no class {name}"


@cache
def _declared() -> frozenset[str]:
    """Return the names of all classes of the package, and of its types that are declared by `Name = ...`."""
    text = "\n".join(each.read_text() for each in sources())
    return frozenset(re.findall(r"^(?:\s*(?:cdef )?class |(?=[A-Z]\w*[a-z]\w* = ))(\w+)", text, re.MULTILINE))


def glossary_names_what_exists() -> Iterator[Finding]:
    """Each class in GLOSSARY.md is in the files that its row names."""
    path = ROOT / "GLOSSARY.md"
    for row, line in enumerate(path.read_text().splitlines(), 1):
        found = re.match(r"\| (.*) \| (.*) \| (.*) \|$", line)
        classes = re.findall(r"`(\w+)`", found[2]) if found else []
        if found is None or not classes:
            continue
        named = [PACKAGE / name for name in re.findall(r"`(\S+)`", found[3])]
        missing = [str(file.relative_to(PACKAGE)) for file in named if not file.exists()]
        text = "".join(file.read_text() for file in named if file.exists())
        missing += [name for name in classes if not re.search(rf"^class {name}\b", text, re.MULTILINE)]
        if missing or not named:
            yield path, row, f"not there: {', '.join(missing) or 'a file'}"


def measurements_in_the_code_exist() -> Iterator[Finding]:
    """A mention of docs/measurements.md in the code is followed by one of its headings, in quotes."""
    headings = re.findall(r"^## (.*)$", MEASUREMENTS.read_text(), re.MULTILINE)
    for heading in {each for each in headings if headings.count(each) > 1}:
        yield MEASUREMENTS, 1, f"two headings {heading!r}"
    for path in sources():
        text = path.read_text()
        for mention in re.finditer(r"docs/measurements\.md", text):
            behind = re.sub(r"\n[ #]*", " ", text[mention.end() : mention.end() + 200])
            found = re.match(r', "([^"]+)"', behind)
            if found is None or found[1] not in headings:
                yield path, line_of(text, mention.start()), f"docs/measurements.md has no such heading: {behind[:60]!r}"


def measurements_have_commands() -> Iterator[Finding]:
    """Each section of docs/measurements.md begins with its command, which exists with its options."""
    text = MEASUREMENTS.read_text()
    benchmarks = "".join(path.read_text() for path in sorted((ROOT / "benchmarks").glob("*.py")))
    for found in re.finditer(r"`python -m benchmarks\.(\w+)([^`]*)`", text):
        names = [f"benchmarks/{found[1]}.py"] if not (ROOT / "benchmarks" / f"{found[1]}.py").exists() else []
        for option, value in re.findall(r"(--\w+) (\S+)", found[2]):
            names += [option] if f'"{option}"' not in benchmarks else []
            names += [value] if option == "--only" and f'"{value}"' not in benchmarks else []
        for name in names:
            yield MEASUREMENTS, line_of(text, found.start()), f"there is no {name}"
    for found in re.finditer(r"\bnot kept\b", text, re.IGNORECASE):
        yield MEASUREMENTS, line_of(text, found.start()), "a figure comes with the command that measures it"
    for found in re.finditer(r"^## .*\n(?!\nCommands?: )", text, re.MULTILINE):
        yield MEASUREMENTS, line_of(text, found.start()), "a section begins with `Command: `"


RULES: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    settings_name_files,
    modules_are_not_too_long,
    few_files_import_each_other,
    no_loop_is_inside_cleanup_on_users_threads,
    compiled_codec_does_no_io,
    compiled_code_touches_no_private_fields_of_others,
    secrets_are_in_no_repr,
    docstrings_begin_with_no_question_word,
    test_names_are_short,
    sleeps_have_a_reason,
    architecture_shows_the_layers,
    architecture_names_what_exists,
    rooms_name_what_exists,
    glossary_names_what_exists,
    measurements_in_the_code_exist,
    measurements_have_commands,
)


def main() -> int:
    """Print what breaks a rule; return 1 if anything does."""
    findings = [finding for rule in RULES for finding in rule()]
    for path, line, text in findings:
        sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {text}\n")
    return int(bool(findings))


if __name__ == "__main__":
    raise SystemExit(main())
