#!/usr/bin/env bash
# Builds the images of servers and workers from the wheels in a folder, and prints their sizes.
#
# usage: tools/build_containers.sh [FOLDER [OPTION...]]
#   FOLDER   with wheels of tf_byteps (dist)
#   OPTION   for each build, such as --build-arg BASE=docker.io/library/debian:bookworm-slim
# Variables: ENGINE (podman, docker or buildah: the first that is there), EXTRAS (cpu), TAG (latest).
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${1:-dist}
shift || true
engine=${ENGINE:-}
for found in podman docker buildah; do
  engine=${engine:-$(command -v "$found" || true)}
done
if [[ -z $engine ]]; then
  echo "build_containers: podman, docker and buildah are missing: install one (apt-get install podman)" >&2
  exit 1
fi
if ! compgen -G "$folder/tf_byteps-*.whl" >/dev/null; then
  echo "build_containers: there is no wheel of tf_byteps in $folder: make wheels" >&2
  exit 1
fi

for role in server worker; do
  image=localhost/tf_byteps-$role:${TAG:-latest}
  options=("$@")
  [[ $role == worker ]] && options+=(--build-arg "EXTRAS=${EXTRAS:-cpu}")
  "$engine" build -f "containers/$role.Containerfile" -t "$image" "${options[@]}" "$folder"
done
for role in server worker; do
  image=localhost/tf_byteps-$role:${TAG:-latest}
  echo "$image: $("$engine" images --format '{{.Size}}' "$image")"
done
