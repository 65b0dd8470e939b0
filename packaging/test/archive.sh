# The archive: what it holds, what the binary needs, and the checksums.
. packaging/test/lib.sh
(cd "$DIST" && sha256sum --quiet --check SHA256SUMS) || fail "a checksum is wrong"
cd "$work"
cp "$(package "hostler-$VERSION-$(uname -m)-linux.tar.gz")" .
follow archive
tree=$work/hostler-$VERSION-$(uname -m)-linux
for file in bin/hostler share/man/man1/hostler.1.gz share/man/man1/hostler-dlq-replay.1.gz \
  share/bash-completion/completions/hostler share/zsh/site-functions/_hostler \
  share/fish/vendor_completions.d/hostler.fish share/hostler/schema/hostler.schema.json \
  share/doc/hostler/LICENSE share/doc/hostler/THIRDPARTY.yml share/doc/hostler/hostler.toml.example; do
  [ -s "$tree/$file" ] || fail "no $file"
done
# glibc 2.28 at most, nothing but glibc, and no symbols.
newest=$(objdump -T "$tree/bin/hostler" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
say "it needs $newest"
[ "$(printf '%s\nGLIBC_2.28\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.28 ] || fail "it needs $newest"
others=$(objdump -p "$tree/bin/hostler" | sed -n 's/^ *NEEDED *//p' | grep -v -e '^lib[cm]\.so' -e '^libpthread' -e '^libdl' -e '^librt' -e '^ld-linux' || true)
[ -z "$others" ] || fail "it links $others"
! nm "$tree/bin/hostler" 2>/dev/null | grep -q . || fail "it has symbols"
say "the binary: $(du -m "$tree/bin/hostler" | cut -f1) MB, the archive: $(du -m hostler-*.tar.gz | cut -f1) MB"
man -l "$tree/share/man/man1/hostler-run.1.gz" > "$work/man.txt" 2>&1 && grep -q 'min-idle' "$work/man.txt" || fail "the manual page"
bash -n "$tree/share/bash-completion/completions/hostler"
# The list of parts names what is linked, with licences.
parts=$(package "hostler-$VERSION-$(uname -m).cdx.json")
python3 - "$parts" "$tree/share/doc/hostler/THIRDPARTY.yml" <<'PYTHON'
import json, sys
parts = json.load(open(sys.argv[1]))
assert parts["bomFormat"] == "CycloneDX", parts.keys()
# Those that only build it are marked: nothing of them is in the binary.
names = {part["name"] for part in parts["components"] if part.get("scope") != "excluded"}
assert {"wasmtime", "redis", "tokio"} <= names, names
licences = open(sys.argv[2]).read()
missing = [name for name in names if f"package_name: {name}\n" not in licences]
assert not missing, missing
print("  ", len(names), "parts, all with a licence")
PYTHON
