"""Builds one handler in two environments with different packages: both components behave alike, and have none of these."""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
SDK = HERE.parents[2] / "guest-examples" / "sdk" / "python"


def environment(folder: Path, modules: dict[str, str]) -> Path:
    """The Python of a new environment with these modules."""
    venv.create(folder, clear=True, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv" if "venv" in sysconfig.get_scheme_names() else None, {"base": str(folder)}))
    for name, text in modules.items():
        (site / f"{name}.py").write_text(text)
    return folder / "bin" / "python3"


def answer(options: argparse.Namespace, work: Path, python: Path) -> str:
    """What the handler prints that this Python has built."""
    shutil.copytree(HERE / "hermetic", work, ignore=shutil.ignore_patterns("build", "*.wasm"))
    build = [str(python), "-m", "hostler_handler.build", "--pip", options.pip, "--componentize-py", options.componentize_py]
    # As an activated environment has it.
    variables = os.environ | {"PYTHONPATH": str(SDK), "VIRTUAL_ENV": str(python.parents[1])}
    subprocess.run(build, cwd=work, env=variables, check=True)
    invoke = [options.hostler, "invoke", "handler.wasm", "--config", "hostler.toml", "--body", "{}"]
    done = subprocess.run(invoke, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = [line[line.index("answer ") :] for line in done.stdout.splitlines() if "answer " in line]
    if done.returncode or len(lines) != 1:
        raise SystemExit(f"the handler of {python} fails:\n{done.stdout}")
    return lines[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--hostler", "--pip", "--componentize-py"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    work = HERE / "build" / "hermetic"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    # Another yaml, a package that nothing names, and a module of the project's name.
    many = {"yaml": "raise SystemExit('yaml of the machine')", "stray": "", "late": "WORD = 'of the machine'"}
    answers = [
        answer(options, work / name, environment(work / f"{name}-env", modules))
        for name, modules in (("many", many), ("none", {}))
    ]
    if answers[0] != answers[1] or "None of the project" not in answers[0]:
        print(f"the handlers differ:\n{answers[0]}\n{answers[1]}")
        return 1
    print(f"two environments build handlers that behave alike: {answers[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
