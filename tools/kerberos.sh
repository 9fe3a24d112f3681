#!/bin/sh
# Install what the tests of GSSAPI need: a KDC and the tools of MIT's Kerberos, by apt where that is there and allowed,
# and python-gssapi, which is compiled with Kerberos' headers, for the interpreter PYTHON.
#
#   tools/kerberos.sh PYTHON
#
# What is missing in the end is said by the tests, which are skipped then, or fail with PYCLIENT_REQUIRE_ALL=1.
set -eu
python=$1
PATH=$PATH:/usr/sbin:/sbin

is_complete() {
  for program in krb5kdc kdb5_util kadmin.local kinit klist krb5-config; do
    command -v "$program" >/dev/null || return 1
  done
}

apt_install() {
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=300 \
    krb5-kdc krb5-admin-server krb5-user libkrb5-dev >/dev/null
}

if ! is_complete && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing krb5-kdc, krb5-admin-server, krb5-user and libkrb5-dev"
  apt_install 2>/dev/null || { apt-get update -qq && apt_install; } || echo "apt-get failed: no KDC for the tests" >&2
fi
if ! "$python" -c 'import gssapi' 2>/dev/null; then
  if command -v krb5-config >/dev/null; then
    "$python" - <<'P' || echo "python-gssapi was not built" >&2
import subprocess, sys, tomllib
with open("pyproject.toml", "rb") as file:
    wanted = tomllib.load(file)["project"]["optional-dependencies"]["gssapi"]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet", *wanted]))
P
  else
    echo "Kerberos' headers are not installed (Debian: libkrb5-dev): no python-gssapi for the tests" >&2
  fi
fi
