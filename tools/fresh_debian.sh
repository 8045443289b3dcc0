#!/bin/bash
# Proves the package lists: makes a bare Debian 12 in FOLDER, copies the tracked files into it, and
# runs ./run and ./check there, with nothing installed before. Run by hand, as root; needs the
# package debootstrap.
#   tools/fresh_debian.sh FOLDER [COMMAND]   COMMAND (default: all of them) runs in the repository
set -euo pipefail

[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \?//p}' "$0" >&2; exit 2; }
folder=$(realpath -m "$1")
command=${2:-./run run models/fledgling -p Hello --temperature 0 --no-think && ./check}
repository=$(cd "$(dirname "$0")/.." && pwd)

[ -x "$folder/usr/bin/apt-get" ] || debootstrap --variant=minbase bookworm "$folder"
cp /etc/resolv.conf "$folder/etc/resolv.conf"
# The certificates that this machine trusts: its network may have one of its own.
cp /etc/ssl/certs/ca-certificates.crt "$folder/srv/certificates.crt"

rm -rf "$folder/srv/roost"
mkdir -p "$folder/srv/roost"
git -C "$repository" ls-files -z | tar -C "$repository" --null -T - -cf - |
  tar -C "$folder/srv/roost" -xf -
git -C "$folder/srv/roost" init -q && git -C "$folder/srv/roost" add -A

mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
mountpoint -q "$folder/dev" || mount --bind /dev "$folder/dev"
trap 'umount "$folder/dev" "$folder/proc"' EXIT
chroot "$folder" /usr/bin/env -i HOME=/srv PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  PIP_CERT=/srv/certificates.crt bash -c "cd /srv/roost && $command"
