"""Certificates for the tests of `--web-config`."""

import datetime
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

# Subject alternative names that are no names, in DER (RFC 5280, section 4.2.1.6).
MALFORMED_NAMES = {
    "an IP address of five bytes": bytes.fromhex("3007 8705 0102030405"),
    "an IP address of no bytes": bytes.fromhex("3002 8700"),
    "a DNS name that is not ASCII": bytes.fromhex("3003 8201 ff"),
    "a URI that is not ASCII": bytes.fromhex("3003 8601 ff"),
}


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its files."""

    ca: trustme.CA
    folder: Path

    def issue(self, *names: str, to: str = "server") -> None:
        """Write `<to>.crt` and `<to>.key`, as a renewal does: over the old ones."""
        certificate = self.ca.issue_cert(*(names or ("localhost", "127.0.0.1")))
        chain = b"".join(pem.bytes() for pem in certificate.cert_chain_pems)
        for name, content in ((f"{to}.key", certificate.private_key_pem.bytes()), (f"{to}.crt", chain)):
            fresh = self.folder / f"{name}.new"
            fresh.write_bytes(content)
            fresh.rename(self.folder / name)

    def issue_malformed(self, names: bytes, *, to: str) -> None:
        """Write a client's certificate whose alternative names are these bytes."""
        issuer = x509.load_pem_x509_certificate(self.ca.cert_pem.bytes())
        signer = serialization.load_pem_private_key(self.ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.datetime(2000, 1, 1))
            .not_valid_after(datetime.datetime(2038, 1, 1))
            .add_extension(
                x509.UnrecognizedExtension(x509.OID_SUBJECT_ALTERNATIVE_NAME, names), critical=True
            )
            .sign(signer, hashes.SHA256())
        )
        (self.folder / f"{to}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (self.folder / f"{to}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def write(self, text: str) -> Path:
        """Write the web configuration."""
        path = self.folder / "web.yml"
        path.write_text(text)
        return path
