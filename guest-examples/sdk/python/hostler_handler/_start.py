"""What happens while the component is built: every instance begins with the memory that this leaves."""

import dis
import gc
import importlib
import importlib.util
import logging
import os
import pkgutil
import sys
import threading

from . import _sockets, _tls

# Before asyncio, which looks for `ssl`.
_sockets.install()
_tls.install()

import asyncio  # noqa: E402

from . import _files, _handler, _loop, _runtime  # noqa: E402

#: Modules of the standard library that are imported by name at run time.
_LATE = ("encodings.idna", "encodings.latin_1", "encodings.ascii", "encodings.utf_8_sig", "encodings.cp1252", "zoneinfo")
#: Modules that no handler needs, though functions of packages import them.
_NEVER = {"IPython", "antigravity", "distutils", "idlelib", "pdb", "pip", "pkg_resources", "pytest", "setuptools", "test", "this", "tkinter", "turtle", "unittest", "webbrowser"}


def load(module: str, project: str, packages: str) -> None:
    """Import the handler of the project, and what it may import later."""
    # Before the imports: a module may keep `open` for later.
    _files.install()
    _loop.install()
    threading.Thread.start = _no_thread
    for late in _LATE:
        importlib.import_module(late)
    for interface in pkgutil.iter_modules(importlib.import_module("wit_world.imports").__path__):
        importlib.import_module(f"wit_world.imports.{interface.name}")
    importlib.import_module(module)
    _runtime.MessageHandler.function = staticmethod(_handler.the_handler())
    _import_late_modules((project, packages))
    # The loop of componentize-py, for a later WASI, makes itself the running one when a package imports it.
    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop(None)
    # The handler may have set it up.
    if not logging.root.handlers:
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    _files.keep(project, compile_modules=True)
    _files.keep(packages, compile_modules=True)
    # The standard library; compiled when it is needed. (`os` is a part of Python, and names another folder.)
    _files.keep(os.path.dirname(dis.__file__))
    sys.path_importer_cache.clear()
    _sockets.is_build = False
    os.environ.clear()
    _clear_free_memory()


def _no_thread(thread):
    raise RuntimeError(f"cannot start {thread.name}: a handler in Python has one thread; asyncio.to_thread runs a function in it")


def _import_late_modules(roots: tuple[str, ...]) -> None:
    """Import what functions import: a fresh instance then finds it loaded."""
    seen: set[str] = set()
    while new := [name for name in list(sys.modules) if name not in seen]:
        seen.update(new)
        for name in new:
            module = sys.modules.get(name)
            if not (getattr(module, "__file__", None) or "").startswith(roots) or name.startswith("hostler_handler"):
                continue
            for code in _files.functions_of(module):
                for wanted in _imports_of(code, getattr(module, "__package__", None) or ""):
                    if wanted.partition(".")[0] in _NEVER or wanted in sys.modules or wanted in seen:
                        continue
                    seen.add(wanted)
                    try:
                        importlib.import_module(wanted)
                    except BaseException:  # noqa: BLE001
                        # It cannot be had: the function that imports it says so, if it is called.
                        continue
                    seen.discard(wanted)


def _imports_of(code, package: str):
    """The modules that the code of a function imports."""
    steps, arguments = code.co_code[::2], code.co_code[1::2]
    place = steps.find(dis.opmap["IMPORT_NAME"])
    while place > 0:
        if steps[place - 1] == dis.EXTENDED_ARG:
            # Beyond the 256th name. The module is found at run time.
            place = steps.find(dis.opmap["IMPORT_NAME"], place + 1)
            continue
        name = code.co_names[arguments[place]]
        # Before it stand the level, and the names that are taken.
        is_small = steps[place - 2] == dis.opmap["LOAD_SMALL_INT"]
        level = arguments[place - 2] if is_small else 0
        try:
            yield importlib.util.resolve_name("." * level + name, package) if level else name
        except ImportError:
            pass
        place = steps.find(dis.opmap["IMPORT_NAME"], place + 1)


def _clear_free_memory() -> None:
    """Fill the free memory with zeros. It would be in the component: what Python has used and freed."""
    gc.collect()
    end = max(map(id, gc.get_objects()))
    taken = []
    size = 4 << 20
    while size >= 64:
        block = bytes(size)
        if id(block) < end:
            taken.append(block)
        else:
            # There is no free block of this size below the end.
            size //= 2
