"""Builds the optional compiled modules: without a C compiler, or with PYCLIENT_PURE=1, the install is pure Python."""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

MODULES = ("pyclient.records._speedups", "pyclient.producer._speedups")  # the second one uses the first one


class Wheel(bdist_wheel):
    """A wheel whose tag says what is in it: `py3-none-any` if nothing could be compiled."""

    def run(self) -> None:
        """Build the extension first, as setuptools chooses the tag before it knows what came of it."""
        if self.distribution.ext_modules:
            self.run_command("build_ext")
            build = self.get_finalized_command("build_ext")
            if not any(Path(output).exists() for output in build.get_outputs()):
                self.distribution.ext_modules = []
                self.root_is_pure = True
        super().run()


def extensions() -> list[Extension]:
    if os.environ.get("PYCLIENT_PURE") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    options = ["-O3", "-g0"]
    wanted = [Extension(name, [name.replace(".", "/") + ".pyx"], extra_compile_args=options) for name in MODULES]
    built: list[Extension] = cythonize(wanted, language_level=3)
    for each in built:
        each.optional = True  # said to the Extension above, cythonize would drop it
    return built


setup(ext_modules=extensions(), cmdclass={"bdist_wheel": Wheel})
