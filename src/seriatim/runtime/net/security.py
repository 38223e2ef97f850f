"""Who may connect, and how connections are kept private: tokens and TLS, read from files.

Clients and nodes have different tokens. The token of clients does not admit a node, because all trust what a node says
about the order. A certificate does not admit a node either: clients have certificates of the same authority. Without
tokens every connection is admitted, which is safe on one machine only.
"""

import hmac
import logging
import ssl
from pathlib import Path

from msgspec import Struct, structs

from seriatim.model import InputError
from seriatim.protocols.proofs import KEY_BYTES_MIN

logger = logging.getLogger(__name__)

TOKEN_CHARACTERS_MIN = 16
TOKEN_CHARACTERS_MAX = 1_024  # it must fit into the hello
SECRET_BYTES_MAX = 64 * 1024  # that are read of a file: it may be a device without an end
TOKEN_FIX = f'use {TOKEN_CHARACTERS_MIN} or more characters, for example the output of "openssl rand -hex 32"'
KEY_FIX = f'write at least {2 * KEY_BYTES_MIN} of them, for example the output of "openssl rand -hex 32"'


class SecurityOptions(Struct, frozen=True, kw_only=True):
    """What one process needs to be let in and to let others in.

    `certificate` and `key`: what this process shows; a server with them speaks TLS only. `authority`: the certificates
    that others are checked against (none: those the system trusts). `tls`: speak TLS although no file is given.
    """

    token: str = ""
    node_token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    require_client_certificate: bool = False
    tls: bool = False

    def __post_init__(self) -> None:
        _check_token("token", self.token)
        _check_token("node_token", self.node_token)
        if self.token and hmac.compare_digest(self.token.encode(), self.node_token.encode()):
            raise InputError("node_token", "it is the same as the token of clients", "give nodes a token of their own")
        if (self.certificate is None) != (self.key is None):
            missing, given = ("key", "certificate") if self.key is None else ("certificate", "key")
            raise InputError(missing, f"is missing, and {given} is given", "give both or neither")
        if self.require_client_certificate and (self.authority is None or self.certificate is None):
            problem = "certificates cannot be required without something to check them against"
            raise InputError("require_client_certificate", problem, "give authority, certificate and key too")

    @classmethod
    def load(
        cls,
        *,
        token_file: str = "",
        node_token_file: str = "",
        certificate: str = "",
        key: str = "",
        authority: str = "",
        require_client_certificate: bool = False,
        tls: bool = False,
        folder: Path = Path(),
    ) -> "SecurityOptions":
        """Read the tokens, and check that every file can be used. Relative paths are relative to `folder`."""
        files = {"certificate": certificate, "key": key, "authority": authority}
        options = cls(
            token=_read_token("token_file", folder / token_file) if token_file else "",
            node_token=_read_token("node_token_file", folder / node_token_file) if node_token_file else "",
            require_client_certificate=require_client_certificate,
            tls=tls,
            **{name: folder / file for name, file in files.items() if file},
        )
        options.client_context()
        if options.certificate is not None:
            options.server_context()
        return options

    def overridden(self, given: "SecurityOptions") -> "SecurityOptions":
        """These options, with the given ones replaced. A new token does not remove a certificate."""
        default = SecurityOptions()
        told = {name: getattr(given, name) for name in self.__struct_fields__}
        return structs.replace(self, **{name: value for name, value in told.items() if value != getattr(default, name)})

    @property
    def encrypted(self) -> bool:
        return self.tls or self.certificate is not None or self.authority is not None

    @property
    def asks_clients(self) -> bool:
        """Whether clients must show a token. Then nodes must show the token of nodes."""
        return bool(self.token) or self.require_client_certificate

    def token_of(self, role: str) -> str:
        """The token that this role must show."""
        return self.node_token if role == "node" else self.token

    def problem_with(self, role: str, token: str) -> str | None:
        """Why a connection with this token is not admitted as `role`. None: it is admitted."""
        expected = self.token_of(role)
        if not expected:
            if role == "node" and self.asks_clients:
                return "no node may connect: node_token is not set there"
            return None
        if hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogatepass")):
            return None
        name = "node_token" if role == "node" else "token"
        return f"wrong {name}" if token else f"a {name} is needed"

    def server_context(self) -> ssl.SSLContext | None:
        """The TLS context for connections to us. None: no TLS."""
        if not self.encrypted:
            return None
        if self.certificate is None or self.key is None:
            fix = "give certificate and key, or leave out tls and authority"
            raise InputError("certificate", "a server cannot speak TLS without one", fix)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        _load_chain(context, self.certificate, self.key)
        if self.authority is not None:
            _load_authority(context, self.authority)
        if self.require_client_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self) -> ssl.SSLContext | None:
        """The TLS context for our connections. The server's certificate must name its host. None: no TLS."""
        if not self.encrypted:
            return None
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
        if self.authority is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts nobody yet: the given ones replace the system's
            _load_authority(context, self.authority)
        if self.certificate is not None and self.key is not None:
            _load_chain(context, self.certificate, self.key)
        return context


def load_stamp_key(field: str, path: Path) -> bytes:
    """The key with which nodes prove stamps and subscribers check them: a file of hexadecimal digits."""
    text = _read_text(field, path, KEY_FIX)
    try:
        key = bytes.fromhex(text)
    except ValueError:
        raise InputError(field, f"{path} does not hold hexadecimal digits", KEY_FIX) from None
    if len(key) < KEY_BYTES_MIN:
        raise InputError(field, f"{path} holds only {len(key)} bytes, so it can be guessed", KEY_FIX)
    _warn_if_open(path)
    return key


def _check_token(field: str, token: str) -> None:
    if not token:
        return
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(field, "it holds blanks, line ends or characters that are not ASCII", TOKEN_FIX)
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        problem = f"it has {len(token)} characters, not {TOKEN_CHARACTERS_MIN} to {TOKEN_CHARACTERS_MAX}"
        raise InputError(field, problem, TOKEN_FIX)


def _read_text(field: str, path: Path, fix: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(SECRET_BYTES_MAX).decode("ascii").strip()
    except UnicodeDecodeError:
        raise InputError(field, f"{path} is not a text file", fix) from None
    except OSError as error:
        raise _unreadable(field, path, error) from None


def _read_token(field: str, path: Path) -> str:
    token = _read_text(field, path, TOKEN_FIX)
    if not token:
        raise InputError(field, f"{path} is empty", TOKEN_FIX)
    _check_token(field, token)
    _warn_if_open(path)
    return token


def _load_chain(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    _check_readable("certificate", certificate)
    _check_readable("key", key)
    _warn_if_open(key)

    def refuse_password() -> str:  # else OpenSSL asks on the terminal
        raise InputError("key", f"{key} is encrypted", "give a key without a passphrase that only its owner can read")

    try:
        context.load_cert_chain(certificate, key, password=refuse_password)
    except ssl.SSLError as error:
        problem = f"{certificate} and {key} are not a certificate and its key ({_brief(error)})"
        raise InputError("certificate", problem, "give PEM files that belong together") from None


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    _check_readable("authority", authority)
    try:
        context.load_verify_locations(authority)
    except ssl.SSLError as error:
        problem = f"{authority} holds no certificates ({_brief(error)})"
        raise InputError("authority", problem, "give a PEM file with the certificates to trust") from None


def _check_readable(field: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _unreadable(field, path, error) from None


def _unreadable(field: str, path: Path, error: OSError) -> InputError:
    fix = "let the user that runs this read it" if isinstance(error, PermissionError) else "correct the path"
    return InputError(field, f"{path} cannot be read ({error.strerror})", fix)


def _warn_if_open(path: Path) -> None:
    if path.stat().st_mode & 0o007:
        logger.warning("every user can read a secret: path=%s fix=%s", path, f"chmod o-rwx {path}")


def _brief(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
