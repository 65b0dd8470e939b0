#!/bin/sh
# keda-schemas.sh KEDA_VERSION KUBECONFORM_VERSION PYTHON FOLDER: the JSON Schemas of the definitions of KEDA, made by the
# script of kubeconform. Both come as Go modules.
set -eu
keda=$1 kubeconform=$2 python=$3 folder=$4
where() { go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }
definitions=$(where "github.com/kedacore/keda/v2@$keda")/config/crd/bases
script=$(where "github.com/yannh/kubeconform@$kubeconform")/scripts/openapi2jsonschema.py
mkdir -p "$folder"
cd "$folder"
FILENAME_FORMAT='{kind}_{version}' "$python" "$script" "$definitions/keda.sh_scaledobjects.yaml" \
  "$definitions/keda.sh_triggerauthentications.yaml"
