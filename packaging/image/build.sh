#!/bin/sh
# build.sh BINARY ARCH VERSION DIST: a container image without a daemon, as an OCI layout in an archive.
# It holds the binary, glibc and the certificates of the public authorities: no shell, no package manager.
set -eu
binary=$(realpath "$1") arch=$2 version=$3 dist=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
umask 022

# Only the files of these packages are unpacked, and nothing of them runs.
mmdebstrap --quiet --variant=extract --architectures="$arch" --include=libc6,libgcc-s1,ca-certificates \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  bookworm root

umoci init --layout image
umoci new --image "image:$version"
umoci unpack --image "image:$version" bundle
rootfs=bundle/rootfs
for folder in lib lib64 usr/lib usr/lib64; do
  [ ! -e "root/$folder" ] || { mkdir -p "$rootfs/$(dirname "$folder")" && cp -a "root/$folder" "$rootfs/$folder"; }
done
# What programs load by name, and no program of ours does.
rm -rf "$rootfs"/usr/lib/*/gconv "$rootfs"/usr/lib/*/perl-base "$rootfs"/usr/lib/apt "$rootfs"/usr/lib/dpkg
mkdir -p "$rootfs/usr/bin" "$rootfs/etc/ssl/certs" "$rootfs/etc/hostler" "$rootfs/handlers" "$rootfs/var/cache" \
  "$rootfs/var/lib/hostler" "$rootfs/tmp" "$rootfs/usr/share/doc"
for package in libc6 libgcc-s1 ca-certificates; do
  mkdir -p "$rootfs/usr/share/doc/$package"
  cp -L "root/usr/share/doc/$package/copyright" "$rootfs/usr/share/doc/$package/" 2>/dev/null || true
done
cat root/usr/share/ca-certificates/mozilla/*.crt > "$rootfs/etc/ssl/certs/ca-certificates.crt"
echo 'hostler:x:65532:65532:hostler:/var/lib/hostler:/nonexistent' > "$rootfs/etc/passwd"
echo 'hostler:x:65532:' > "$rootfs/etc/group"
echo 'hosts: files dns' > "$rootfs/etc/nsswitch.conf"
install -m 0755 "$binary" "$rootfs/usr/bin/hostler"
chown 65532:65532 "$rootfs/var/cache" "$rootfs/var/lib/hostler"
chmod 1777 "$rootfs/tmp"
umoci repack --image "image:$version" bundle
umoci config --image "image:$version" --architecture "$arch" --os linux \
  --config.user 65532:65532 --config.workingdir /var/lib/hostler \
  --config.entrypoint /usr/bin/hostler --config.cmd run --config.cmd --config --config.cmd /etc/hostler/hostler.toml \
  --config.env PATH=/usr/bin --config.env XDG_CACHE_HOME=/var/cache --config.env HOSTLER_ADMIN=0.0.0.0:9400 \
  --config.exposedports 9400/tcp --config.stopsignal SIGTERM \
  --config.label org.opencontainers.image.title=hostler \
  --config.label "org.opencontainers.image.version=$version" \
  --config.label "org.opencontainers.image.licenses=Apache-2.0 WITH LLVM-exception"
umoci tag --image "image:$version" latest
umoci gc --layout image
tar --sort=name --owner=0 --group=0 --numeric-owner -C image -cf "$dist/hostler-$version-oci-$arch.tar" .
