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
export XDG_CACHE_HOME="$work/cache" TOOLCHAINS="$root/.toolchains"
