# shellcheck shell=bash
# Installs Debian packages that are missing. Sourced by ./run and ./check.

# The packages of the named list files that are not installed, one a line.
missing_packages() {
  comm -23 <(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@" | LC_ALL=C sort -u) \
    <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' |
      sed -n 's/^installed //p' | LC_ALL=C sort -u)
}

# ensure_packages FILE…: nothing happens when all is there. Without root it says what to install.
ensure_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not a Debian system: install the equivalents of the packages in $* yourself."
    return 0
  fi
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  # shellcheck disable=SC2086  # a list of words
  set -- $missing
  if [ "$(id -u)" != 0 ]; then
    echo "These Debian packages are missing and this user may not install them. As root, run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends $*" >&2
    return 1
  fi
  echo "Installing $# Debian packages: $*"
  apt_quietly "reading the package lists" apt-get update || return 1
  apt_quietly "installing" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "$@"
}

# Runs an apt command with one line of progress a package on a terminal and in logs alike; shows
# the whole output only when the command fails.
apt_quietly() {
  local what=$1 log status
  shift
  log=$(mktemp)
  echo "  $what …"
  "$@" </dev/null 2>&1 | tee "$log" |
    awk '/^Setting up / { n += 1; printf "  %4d  %s\n", n, $3; fflush() }'
  status=${PIPESTATUS[0]}
  [ "$status" = 0 ] || cat "$log" >&2
  rm -f "$log"
  return "$status"
}
