# The chart and the manifests, by helm and kubeconform: schemas of Kubernetes (PyPI: kubernetes-validate) and of KEDA.
. packaging/test/lib.sh
python=$TOOLS/python/bin/python
folder=$($python -c 'import kubernetes_validate, os; print(os.path.dirname(kubernetes_validate.__file__))')/kubernetes-json-schema
# Their names and references are those of a server: here they are files beside each other.
prepare() {
  mkdir -p "$work/schemas/v$1"
  $python - "$folder/v$1-local-strict" "$work/schemas/v$1" <<'PYTHON'
import json, sys
kinds = "_definitions serviceaccount-v1 configmap-v1 service-v1 deployment-apps-v1 poddisruptionbudget-policy-v1"
for kind in kinds.split():
    text = open(f"{sys.argv[1]}/{kind}.json").read().replace('"/api/_definitions.json#', '"_definitions.json#')
    schema = json.loads(text)
    schema.pop("$id", None)
    json.dump(schema, open(f"{sys.argv[2]}/{kind}.json", "w"))
PYTHON
}
conforms() {
  [ -d "$work/schemas/v$1" ] || prepare "$1"
  kubeconform -strict -summary -kubernetes-version "$1" \
    -schema-location "$work/schemas/{{ .NormalizedKubernetesVersion }}/{{ .ResourceKind }}{{ .KindSuffix }}.json" \
    -schema-location "$KEDA/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json" "$2" || fail "$2 on Kubernetes $1"
}
chart=packaging/helm/hostler
helm lint --strict $chart
set -- "defaults" "" \
  "keda" "--set keda.enabled=true" \
  "keda and a password" "--set keda.enabled=true,redis.existingSecret=redis" \
  "a claim" "--set compileCache.existingClaim=cache,restartOnConfigChange=false" \
  "no extras" "--set podDisruptionBudget.enabled=false,serviceAccount.create=false"
while [ $# -gt 0 ]; do
  helm template billing $chart --namespace queues $2 > "$work/rendered.yaml"
  newest=$(ls "$folder" | sed -n 's/^v\(.*\)-local$/\1/p' | sort -V | tail -n 1)
  conforms "$newest" "$work/rendered.yaml"
  conforms 1.27.0 "$work/rendered.yaml" 
  say "$1: fits Kubernetes 1.27.0 and $newest"
  shift 2
done
# The pitfalls of KEDA: one message activates, nothing is a fallback, pending messages keep a host.
helm template billing $chart --set keda.enabled=true > "$work/keda.yaml"
[ "$(grep -c 'activationLagCount: "0"' "$work/keda.yaml")" = 2 ] || fail "one message must activate"
! grep -q '^ *fallback:' "$work/keda.yaml" || fail "a fallback would run for ever without the group"
grep -q 'pendingEntriesCount:' "$work/keda.yaml" || fail "pending messages need a host"
grep -q 'address: "redis:6379"' "$work/keda.yaml" || fail "KEDA asks another server"
! grep -q '^  replicas:' "$work/keda.yaml" || fail "two would decide on the replicas"
cluster=$(helm template billing $chart --set keda.enabled=true --set-string 'config=redis = "rediss+cluster://a:1\,b:2"
stream = "s"
group = "g"')
echo "$cluster" | grep -q 'type: redis-cluster-streams' && echo "$cluster" | grep -q 'addresses: "a:1,b:2"' &&
  echo "$cluster" | grep -q 'enableTLS: "true"' || fail "KEDA and a cluster: $cluster"
sentinel=$(helm template billing $chart --set keda.enabled=true --set-string 'config=redis = "redis+sentinel://a:1\,b:2/main/3"
stream = "s"
group = "g"')
echo "$sentinel" | grep -q 'sentinelMaster: "main"' && echo "$sentinel" | grep -q 'databaseIndex: "3"' || fail "KEDA and Sentinels"
refused() {
  what=$1
  shift
  ! helm template billing $chart "$@" > "$work/out" 2>&1 || fail "accepted: $what"
  grep -q "$what" "$work/out" || { cat "$work/out"; fail "no word about: $what"; }
}
# It does refuse.
sed 's/runAsNonRoot/runAsNonRot/' "$work/keda.yaml" > "$work/wrong.yaml"
! (conforms "$newest" "$work/wrong.yaml") > /dev/null 2>&1 || fail "a field that Kubernetes does not know was accepted"
sed 's/maxReplicaCount: .*/maxReplicaCount: many/' "$work/keda.yaml" > "$work/wrong.yaml"
! (conforms "$newest" "$work/wrong.yaml") > /dev/null 2>&1 || fail "a field of KEDA with the wrong type was accepted"
refused "is not TOML" --set config='a = = 1'
refused "keda.minReplicas" --set keda.enabled=true --set-string 'config=redis = "redis://r:1"
list = "jobs"
reliable = true'
refused "not a channel" --set keda.enabled=true --set-string 'config=redis = "redis://r:1"
channel = "news"'
refused "keda.address" --set keda.enabled=true --set-string 'config=stream = "a"
group = "b"'
refused "additional" --set replica=3
# Without Helm: the same objects.
sh packaging/kubernetes/render.sh helm > "$work/hostler.yaml"
cmp "$work/hostler.yaml" packaging/kubernetes/hostler.yaml || fail "packaging/kubernetes is stale: make kubernetes"
conforms "$newest" packaging/kubernetes/hostler.yaml
# The configuration in them is one.
cp docs/schema/hostler.schema.json "$work/"
awk '/^  hostler.toml: \|/ { on = 1; next } on && !/^    / && NF { exit } on { print substr($0, 5) }' \
  packaging/kubernetes/hostler.yaml > "$work/hostler.toml"
taplo check --schema "file://$work/hostler.schema.json" "$work/hostler.toml"
# As the page says.
cp "$work/hostler.toml" "$work/site.toml"
(
  mkdir -p "$work/follow" && cd "$work/follow"
  ln -s "$root/packaging" packaging
  cp "$work/hostler.toml" .
  follow kubernetes
  [ -s billing.yaml ]
)
