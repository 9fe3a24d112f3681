from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyclient.records
from pyclient.records import _pure, implementation
from tests.twins import check_interfaces

ROOT = Path(__file__).parents[2]
SHARED = sorted(set(implementation.__all__) - {"IMPLEMENTATION"})


def run(code: str, **environment: str) -> str:
    env = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env, cwd=ROOT, timeout=60
    )
    return done.stdout.strip()


def test_every_name_is_imported_from_chosen_twin(twins: tuple[Any, Any]) -> None:
    chosen = next(twin.module for twin in twins if twin.module.IMPLEMENTATION == pyclient.records.IMPLEMENTATION)
    for name in SHARED:
        assert getattr(implementation, name) is getattr(chosen, name)
        assert getattr(pyclient.records, name) is getattr(chosen, name)


def test_list_of_names_is_that_of_the_python_twin(twins: tuple[Any, Any]) -> None:
    found = {name for name, each in vars(_pure).items() if not name.startswith("_") and not inspect.ismodule(each)}
    assert found == set(implementation.__all__)
    assert [name for name in implementation.__all__ if not hasattr(twins[0].module, name)] == []
    assert set(implementation.__all__) <= set(pyclient.records.__all__)


def test_environment_variable_forces_python_twin(twins: tuple[Any, Any]) -> None:
    code = "import sys, pyclient.records as r; print(r.IMPLEMENTATION, 'pyclient.records._speedups' in sys.modules)"
    assert run(code, PYCLIENT_PURE="1") == "pure False"
    assert run(code, PYCLIENT_PURE="0") == "cython True"


ABSENT = "sys.modules['pyclient.records._speedups'] = None"
OLD = "import types; sys.modules['pyclient.records._speedups'] = types.ModuleType('pyclient.records._speedups')"
IMPORT = """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import pyclient.records
print(pyclient.records.IMPLEMENTATION, *[f"{warning.category.__name__}: {warning.message}" for warning in said])
"""


def test_missing_compiled_twin_falls_back_to_python_silently() -> None:
    assert run(f"import sys; {ABSENT}{IMPORT}", PYCLIENT_PURE="0") == "pure"


def test_outdated_compiled_codec_warns_how_to_rebuild_it() -> None:
    said = run(f"import sys; {OLD}{IMPORT}", PYCLIENT_PURE="0")
    assert said.startswith("pure RuntimeWarning: the compiled record codec cannot be used")
    assert "cannot import name 'IMPLEMENTATION'" in said
    assert "python setup.py build_ext --inplace" in said
    assert run(f"import sys; {OLD}{IMPORT}", PYCLIENT_PURE="1") == "pure"  # chosen explicitly


@pytest.mark.parametrize("name", SHARED)
def test_both_twins_have_same_names_and_arguments(twins: tuple[Any, Any], name: str) -> None:
    check_interfaces(*(getattr(twin.module, name) for twin in twins))


def test_importing_records_loads_nothing_slow() -> None:
    slow = {"lz4", "snappy", "zstandard", "cramjam", "importlib.metadata", "asyncio"}
    assert run(f"import sys, pyclient.records; print(sorted({slow} & set(sys.modules)))") == "[]"


def test_checksum_module_is_loaded_without_its_package() -> None:
    from pyclient.records.crc import crc32c

    assert crc32c(b"123456789") == crc32c(memoryview(b"123456789")) == 0xE3069283


@pytest.mark.slow
def test_setup_succeeds_without_working_compiler(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "_speedups.c", "__pycache__")
    for package in ("records", "producer"):
        shutil.copytree(ROOT / "pyclient" / package, tmp_path / "pyclient" / package, ignore=ignored)
    shutil.copy(ROOT / "setup.py", tmp_path)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = {**os.environ, "CC": str(tmp_path / "no-compiler"), "PYCLIENT_PURE": "0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "building extension" in done.stderr
    assert not list(tmp_path.rglob("*.so"))


def test_setup_skips_extension_when_disabled() -> None:
    code = (
        "import setuptools; found = []; setuptools.setup = lambda **options: found.append(options['ext_modules'])\n"
        "exec(compile(open('setup.py').read(), 'setup.py', 'exec')); print(found)"
    )
    assert run(code, PYCLIENT_PURE="1") == "[[]]"
    hide = "import sys; sys.modules['Cython.Build'] = None\n"
    assert run(hide + code, PYCLIENT_PURE="0") == "[[]]"
