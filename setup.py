"""Builds the optional compiled codec: without a C compiler, or with PYCLIENT_PURE=1, the install is pure Python."""

import os

from setuptools import Extension, setup

SOURCE = "pyclient/records/_speedups.pyx"


def extensions() -> list[Extension]:
    if os.environ.get("PYCLIENT_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extension = Extension("pyclient.records._speedups", [SOURCE], extra_compile_args=["-O3", "-g0"])
    built: list[Extension] = cythonize([extension], language_level=3)
    for each in built:
        each.optional = True  # said to the Extension above, cythonize would drop it
    return built


setup(ext_modules=extensions())
