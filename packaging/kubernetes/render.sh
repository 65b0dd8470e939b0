#!/bin/sh
# render.sh HELM: the manifests of this folder: the chart as it is, with KEDA.
set -eu
cd "$(dirname "$0")/../.."
cat <<'NOTE'
# One queue on Kubernetes, without Helm: made by `make kubernetes` from packaging/helm/hostler.
# Change the ConfigMap, the image, and the password of Redis (Secret `redis`, key `password`). Without KEDA, leave out
# the ScaledObject and the TriggerAuthentication, and set `replicas` of the Deployment.
NOTE
"$1" template hostler packaging/helm/hostler --namespace hostler --set keda.enabled=true,redis.existingSecret=redis |
  sed -e 's/^# Source: .*//' -e 's/managed-by: Helm/managed-by: kubectl/' | cat -s
