"""The credentials for a NATS server, and how its certificate is checked. Checked before anything is connected."""

import functools
import re
import ssl
from pathlib import Path

from msgspec import Struct

from seriatim.model import InputError


class NatsCredentials(Struct, frozen=True, kw_only=True):
    """Our credentials for the server. At most one of user, token, credentials file and key file."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: Path | None = None
    key_file: Path | None = None
    authority_file: Path | None = None  # what signed the server's certificate; None: the system's authorities
    certificate_file: Path | None = None  # ours, where the server asks for one
    certificate_key_file: Path | None = None
    tls_name: str | None = None  # the name in the server's certificate, where it is reached under another
    inbox: str = "_INBOX"  # answers to us go below this subject; one of our own keeps other users from reading them

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise InputError("user", "a user and a password belong together", "give both, or neither")
        ways = [self.user, self.token, self.credentials_file, self.key_file]
        if sum(way is not None for way in ways) > 1:
            raise InputError(
                "credentials", "more than one kind was given", "give one of: user, token, credentials file, key file"
            )
        if self.certificate_key_file is not None and self.certificate_file is None:
            raise InputError("certificate_file", "there is a key but no certificate", "give both")
        if re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", self.inbox) is None:
            raise InputError("inbox", f"{self.inbox!r} is not a subject", "use words joined by dots: _INBOX.billing")
        for name in ("credentials_file", "key_file", "authority_file", "certificate_file", "certificate_key_file"):
            path: Path | None = getattr(self, name)
            if path is not None and not path.is_file():
                raise InputError(name, f"there is no file {path}", "give the path of a file that can be read")

    def tls(self) -> ssl.SSLContext:
        if self.authority_file is None and self.certificate_file is None:
            return _system_authorities()
        try:
            context = ssl.create_default_context(cafile=str(self.authority_file) if self.authority_file else None)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.certificate_key_file)
        except ssl.SSLError as error:
            raise InputError(
                "certificate_file", f"a certificate or key cannot be used: {error}", "check them"
            ) from None
        return context


@functools.cache
def _system_authorities() -> ssl.SSLContext:
    """The system's authorities, read once: reading takes tens of milliseconds, and every connection needs them."""
    return ssl.create_default_context()
