#!/usr/bin/env bash
# Fills one tree inside its own namespaces: fill.sh ROOT IMAGES DOWNLOADS BASE CA GROUP...
#
# Root of the namespace runs it; all mounts vanish with the namespace, however the build ends.
# BASE is an archive of the bare system. CA is a file or "".
set -euo pipefail

root=$1 images=$2 downloads=$3 base=$4 ca=$5
shift 5

# Device files cannot be made without real root, and nobody needs them: /dev is mounted at run time.
tar -C "$root" --numeric-owner -xpf "$base" --exclude='./dev/*'
chown 0:0 "$root"
chmod 755 "$root"

# Files that tell about the building machine are replaced; the network's are bound over for the build only.
printf 'sandbox\n' >"$root/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n' >"$root/etc/hosts"
rm -f "$root/etc/resolv.conf"
: >"$root/etc/resolv.conf"

mount --bind "$root" "$root"
mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for name in null zero full random urandom tty; do
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
mkdir "$root/dev/shm"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
[[ -f /etc/hosts ]] && mount --bind /etc/hosts "$root/etc/hosts"

mkdir -p "$root/run/lock" "$root/run/foliobox/downloads"
mkdir "$root/run/foliobox/certs"
cp -R "$images/sandbox" "$root/run/foliobox/sandbox"
find "$images/certs" -maxdepth 1 -name '*.crt' -exec cp {} "$root/run/foliobox/certs/" \;
mount --bind "$downloads" "$root/run/foliobox/downloads"
export FOLIOBOX_BUILD_CACHE=/run/foliobox/downloads
if [[ -n $ca ]]; then
    cp "$ca" "$root/run/foliobox/ca.crt"
    chmod 644 "$root/run/foliobox/ca.crt"
    export FOLIOBOX_BUILD_CA=/run/foliobox/ca.crt
fi

chroot "$root" bash /run/foliobox/sandbox/install.sh "$@"

# The tree is never updated in place: its package sources would only tell which mirror made it.
rm -rf "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/*
