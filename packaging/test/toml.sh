# Every configuration and table of cases in the repository, and in the docs, by taplo and by the schemas.
. packaging/test/lib.sh
schemas=$root/docs/schema
list=$work/list
find guest-examples packaging tests -name node_modules -prune -o -name target -prune -o -name build -prune -o \
  \( -name hostler.toml -o -name cases.toml \) -type f -print > "$list"
# The blocks of the docs become files.
n=0
for page in docs/*.md docs/*/*.md; do
  awk -v out="$work/block-$(echo "$page" | tr '/' '-')" '
    /^ *```toml$/ { inside = 1; indent = index($0, "`") - 1; n++; next }
    /^ *```$/ { inside = 0; next }
    inside { print substr($0, indent + 1) > (out "-" n ".toml") }
  ' "$page"
done
ls "$work"/block-*.toml >> "$list"
# One run for each schema: taplo takes seconds to start.
grep -l '^\[\[case\]\]' $(cat "$list") > "$work/cases"
grep -L '^\[\[case\]\]' $(cat "$list") > "$work/configurations"
taplo check --schema "file://$schemas/hostler.schema.json" $(cat "$work/configurations") </dev/null || fail "a configuration"
taplo check --schema "file://$schemas/cases.schema.json" $(cat "$work/cases") </dev/null || fail "a table of cases"
n=$(wc -l < "$list")
say "$n files fit the schemas"
[ "$n" -gt 30 ] || fail "only $n files"
# It does refuse.
printf 'min_idel = "30s"\n' > "$work/wrong.toml"
! taplo check --schema "file://$schemas/hostler.schema.json" "$work/wrong.toml" || fail "an unknown key was accepted"
printf 'min_idle = "30"\n' > "$work/wrong.toml"
! taplo check --schema "file://$schemas/hostler.schema.json" "$work/wrong.toml" || fail "a duration without unit was accepted"
# The line that `hostler new` writes is enough for it.
mkdir -p "$work/project/schema"
cp "$schemas/hostler.schema.json" "$work/project/schema/"
printf '#:schema schema/hostler.schema.json\nmin_idel = "30s"\n' > "$work/project/hostler.toml"
(cd "$work/project" && ! taplo check hostler.toml) || fail "the line #:schema was not followed"
