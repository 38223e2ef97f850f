"""Certificates for tests, made on the spot: an authority, a server's and a client's, and ones nobody should trust."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Certificates:
    """Files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority_key = ec.generate_private_key(ec.SECP256R1())
        self._authority = self._make("authority", self._authority_key, None)
        self.authority = self._write("authority.pem", self._authority)
        self.server, self.server_key = self.issue("server")
        self.client, self.client_key = self.issue("client")
        self.expired, self.expired_key = self.issue("expired", days=-1)
        self.misnamed, self.misnamed_key = self.issue("misnamed", host="10.1.2.3")
        self.stranger = self._write(
            "stranger.pem", self._make("stranger", ec.generate_private_key(ec.SECP256R1()), None)
        )

    def issue(self, name: str, *, days: int = 30, host: str = "127.0.0.1") -> tuple[Path, Path]:
        """A certificate for this machine, signed by the authority, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._write(f"{name}.pem", self._make(name, key, host, days))
        return certificate, self.write_key(f"{name}.key", key)

    def write_key(self, name: str, key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> Path:
        """A file with the key, encrypted if a password is given."""
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        path = self.folder / name
        path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
        path.chmod(0o600)
        return path

    def _make(self, name: str, key: ec.EllipticCurvePrivateKey, host: str | None, days: int = 30) -> x509.Certificate:
        """Without a host: an authority, signed by itself."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = subject if host is None else self._authority.subject
        signer = key if host is None else self._authority_key
        ends = datetime.now(UTC) + timedelta(days=days)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(ends - timedelta(days=60))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if host is None:
            usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host)), x509.DNSName("sequencer.test")])
            purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
            builder = builder.add_extension(names, critical=False).add_extension(purposes, critical=False)
        return builder.sign(signer, hashes.SHA256())

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self.folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path
