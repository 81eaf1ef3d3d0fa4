"""Properties of a source: those of Java's client and of librdkafka, references to secrets, and what is refused."""

from __future__ import annotations

import pytest
from stele.mirror.errors import MirrorError
from stele.mirror.properties import NAMES, SaslLogin, SourceConfig, Tls, parse, resolved

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def parsed(**properties: str) -> SourceConfig:
    """Parse properties whose dots are underscores."""
    return parse({name.replace("_", "."): value for name, value in properties.items()}, mirror="m")


def refused(**properties: str) -> str:
    with pytest.raises(MirrorError) as raised:
        parsed(**properties)
    return str(raised.value)


def test_without_properties_there_is_neither_tls_nor_login() -> None:
    config = parsed()
    assert (config.tls, config.login, config.client_id) == (None, None, "stele-mirror-m")
    assert (config.fetch_bytes, config.partition_bytes, config.request_timeout_s) == (8 << 20, 1 << 20, 30.0)


def test_properties_of_java_and_of_librdkafka_say_the_same() -> None:
    java = parsed(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{SCRAM} required username="al\\"ice" password="p;=w";',
        ssl_truststore_location="/ca.pem",
        ssl_truststore_type="PEM",
        ssl_keystore_location="/me.pem",
        request_timeout_ms="5000",
        fetch_max_wait_ms="100",
        max_partition_fetch_bytes="2048",
    )
    librdkafka = parsed(
        security_protocol="sasl_ssl",
        sasl_mechanisms="SCRAM-SHA-512",
        sasl_username='al"ice',
        sasl_password="p;=w",
        ssl_ca_location="/ca.pem",
        ssl_certificate_location="/me.pem",
        socket_timeout_ms="5000",
        fetch_wait_max_ms="100",
        fetch_message_max_bytes="2048",
    )
    assert java == librdkafka
    assert java.login == SaslLogin(mechanism="SCRAM-SHA-512", user='al"ice', password="p;=w")
    assert java.tls == Tls(ca_file="/ca.pem", certificate_file="/me.pem")


def test_host_and_certificate_are_checked_unless_a_property_says_otherwise() -> None:
    tls = parsed(security_protocol="SSL").tls
    assert tls is not None
    assert tls.checks_host
    assert tls.checks_certificate
    for value in ("none", ""):
        tls = parsed(security_protocol="SSL", ssl_endpoint_identification_algorithm=value).tls
        assert tls is not None
        assert not tls.checks_host
        assert tls.checks_certificate
    tls = parsed(security_protocol="SSL", enable_ssl_certificate_verification="false").tls
    assert tls is not None
    assert not tls.checks_host
    assert not tls.checks_certificate


def test_a_token_logs_in() -> None:
    login = parsed(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token="a.b.c"
    ).login
    assert login == SaslLogin(mechanism="OAUTHBEARER", token="a.b.c")


def test_secrets_are_not_shown() -> None:
    config = parsed(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="u", sasl_password="hidden"
    )
    assert "hidden" not in repr(config)


def test_an_unknown_property_is_named_and_so_are_the_known_ones() -> None:
    message = refused(group_id="g")
    assert "'group.id'" in message
    assert all(name in message for name in NAMES)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"bootstrap_servers": "a:1"}, "--from"),
        ({"security_protocol": "TLS"}, "security.protocol must be"),
        ({"sasl_username": "u"}, "sasl.username has no effect"),
        ({"ssl_ca_location": "/ca"}, "ssl.ca.location has no effect"),
        ({"security_protocol": "SASL_SSL"}, "sasl.mechanism must be one of"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "sasl.mechanism must be one of"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}, "sasl.password"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "JKS"}, "must be PEM"),
        ({"security_protocol": "SSL", "ssl_key_location": "/k"}, "needs ssl.certificate.location"),
        ({"security_protocol": "SSL", "ssl_ca_location": "/a", "ssl_ca_pem": "b"}, "exclude each other"),
        ({"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": "x"}, "https or none"),
        ({"security_protocol": "SSL", "enable_ssl_certificate_verification": "x"}, "true or false"),
        ({"fetch_max_bytes": "0"}, "fetch.max.bytes must be a number from"),
        ({"request_timeout_ms": "a"}, "request.timeout.ms must be a number from"),
        ({"request_timeout_ms": "5000", "socket_timeout_ms": "5000"}, "given twice"),
    ],
)
def test_a_mistake_is_explained(properties: dict[str, str], words: str) -> None:
    assert words in refused(**properties)


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        ("x", "must be PlainLoginModule"),
        ('com.sun.Krb5LoginModule required principal="x";', "must be PlainLoginModule"),
        (
            "org.apache.kafka.common.security.plain.PlainLoginModule required;",
            "is not that of sasl.mechanism",
        ),
        (f"{SCRAM} required username;", "is not NAME"),
        (f'{SCRAM} required username="u" tokenauth="true";', "option tokenauth"),
        (f'{SCRAM} required username="u";', "needs sasl.username"),
    ],
)
def test_a_mistake_in_a_jaas_configuration_is_explained_without_its_values(jaas: str, words: str) -> None:
    message = refused(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas + " "
    )
    assert words in message
    assert "true" not in message


def test_references_are_replaced_wherever_they_are() -> None:
    given = {
        "sasl.password": "${file:pw}",
        "sasl.jaas.config": 'x password="${env:P}";',
        "client.id": "$plain",
    }
    files = {"pw": "from a file\n"}
    assert resolved(given, {"P": "from the environment"}, files.__getitem__) == {
        "sasl.password": "from a file",
        "sasl.jaas.config": 'x password="from the environment";',
        "client.id": "$plain",
    }


def test_a_reference_to_nothing_is_explained() -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(MirrorError, match=r"sasl\.password refers to the variable X"):
        resolved({"sasl.password": "${env:X}"}, {}, missing)
    with pytest.raises(MirrorError, match=r"the file /x, which cannot be read: No such file"):
        resolved({"sasl.password": "${file:/x}"}, {}, missing)
