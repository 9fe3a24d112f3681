"""The certificate authority of an embedded cluster: it signs the certificates of nodes and users, for tests."""

from __future__ import annotations

import datetime
import ipaddress
import os
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pyclient.broker_embedded.cluster.private_files import write_private
from pyclient.broker_embedded.log.data_directory import CERTIFICATES
from pyclient.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ModuleNotFoundError as error:
    raise ConfigError(
        f"a cluster that makes its own certificates needs the package cryptography ({error}): "
        "pip install 'pyclient-kafka[security]', or give ssl.keystore.location"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterable

_DAYS: Final = 3650
_NAME: Final = "pyclient test authority"


class Authority:
    """Keeps its key and all certificates as files in `directory`, which only this user can read."""

    def __init__(self, directory: str) -> None:
        """Create the authority, or load the existing one. Raise `ConfigError` if its files cannot be read."""
        self._directory = directory
        self.certificate_path = self._path("ca.pem")
        key_path = self._path("ca.key")
        if os.path.exists(key_path):
            try:
                with open(key_path, "rb") as file:
                    key = serialization.load_pem_private_key(file.read(), None)
                with open(self.certificate_path, "rb") as file:
                    self._certificate = x509.load_pem_x509_certificate(file.read())
            except (OSError, ValueError) as error:
                raise ConfigError(f"the authority in {directory} cannot be used: {error}") from error
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key = key
            return
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        self._certificate = (
            _builder(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        write_private(self.certificate_path, _pem(self._certificate))
        write_private(key_path, _key_pem(self._key))

    def __repr__(self) -> str:
        return f"<Authority in {self._directory}>"

    def of_nodes(self, name: str, hosts: Iterable[str]) -> str:
        """Return the path of a new certificate, with its key, for nodes at these hosts."""
        return self._issue("broker.pem", name, hosts)

    def of_user(self, user: str) -> str:
        """Return the path of a user's certificate, with its key; it is created on first use."""
        file = f"user-{quote(user, safe='')}.pem"
        path = self._path(file)
        return path if os.path.exists(path) else self._issue(file, user, ())

    def _issue(self, file: str, name: str, hosts: Iterable[str]) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _builder(subject, self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        names = [_host(each) for each in dict.fromkeys(hosts) if each]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        path = self._path(file)
        write_private(path, _key_pem(key) + _pem(builder.sign(self._key, hashes.SHA256())))
        return path

    def _path(self, file: str) -> str:
        return os.path.join(self._directory, f"{CERTIFICATES}{file}")


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
