"""The world of a component: hostler's, and an interface for each grant of its queue."""

from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

#: The interface that a grant is for.
INTERFACES = {
    "http": "hostler:handler/http@1.2.0",
    "publish": "hostler:handler/publisher@1.2.0",
    "journal": "hostler:handler/journal@1.2.0",
    "key-value": "hostler:handler/key-value@1.2.0",
    "secret": "hostler:handler/secrets@1.2.0",
    "config": "wasi:config/store@0.2.0-rc.1",
}
#: Of the interfaces above, the one that is not hostler's.
CONFIG = """
package wasi:config@0.2.0-rc.1 {
  interface store {
    variant error {
      upstream(string),
      io(string),
    }
    get: func(key: string) -> result<option<string>, error>;
    get-all: func() -> result<list<tuple<string, string>>, error>;
  }
}
"""


def world(config: Path) -> str:
    """The text of the world. What the file grants is imported, and nothing else."""
    settings = tomllib.loads(config.read_text()) if config.exists() else {}
    granted = settings.get("grant", {})
    if "secret" in granted and not any(isinstance(s, dict) and s.get("expose") for s in granted["secret"].values()):
        # For headers of rules: the handler reads none.
        granted = {name: value for name, value in granted.items() if name != "secret"}
    imports = "".join(f"  import {name};\n" for grant, name in INTERFACES.items() if grant in granted)
    if "stream" in settings or settings.get("reliable"):
        # Other queues are at most once, and refuse a handler that can hold or reply.
        imports += "  import hostler:handler/flow@1.2.0;\n  import hostler:handler/reply@1.2.0;\n"
    return (
        "package hostler:python;\n\nworld handler {\n  include hostler:handler/handler@1.2.0;\n"
        f"{imports}}}\n{CONFIG if 'config' in granted else ''}"
    )
