"""Mapping rules: the examples of Kafka's documentation, and what is refused."""

from __future__ import annotations

import pytest

from app.security.tls.principal_mapping import InvalidMappingRules, NoPrincipal, PrincipalMapping

# From Kafka's documentation of ssl.principal.mapping.rules.
RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "User:serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "User:adminuser@admin"),
        ("O=Example,CN=Some.Body", "User:some.body"),
        ("OU=Machines", "User:OU=Machines"),
    ],
)
def test_the_first_rule_that_matches_decides(name: str, principal: str) -> None:
    assert PrincipalMapping(RULES).principal(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a,O=b", "User:CN=a,O=b"),
        ("RULE:^CN=(.*),O=b$/$1/U", "CN=a,O=b", "User:A"),
        ("RULE:CN=a\\/b/x\\/y/", "CN=a/b", "User:x/y"),
        ("RULE:CN=(a)(b)?/$1-$2/", "CN=a", "User:a-"),
        ("  RULE:CN=x/y/ , DEFAULT ", "CN=a", "User:CN=a"),
        ("RULE:^CN=([^,+]+),.*$/$1/", r"CN=Doe\, John\+Jane\\2C,O=b", r"User:Doe\, John\+Jane\\2C"),
        ("DEFAULT", r"CN=Doe\, John,O=b", r"User:CN=Doe\, John,O=b"),
    ],
)
def test_syntax(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapping(rules).principal(name) == principal


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("RULE:^CN=a$/b/", "CN=aa"),
        ("RULE:CN=a/b/", "CN=a,OU=x"),
        # What looks like an attribute is in the common name.
        ("RULE:^CN=([^,]+),OU=Service,.*$/$1/", r"CN=orders\,OU=Service,OU=Analytics,O=b"),
        ("RULE:^.*[,+]OU=([^,]+),O=b$/$1/", r"CN=x\,OU=admin\,O=b"),
        ("RULE:^.*[,+]OU=admin.*$/admin/", r"CN=x\+OU=admin,OU=y"),
        ("RULE:CN=(.*),.*/$1/,DEFAULT", "CN=,O=x"),
        # Names that access rules and clients without a login have.
        ("RULE:^CN=(.*?),.*$/$1/,DEFAULT", "CN=*,O=x"),
        ("RULE:^CN=(.*?),.*$/$1/", "CN=ANONYMOUS,O=x"),
        ("DEFAULT", ""),
        ("DEFAULT", "CN=" + "x" * 1024),
    ],
)
def test_a_name_that_no_rule_maps_has_no_principal(rules: str, name: str) -> None:
    with pytest.raises(NoPrincipal):
        PrincipalMapping(rules).principal(name)


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "default",
        "RULE:a",
        "RULE:a/b",
        "RULE:(/b/",
        "RULE:a/$1/",
        "RULE:a/b/X",
        "DEFAULT DEFAULT",
        "DEFAULT,",
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(InvalidMappingRules):
        PrincipalMapping(rules)
