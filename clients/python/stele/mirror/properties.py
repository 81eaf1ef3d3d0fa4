"""Properties of a cluster, under the names that Kafka's Java client and librdkafka give them.

Pure: what reads files and the environment is a parameter. A value may refer to a secret with ``${env:NAME}`` or
``${file:PATH}``; messages never show values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from ..wire.notation import parse_boolean, parse_whole
from .errors import MirrorError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Other names of the same properties, and the one that is used here.
_ALIASES = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
    "socket.timeout.ms": "request.timeout.ms",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
_TEXTS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.token",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "ssl.endpoint.identification.algorithm",
        "enable.ssl.certificate.verification",
        "client.id",
    }
)
# Default, least and largest value. A piece of a partition must fit a frame of the target several times.
_NUMBERS = {
    "request.timeout.ms": (30_000, 1_000, 600_000),
    "socket.connection.setup.timeout.ms": (10_000, 100, 300_000),
    "fetch.max.bytes": (8 << 20, 1 << 10, 32 << 20),
    "max.partition.fetch.bytes": (1 << 20, 1 << 10, 8 << 20),
    "fetch.max.wait.ms": (500, 1, 30_000),
}
NAMES = sorted(_TEXTS | _NUMBERS.keys() | _ALIASES.keys())
_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient)\b(?P<options>.*?);\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(r"\s*([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))")
_JAAS_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files in PEM; without a CA those of the system are trusted."""

    ca_file: str | None = None
    ca_pem: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    checks_certificate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslLogin:
    """The mechanism, and what it needs."""

    mechanism: Mechanism
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """How to connect to the source, and how much to ask it for at a time."""

    tls: Tls | None
    login: SaslLogin | None
    client_id: str
    request_timeout_s: float
    connect_timeout_s: float
    fetch_bytes: int
    partition_bytes: int
    fetch_wait_ms: int


def resolved(
    properties: Mapping[str, str], environment: Mapping[str, str], read: Callable[[str], str]
) -> dict[str, str]:
    """Return the properties with their references replaced; ``read`` returns the text of a file.

    Raises:
        MirrorError: a variable is not set, or a file cannot be read.
    """

    def value(name: str, kind: str, where: str) -> str:
        if kind == "env":
            if where not in environment:
                raise MirrorError(
                    f"{name} refers to the variable {where} of the environment, which is not set"
                )
            return environment[where]
        try:
            return read(where).rstrip("\r\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise MirrorError(f"{name} refers to the file {where}, which cannot be read: {why}") from error

    return {
        name: _REFERENCE.sub(lambda match, name=name: value(name, match[1], match[2]), text)
        for name, text in properties.items()
    }


def parse(properties: Mapping[str, str], *, mirror: str) -> SourceConfig:
    """Return what the properties say; they have no references any more.

    Raises:
        MirrorError: a property is unknown, or has an invalid value.
    """
    given = _canonical(properties)
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise MirrorError(f"security.protocol must be one of {', '.join(_PROTOCOLS)}")
    has_login, has_tls = protocol.startswith("SASL_"), protocol.endswith("SSL")
    for prefix, is_used in (("sasl.", has_login), ("ssl.", has_tls), ("enable.ssl.", has_tls)):
        unused = [name for name in given if name.startswith(prefix)]
        if unused and not is_used:
            raise MirrorError(
                f"{unused[0]} has no effect with security.protocol={protocol}; change one of them"
            )
    numbers = {name: _number(name, given) for name in _NUMBERS}
    return SourceConfig(
        tls=_tls(given) if has_tls else None,
        login=_login(given) if has_login else None,
        client_id=given.get("client.id", f"stele-mirror-{mirror}"),
        request_timeout_s=numbers["request.timeout.ms"] / 1000,
        connect_timeout_s=numbers["socket.connection.setup.timeout.ms"] / 1000,
        fetch_bytes=numbers["fetch.max.bytes"],
        partition_bytes=numbers["max.partition.fetch.bytes"],
        fetch_wait_ms=numbers["fetch.max.wait.ms"],
    )


def _canonical(properties: Mapping[str, str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in properties.items():
        known = _ALIASES.get(name, name)
        if known in ("bootstrap.servers", "metadata.broker.list"):
            raise MirrorError(f"{name} is given by the mirror itself (--from, --to); leave it out")
        if known not in _TEXTS and known not in _NUMBERS:
            raise MirrorError(
                f"{name[:100]!r} is not a property of a mirror's cluster; they are {', '.join(NAMES)}"
            )
        if known in given:
            raise MirrorError(f"{name} is given twice, once as {known}; give it once")
        given[known] = value
    return given


def _number(name: str, given: Mapping[str, str]) -> int:
    default, least, largest = _NUMBERS[name]
    number = parse_whole(given[name].strip()) if name in given else default
    if number is None or not least <= number <= largest:
        raise MirrorError(f"{name} must be a number from {least} to {largest}")
    return number


def _tls(given: Mapping[str, str]) -> Tls:
    for kind in ("ssl.truststore.type", "ssl.keystore.type"):
        if given.get(kind, "PEM").upper() != "PEM":
            raise MirrorError(f"{kind} must be PEM; convert the store with keytool and openssl")
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none", ""):
        raise MirrorError("ssl.endpoint.identification.algorithm must be https or none")
    checks = parse_boolean(given.get("enable.ssl.certificate.verification", "true"))
    if checks is None:
        raise MirrorError("enable.ssl.certificate.verification must be true or false")
    if "ssl.ca.location" in given and "ssl.ca.pem" in given:
        raise MirrorError("ssl.ca.location and ssl.ca.pem exclude each other")
    if "ssl.key.location" in given and "ssl.certificate.location" not in given:
        raise MirrorError("ssl.key.location needs ssl.certificate.location")
    return Tls(
        ca_file=given.get("ssl.ca.location"),
        ca_pem=given.get("ssl.ca.pem"),
        certificate_file=given.get("ssl.certificate.location"),
        key_file=given.get("ssl.key.location"),
        key_password=given.get("ssl.key.password"),
        checks_host=algorithm == "https" and checks,
        checks_certificate=checks,
    )


def _login(given: Mapping[str, str]) -> SaslLogin:
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in get_args(Mechanism):
        raise MirrorError(f"sasl.mechanism must be one of {', '.join(get_args(Mechanism))}")
    mechanism = cast("Mechanism", mechanism)
    jaas = _jaas(given["sasl.jaas.config"], mechanism) if "sasl.jaas.config" in given else {}
    if mechanism == "OAUTHBEARER":
        return _token(given, jaas)
    if unused := [name for name in given if name.startswith("sasl.oauthbearer.")]:
        raise MirrorError(f"{unused[0]} has no effect with sasl.mechanism={mechanism}")
    if unknown := jaas.keys() - {"username", "password"}:
        raise MirrorError(f"sasl.jaas.config has the option {min(unknown)}, which a mirror does not know")
    if jaas and ("sasl.username" in given or "sasl.password" in given):
        raise MirrorError("sasl.jaas.config and sasl.username exclude each other")
    user = jaas.get("username", given.get("sasl.username", ""))
    password = jaas.get("password", given.get("sasl.password", ""))
    if not user or not password or "\0" in user + password:
        raise MirrorError(f"{mechanism} needs sasl.username and sasl.password, or sasl.jaas.config")
    return SaslLogin(mechanism=mechanism, user=user, password=password)


def _token(given: Mapping[str, str], jaas: Mapping[str, str]) -> SaslLogin:
    if jaas or "sasl.username" in given or "sasl.password" in given:
        raise MirrorError("OAUTHBEARER takes its token from sasl.oauthbearer.token, and nothing else")
    token = given.get("sasl.oauthbearer.token", "").strip()
    if not token or not (token.isascii() and token.isprintable()):
        raise MirrorError(
            "OAUTHBEARER needs sasl.oauthbearer.token, such as ${file:NAME}, which is read at each login"
        )
    return SaslLogin(mechanism="OAUTHBEARER", token=token)


def _jaas(text: str, mechanism: Mechanism) -> dict[str, str]:
    """Return the options of the login module."""
    match = _JAAS.fullmatch(text)
    if match is None or match["module"] not in _JAAS_MODULES:
        raise MirrorError(
            "sasl.jaas.config must be PlainLoginModule, ScramLoginModule or OAuthBearerLoginModule of Kafka, "
            'required, with username="…" password="…";'
        )
    if mechanism not in _JAAS_MODULES[match["module"]]:
        raise MirrorError(f"the login module of sasl.jaas.config is not that of sasl.mechanism={mechanism}")
    options: dict[str, str] = {}
    position, rest = 0, match["options"].rstrip()
    while position < len(rest):
        option = _JAAS_OPTION.match(rest, position)
        if option is None:
            raise MirrorError('an option of sasl.jaas.config is not NAME="VALUE"')
        options[option[1]] = re.sub(r"\\(.)", r"\1", option[2]) if option[2] is not None else option[3]
        position = option.end()
    return options
