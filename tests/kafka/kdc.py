"""A Kerberos KDC of MIT on loopback, with its own configuration and database in a directory of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.waiting import until

REALM: Final = "PYCLIENT.TEST"
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit", "klist")
_STOP_TIMEOUT: Final = 30.0
_PATHS: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

_CLIENTS: Final = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""
_SERVER: Final = """\
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
}}
[logging]
kdc = FILE:{directory}/kdc.log
admin_server = FILE:{directory}/kadmin.log
default = FILE:{directory}/kerberos.log
"""


def why_no_kdc() -> str | None:
    """Return why no KDC can run here; None if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATHS) is None]
    if missing:
        return f"{missing[0]} is not installed: `make kerberos` as root, or krb5-kdc, krb5-admin-server and krb5-user"
    try:
        import gssapi  # noqa: F401
    except ImportError as error:
        return f"the extra gssapi is not installed ({error}): `make kerberos`"
    return None


class Kdc:
    """A KDC for one realm, which tests may stop and start."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None
        own = {"realm": REALM, "port": port, "directory": directory}
        (directory / "krb5.conf").write_text(_CLIENTS.format(**own))
        (directory / "kdc.conf").write_text(_SERVER.format(**own))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which Kerberos' programs and libraries find this KDC, and no ticket of the user's."""
        return {
            "KRB5_CONFIG": str(self.directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.directory}/tickets",
            "KRB5_CLIENT_KTNAME": f"FILE:{self.directory}/none.keytab",
        }

    def __enter__(self) -> Kdc:
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master key of a test")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the KDC, and wait until it listens."""
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n", "-r", REALM],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._listens, f"the KDC does not listen on port {self.port}")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the KDC ended: {(self.directory / 'kdc.log').read_text()[-1000:]}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def stop(self) -> None:
        """Stop the KDC: nothing listens on its port then."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, name: str, *arguments: str, check: bool = True, **environment: str) -> int:
        """Run one of Kerberos' programs, and return its exit code, which is 0 with `check`."""
        done = subprocess.run(
            [_program(name), *arguments],
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, f"{name} {arguments} failed:\n{done.stdout}\n{done.stderr}"
        return done.returncode

    def administer(self, query: str) -> None:
        """Run a command of kadmin."""
        self.run("kadmin.local", "-r", REALM, "-q", query)

    def add(self, principal: str, *options: str) -> Path:
        """Add a principal with a random key, and return a keytab with it."""
        self.administer(" ".join(("addprinc -randkey", *options, principal)))
        return self.export(principal)

    def export(self, principal: str) -> Path:
        """Give a principal a new key, and return a keytab with it."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        path.unlink(missing_ok=True)
        self.administer(f"ktadd -k {path} {principal}")
        assert path.exists(), f"there is no principal {principal}"
        return path

    def log_in(self, principal: str, keytab: Path, cache: Path, *options: str) -> None:
        """Fill a ticket cache, as a user does with kinit."""
        self.run("kinit", *options, "-k", "-t", str(keytab), principal, KRB5CCNAME=f"FILE:{cache}")

    def is_valid(self, cache: Path) -> bool:
        """Return True if the ticket in a cache has not expired."""
        return self.run("klist", "-s", check=False, KRB5CCNAME=f"FILE:{cache}") == 0


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATHS)
    assert found is not None, f"{name} is not installed"
    return found
