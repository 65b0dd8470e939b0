"""`python -m hostler_handler.build`: makes a component of a handler.

Nothing but the project, what `requirements.txt` names, and this package goes in. `requirements.lock` keeps the versions
and digests: commit it, and every machine builds the same handler.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ._world import world

#: In every component: Python has no time zones of its own.
ALWAYS = ["tzdata"]
#: Folders of a project whose files the handler can open.
DATA = ["data", "templates"]
#: Not part of the component.
LEFT_OUT = {"build", "tests", "test", "node_modules", "hostler_handler", "sdk"}
#: Files of this package that run on the machine that builds.
OF_THE_BUILD = {"build.py", "_pip.py", "_world.py", "wit", "__pycache__"}
#: This package.
HERE = Path(__file__).parent


class Failure(Exception):
    """The component cannot be built. The text is for people."""


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m hostler_handler.build", description=__doc__.partition("\n")[0])
    parser.add_argument("module", nargs="?", default="handler", help="the module with @handler (handler)")
    parser.add_argument("-o", "--output", type=Path, default=Path("handler.wasm"), help="the component (handler.wasm)")
    parser.add_argument("--project", type=Path, default=Path(), help="the folder of the project (.)")
    parser.add_argument("--config", type=Path, help="the file whose grants the component imports (hostler.toml of the project)")
    parser.add_argument("--requirements", type=Path, help="the packages (requirements.txt of the project)")
    parser.add_argument("--componentize-py", type=Path, required=True, help="the folder where pip has installed componentize-py")
    parser.add_argument("--pip", type=Path, required=True, help="the folder where pip has installed pip")
    parser.add_argument("--only-packages", action="store_true", help="install the packages into build/packages, for tests and editors")
    options = parser.parse_args(arguments)
    project = options.project.resolve()
    requirements = options.requirements or project / "requirements.txt"
    try:
        build = project / "build"
        build.mkdir(exist_ok=True)
        packages = install(requirements, build, options.pip.resolve())
        if not options.only_packages:
            component(options, project, build, packages)
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def install(requirements: Path, build: Path, pip: Path) -> Path:
    """The folder with the packages that the requirements name, and with what these need."""
    wanted = requirements.read_text() if requirements.exists() else ""
    # A lock of other requirements is made again.
    mark = f"# {hashlib.sha256(wanted.encode()).hexdigest()}\n"
    lock = requirements.with_suffix(".lock")
    known = lock.read_text() if lock.exists() else ""
    text = known if mark in known else locked(requirements, wanted, mark, pip)
    packages = build / "packages"
    installed = packages.with_suffix(".lock")
    if not packages.exists() or not installed.exists() or installed.read_text() != text:
        shutil.rmtree(packages, ignore_errors=True)
        installed.write_text(text)
        try:
            run_pip(pip, "--target", str(packages), "--no-deps", "--require-hashes", "--requirement", str(installed))
        except Failure:
            shutil.rmtree(packages, ignore_errors=True)
            raise
        strip(packages)
    if text != known:
        lock.write_text(text)
    return packages


def locked(requirements: Path, wanted: str, mark: str, pip: Path) -> str:
    """The lines of a lock."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        always = Path(folder, "always.txt")
        always.write_text("\n".join(ALWAYS))
        named = ["--requirement", str(requirements)] if wanted else []
        run_pip(pip, "--dry-run", "--target", folder, "--report", str(report), *named, "--requirement", str(always))
        found = json.loads(report.read_text())["install"]
    lines = []
    for each in found:
        archive = each["download_info"].get("archive_info")
        if archive is None:
            raise Failure(f"{each['metadata']['name']} is not from a file: a lock has no digest of it")
        digest = archive["hashes"]["sha256"]
        lines.append(f"{each['metadata']['name'].lower()}=={each['metadata']['version']} --hash=sha256:{digest}\n")
    text = "# Made by the build of requirements.txt with this digest. Commit it; delete it to take newer versions.\n"
    return text + mark + "".join(sorted(lines))


def run_pip(pip: Path, *arguments: str) -> None:
    """Run our pip, and none of the packages of this machine."""
    cache = ["--cache-dir", str(pip.with_name(f"{pip.name}-cache"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment |= {"PYTHONPATH": str(pip), "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "_pip.py"), *cache, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise Failure(f"the packages of requirements.txt cannot be had\n{said(done.stderr)}")


def said(output: str) -> str:
    """What pip said, or the sentence about the package that cannot run."""
    lines = output.strip().splitlines()
    refused = [line for line in lines if " has no pure Python build: " in line]
    # The names of a hundred versions are no help.
    return "\n".join(refused or [re.sub(r"\(from versions: .{200,}?((, [^,]*){5})\)", r"(the last versions\1)", line) for line in lines])


def strip(packages: Path) -> None:
    """Take compiled modules away: the component cannot load them, and what needs them says so when it is imported."""
    for ending in ("*.so", "*.pyd", "*.dylib"):
        for compiled in packages.rglob(ending):
            compiled.unlink()
    shutil.rmtree(packages / "bin", ignore_errors=True)


def component(options: argparse.Namespace, project: Path, build: Path, packages: Path) -> None:
    """Build the component."""
    config = options.config or project / "hostler.toml"
    wit = build / "wit"
    fresh(wit)
    (wit / "world.wit").write_text(world(config))
    (wit / "deps" / "hostler").mkdir(parents=True)
    shutil.copy(HERE / "wit" / "hostler.wit", wit / "deps" / "hostler")
    sources = build / "project"
    fresh(sources)
    copy(project, sources)
    if not sources.joinpath(*options.module.split(".")).with_suffix(".py").exists():
        raise Failure(f"there is no {options.module}.py in {project}")
    library = build / "library"
    fresh(library)
    site = library / "site-packages"
    shutil.copytree(packages, site, ignore=shutil.ignore_patterns("__pycache__", "tests", "*.pyi"))
    shutil.copytree(HERE, site / "hostler_handler", ignore=lambda _, names: OF_THE_BUILD & set(names))
    (library / "hostler_start.py").write_text(
        "import sys\n"
        "sys.path.insert(sys.path.index('/1') + 1, '/1/site-packages')\n"
        "from hostler_handler import _start\n"
        f"_start.load({options.module!r}, '/0', '/1')\n"
        "from hostler_handler._runtime import MessageHandler\n"
    )
    # An environment without packages: componentize-py would take those of this machine.
    empty = build / "empty"
    (empty / "lib" / "python3" / "site-packages").mkdir(parents=True, exist_ok=True)
    tool = options.componentize_py.resolve()
    environment = os.environ | {"PYTHONPATH": str(tool), "VIRTUAL_ENV": str(empty), "PYTHONNOUSERSITE": "1"}
    part = options.output.with_suffix(".part")
    command = [sys.executable, str(tool / "bin" / "componentize-py"), "-q", "-d", str(wit), "-w", "handler"]
    command += ["componentize", "-p", str(sources), "-p", str(library), "hostler_start", "-o", str(part)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Failure(explained(done.stdout))
    print(done.stdout, end="")
    part.replace(options.output)


def fresh(folder: Path) -> None:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def copy(project: Path, to: Path) -> None:
    """Copy the modules of the project, and its data. Nothing else: a secret may lie beside them."""

    def kept(folder: str, names: list[str]) -> set[str]:
        is_data = any(part in DATA for part in Path(folder).relative_to(project).parts)
        left = {name for name in names if name.startswith(".") or name in LEFT_OUT or name == "__pycache__"}
        if not is_data:
            left |= {name for name in names if name.startswith("test_")}
            left |= {name for name in names if Path(folder, name).is_file() and not name.endswith(".py")}
        return left

    shutil.copytree(project, to, ignore=kept, dirs_exist_ok=True)
    for module in to.rglob("*.py"):
        try:
            ast.parse(module.read_bytes(), str(module.relative_to(to)))
        except SyntaxError as error:
            raise Failure(f"{module.relative_to(to)}, line {error.lineno}: {error.msg}") from None


def explained(output: str) -> str:
    """What the module said of its failure, without the backtrace of the tool."""
    if "fuel allocated for hostcalls" in output:
        return "the handler takes more than 128 MiB of memory, which is too much for componentize-py: name fewer packages"
    _, said, text = output.partition("AssertionError: ")
    text = text if said else output
    return "the handler cannot be loaded\n" + (text.partition("\n\nCaused by:")[0].strip() or output)


if __name__ == "__main__":
    sys.exit(main())
