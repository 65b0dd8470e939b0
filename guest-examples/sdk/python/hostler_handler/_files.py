"""Files of the component, in its memory: at run time there is no file system.

Modules that are imported late come from here, and so does data of packages: certificates, time zones, schemas, and the
templates of the project.
"""

import builtins
import errno
import importlib.machinery
import importlib.util
import io
import marshal
import os
import stat
import sys
import types
import zlib

#: Parts of the standard library that no handler can use.
_NEVER = ("idlelib", "tkinter", "turtledemo", "pydoc_data", "ensurepip", "venv", "lib2to3", "curses", "__pycache__", "config-")

#: Contents by path, compressed.
_contents: dict[str, bytes] = {}
_sizes: dict[str, int] = {}
#: Compiled modules by path, compressed.
_compiled: dict[str, bytes] = {}
#: What is in each folder.
_folders: dict[str, set[str]] = {}


def keep(root: str, compile_modules: bool = False) -> None:
    """Keep the files below a folder. With `compile_modules`, modules that nothing has imported yet are compiled now."""
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(_NEVER))
        _folders[folder] = {*folders, *files}
        for name in files:
            path = f"{folder}/{name}"
            with open(path, "rb") as file:
                content = file.read()
            _contents[path] = zlib.compress(content)
            _sizes[path] = len(content)
            if compile_modules and name.endswith(".py") and path not in imported:
                try:
                    code = compile(content, path, "exec", dont_inherit=True)
                except (SyntaxError, ValueError):
                    # For another version of Python: the import of it says so.
                    continue
                _compiled[path] = zlib.compress(marshal.dumps(code))


def _read(path: str) -> bytes:
    return zlib.decompress(_contents[path])


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module out of the memory."""

    def get_code(self, fullname):
        if compiled := _compiled.get(self.path):
            return marshal.loads(zlib.decompress(compiled))
        return compile(_read(self.path), self.path, "exec", dont_inherit=True)

    def get_data(self, path):
        path = _known(path)
        if path not in _contents:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return _read(path)


class _Finder:
    """Finds modules in the memory."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        tail = name.rpartition(".")[2]
        namespace = []
        for place in sys.path if path is None else path:
            base = f"{place}/{tail}"
            for file, inside in ((f"{base}/__init__.py", [base]), (f"{base}.py", None)):
                if file in _contents:
                    loader = _Loader(name, file)
                    return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
            if base in _folders:
                namespace.append(base)
        if not namespace:
            return None
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = namespace
        return spec


def _known(path: object) -> str:
    """The path as it is kept: those of the project may be relative."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        return ""
    if not text.startswith("/"):
        text = f"{_project}/{text}"
    return os.path.normpath(text)


_project = "/0"


def _stat_of(path: str) -> os.stat_result | None:
    if path in _contents:
        return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, _sizes[path], 0, 0, 0))
    if path in _folders:
        return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0))
    return None


class _Entry:
    def __init__(self, folder: str, name: str):
        self.name, self.path = name, f"{folder}/{name}"

    def __fspath__(self):
        return self.path

    def is_dir(self, *, follow_symlinks=True):
        return self.path in _folders

    def is_file(self, *, follow_symlinks=True):
        return self.path in _contents

    def is_symlink(self):
        return False

    is_junction = is_symlink

    def stat(self, *, follow_symlinks=True):
        return _stat_of(self.path)

    def inode(self):
        return 0


class _Entries:
    def __init__(self, entries):
        self._entries = iter(entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def close(self):
        pass


def install() -> None:
    """Serve the kept files where Python looks for files and modules, once there are some."""
    real_open, real_stat, real_lstat, real_listdir, real_scandir, real_access = (
        io.open, os.stat, os.lstat, os.listdir, os.scandir, os.access
    )

    def open_kept(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        path = "" if isinstance(file, int) else _known(file)
        if path not in _contents or set(mode) & set("wax+"):
            return real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        content = io.BytesIO(_read(path))
        content.name = path
        return content if "b" in mode else io.TextIOWrapper(content, encoding or "utf-8", errors, newline)

    def stat_kept(path, *, dir_fd=None, follow_symlinks=True):
        found = None if isinstance(path, int) else _stat_of(_known(path))
        return found or real_stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)

    def lstat_kept(path, *, dir_fd=None):
        return _stat_of(_known(path)) or real_lstat(path, dir_fd=dir_fd)

    def listdir_kept(path="."):
        known = _known(path)
        return sorted(_folders[known]) if known in _folders else real_listdir(path)

    def scandir_kept(path="."):
        known = _known(path)
        return _Entries(_Entry(known, name) for name in sorted(_folders[known])) if known in _folders else real_scandir(path)

    def access_kept(path, mode, **options):
        return not mode & os.W_OK if _stat_of(_known(path)) else real_access(path, mode, **options)

    io.open = builtins.open = open_kept
    io.open_code = lambda path: open_kept(path, "rb")
    os.stat, os.lstat, os.listdir, os.scandir, os.access = stat_kept, lstat_kept, listdir_kept, scandir_kept, access_kept
    sys.meta_path.append(_Finder)


def functions_of(module: types.ModuleType):
    """The code of the functions and methods of a module."""
    # Only types are asked: other objects may import something when they are touched.
    waiting = list(vars(module).values())
    while waiting:
        value = waiting.pop()
        if type(value) in (staticmethod, classmethod):
            value = value.__func__
        elif type(value) is property:
            value = value.fget
        if not issubclass(type(value), (type, types.FunctionType)) or value.__module__ != module.__name__:
            continue
        if type(value) is not types.FunctionType:
            waiting.extend(inner for inner in vars(value).values() if not issubclass(type(inner), type))
            continue
        waiting.append(vars(value).get("__wrapped__"))
        codes = [value.__code__]
        while codes:
            code = codes.pop()
            yield code
            codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
