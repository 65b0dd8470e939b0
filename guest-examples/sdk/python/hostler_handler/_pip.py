"""pip for a component: chooses packages for the Python of the component, and takes sources where they are pure Python.

Run by `build.py` in a process of its own: pip has no interface for the two things that this file changes. One is the
machine that markers (`; sys_platform == "win32"`) are about. The other is that pip refuses packages from source for
another Python; here they are built without a compiler, so that what is optional is left out.
"""

import os
import sys

# The folder of this file: its modules would hide those that pip imports.
sys.path.pop(0)

from pip._internal.cli import cmdoptions  # noqa: E402
from pip._internal.cli.main import main  # noqa: E402
from pip._internal.commands import install  # noqa: E402
from pip._internal.req.req_install import InstallRequirement  # noqa: E402
from pip._vendor.packaging import markers  # noqa: E402

#: The Python of componentize-py.
PYTHON = "3.14"
ENVIRONMENT = {
    "implementation_name": "cpython",
    "implementation_version": f"{PYTHON}.0",
    "os_name": "posix",
    "platform_machine": "wasm32",
    "platform_python_implementation": "CPython",
    "platform_release": "",
    "platform_system": "wasi",
    "platform_version": "",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "wasi",
}
#: What builds compiled code. Each is the beginning of the name of a package that a build needs.
COMPILERS = {
    "maturin": "Rust",
    "setuptools-rust": "Rust",
    "meson-python": "C",
    "scikit-build": "C",
    "cmake": "C",
    "nanobind": "C++",
    "pybind11": "C++",
    "pythran": "C++",
}
#: Wishes of packages that have a part in C, and do without it.
WITHOUT_C = {
    "AIOHTTP_NO_EXTENSIONS": "1",
    "CC": "false",
    "CXX": "false",
    "DISABLE_SQLALCHEMY_CEXT": "1",
    "FROZENLIST_NO_EXTENSIONS": "1",
    "MSGPACK_PUREPYTHON": "1",
    "MULTIDICT_NO_EXTENSIONS": "1",
    "PROPCACHE_NO_EXTENSIONS": "1",
    "PYYAML_FORCE_LIBYAML": "0",
    "WRAPT_DISABLE_EXTENSIONS": "true",
    "YARL_NO_EXTENSIONS": "1",
}


def refuse(requirement: InstallRequirement, why: str) -> None:
    """End, with the name of what cannot run."""
    version = requirement.link.filename if requirement.link else ""
    chain = [requirement]
    while isinstance(chain[-1].comes_from, InstallRequirement):
        chain.append(chain[-1].comes_from)
    needed = "".join(f", which {each.name} needs" for each in chain[1:])
    print(f"{requirement.name} has no pure Python build: {why} ({version}{needed})", file=sys.stderr, flush=True)
    os._exit(3)


def compiler_of(requires: list[str]) -> str | None:
    """The language that a build compiles."""
    for required in requires:
        for name, language in COMPILERS.items():
            if required.lower().replace("_", "-").startswith(name):
                return language
    return None


def _patch() -> None:
    markers._cached_default_environment = lambda: ENVIRONMENT
    cmdoptions.check_dist_restriction = install.cmdoptions.check_dist_restriction = lambda *_, **__: None
    load, prepare, build = InstallRequirement.load_pyproject_toml, InstallRequirement.prepare_metadata, install.build

    def load_pyproject_toml(self: InstallRequirement) -> None:
        load(self)
        if language := compiler_of(self.pyproject_requires or []):
            refuse(self, f"its source is {language}, and WebAssembly runs no compiled modules")

    def prepare_metadata(self: InstallRequirement, *arguments: object) -> None:
        try:
            prepare(self, *arguments)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            refuse(self, f"its source cannot be read without a compiler: {first}")

    def build_all(requirements: list[InstallRequirement], *arguments: object, **options: object):
        built, failed = build(requirements, *arguments, **options)
        for requirement in failed:
            refuse(requirement, "its source needs a compiler, and WebAssembly runs no compiled modules")
        return built, failed

    InstallRequirement.load_pyproject_toml = load_pyproject_toml
    InstallRequirement.prepare_metadata = prepare_metadata
    install.build = build_all


if __name__ == "__main__":
    _patch()
    os.environ |= WITHOUT_C
    target = ["--platform", "any", "--python-version", PYTHON, "--implementation", "py", "--abi", "none"]
    quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--no-warn-conflicts", "--no-compile", "--root-user-action=ignore"]
    sys.exit(main(["install", *target, *quiet, *sys.argv[1:]]))
