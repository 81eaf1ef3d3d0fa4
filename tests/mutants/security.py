"""Mutants of logins and access rules: each removes what protects from a mistake that other brokers shipped."""

from __future__ import annotations

from .table import Mutant

_UNIT = "tests/unit/security"
_MATRIX = "tests/integration/test_authorization_matrix.py"
_SEVERAL = "tests/integration/test_several_rights_of_apis.py"
_FRAMES = "tests/integration/test_rights_of_every_frame.py"
_NAMES = "tests/integration/test_refused_names.py"

SECURITY_MUTANTS = (
    # The body of a request that offers an upgrade is executed as a request (uvicorn #2722).
    Mutant(
        "app/api/http/connection.py",
        "        if self._is_upgrade:\n            return\n        self._is_framing = False\n",
        "        self._is_upgrade = self._is_framing = False\n",
        "tests/unit/api/test_http_exchange.py",
        "however_they_are_cut",
    ),
    # A trailer becomes a field of the request.
    Mutant(
        "app/api/http/connection.py",
        "        if self._is_outside and not self._is_framing:\n",
        "        if not self._is_framing:\n",
        "tests/integration/test_http_conformance.py",
        "trailers",
    ),
    # Bodies of all connections fill the memory.
    Mutant(
        "app/network/pending_bytes.py",
        "        if self.held + count > self._bytes_max:\n",
        "        if False:\n",
        "tests/unit/api/test_http_exchange.py",
        "have_a_limit",
    ),
    # A body may come as slowly as its client likes.
    Mutant(
        "app/api/http/connection.py",
        "        return min(self._since_s + self.head_timeout_s, parsed.body_since_s + slowest_s)\n",
        "        return self._since_s + self.head_timeout_s\n",
        "tests/unit/api/test_http_exchange.py",
        "byte_by_byte",
    ),
    # A DENY is overridden (CVE-2026-58251).
    Mutant(
        "app/security/acl_index.py",
        "                if acl.operation in (operation, Operation.ALL):\n                    return",
        "                if False:\n                    return",
        f"{_UNIT}/test_acl_index.py",
        "not torture and not thousands",
    ),
    # A connection keeps a right that was removed (CVE-2024-27309 is its reverse).
    Mutant(
        "app/security/authorizer.py",
        "            access.forget()\n",
        "            pass\n",
        "tests/integration/test_authorization_at_random.py",
        "stay_open",
    ),
    Mutant(
        "app/security/authorizer.py",
        "        self.read_last = None\n        self.epoch = object()\n",
        "        self.read_last = None\n",
        "tests/unit/tcp/kafka/test_direct_produce.py",
        "rules_allow",
    ),
    Mutant(
        "app/security/authorizer.py",
        "        self.read_last = None\n        self.epoch = object()\n",
        "        self.epoch = object()\n",
        "tests/integration/test_authorization.py",
        "next_read",
    ),
    # A read that has waited brings records after its right has ended.
    Mutant(
        "app/tcp/binary/connection.py",
        "            checked = self._checked(request, frame_type, go_on(rest.work, rest.awaited), access.epoch)\n"
        "            rest = Begun(checked, begin_now(checked)[0])\n",
        "            pass\n",
        "tests/integration/test_authorization.py",
        "reads_that_wait",
    ),
    Mutant(
        "app/api/guarded_route.py",
        "                check(request)\n            return response\n",
        "                pass\n            return response\n",
        "tests/unit/api/test_guarded_route.py",
    ),
    Mutant(
        "app/api/guarded_route.py",
        "                    self._check(self._request)\n",
        "                    pass\n",
        "tests/integration/test_authorization.py",
        "stream_of_events",
    ),
    Mutant(
        "app/api/routes/share_queue.py",
        "        # Again, because a poll may wait.\n        require(request, READ_TOPIC, body.topics)\n",
        "",
        "tests/integration/test_authorization.py",
        "waiting_polls",
    ),
    Mutant(
        "app/tcp/kafka/handlers/groups/share_fetch.py",
        "if access is None or access.allows(READ_TOPIC, one.partition.topic):",
        "if True:",
        "tests/integration/test_authorization.py",
        "waiting_polls",
    ),
    # An upload goes on, or a body that comes late is stored, after the right to write has ended.
    Mutant(
        "app/api/records/upload.py",
        "                if self._check is not None:\n                    self._check()\n",
        "",
        "tests/integration/test_authorization.py",
        "upload_stores_nothing",
    ),
    Mutant(
        "app/api/requests.py",
        "    check_again(request)\n    return",
        "    return",
        "tests/integration/test_authorization.py",
        "before_its_body",
    ),
    Mutant(
        "app/api/direct_produce.py",
        "if is_whole and self._may_write(scope, topic):",
        "if is_whole:",
        "tests/unit/api/test_direct_produce.py",
        "right_that_ends",
    ),
    # A subject of the registry has two names, one of which no rule knows; rights on what is referred to, on a schema by
    # its id, on what all subjects fall back to; and the Kafka protocol removes rules that it cannot show.
    Mutant(
        "app/api/registry/rights.py",
        "    return Name.parse(subject).qualified\n",
        "    return subject\n",
        "tests/integration/test_registry_access.py",
        "whole_name",
    ),
    Mutant(
        "app/api/registry/routes/subjects.py",
        "    require_references(request, subject, body)\n",
        "",
        "tests/integration/test_registry_access.py",
        "write_allows",
    ),
    Mutant(
        "app/api/registry/routes/schemas.py",
        "    await _require_read(request, found)\n    return found\n",
        "    return found\n",
        "tests/integration/test_registry_access.py",
        "without_a_rule",
    ),
    Mutant(
        "app/api/registry/rights.py",
        "        if not name.subject and name.context in (DEFAULT_CONTEXT, GLOBAL_CONTEXT):\n",
        "        if False:\n",
        "tests/integration/test_registry_access.py",
        "rights_of_their_own",
    ),
    Mutant(
        "app/tcp/kafka/handlers/acls.py",
        "acl.resource_type is not ResourceType.SUBJECT and ",
        "",
        "tests/integration/test_registry_access.py",
        "neither_shows",
    ),
    # A client creates a topic by the right to write to it, because it existed before.
    Mutant(
        "app/tcp/binary/connection.py",
        "            if access is not None and self._refuses(access, topic):\n                return\n",
        "",
        "tests/integration/test_authorization.py",
        "is_gone",
    ),
    # The fast way of a produce skips the check (CVE-2018-17196, CVE-2026-33217).
    Mutant(
        "app/tcp/binary/guards.py",
        "    access.require(WRITE_TOPIC, topic)\n    broker = listener.broker\n",
        "    broker = listener.broker\n",
        _MATRIX,
        "decide_alike and not many",
    ),
    # A client logs in as one user and acts as another (CVE-2017-12610).
    Mutant(
        "app/security/sasl.py",
        'if authzid not in ("", user):',
        "if False:",
        f"{_UNIT}/test_sasl.py",
    ),
    # A client passes for a replica (CVE-2018-1288).
    Mutant(
        "app/tcp/kafka/fetching/requests.py",
        "if context.access is not None and not context.access.sees(CLUSTER_ACTION_CLUSTER):",
        "if False:",
        _MATRIX,
        "no_follower",
    ),
    # A list in a claim becomes a name (CVE-2026-75509).
    Mutant(
        "app/security/jwt_tokens.py",
        'or not isinstance(name, str):\n            raise InvalidToken(f"the claim',
        'and False:\n            raise InvalidToken(f"the claim',
        f"{_UNIT}/test_jwt.py",
    ),
    # A client without a login fills the memory (CVE-2026-27571, CVE-2026-33219).
    Mutant(
        "app/tcp/kafka/connection.py",
        "            self._frames.limit(LOGIN_REQUEST_BYTES_MAX)\n            self._login_timer",
        "            self._login_timer",
        f"{_UNIT}/test_before_login.py",
        "too_large",
    ),
    Mutant(
        "app/api/forwarding.py",
        "        if forwarded is None:\n            # Before the body is read",
        "        if forwarded is None:\n            await _read(receive)\n            # Before the body is read",
        "tests/unit/api/test_forwarding.py",
        "not_read",
    ),
    # A frame that another broker forwards is served with the rights of that broker.
    Mutant(
        "app/tcp/kafka/share_forwarding.py",
        "            served = GUARDED[head.api_key]\n",
        "            pass\n",
        "tests/integration/shared_storage/test_share_members.py",
        "rights",
    ),
    Mutant(
        "app/tcp/kafka/share_forwarding.py",
        "access=listener.security.access(client.principal, client.host)",
        "access=None",
        "tests/integration/shared_storage/test_share_members.py",
        "rights",
    ),
    # A token or a certificate has the name of everybody, or of clients without a login.
    Mutant(
        "app/security/jwt_tokens.py",
        "if name in (ANONYMOUS.name, WILDCARD):",
        "if name == ANONYMOUS.name:",
        f"{_UNIT}/test_jwt.py",
    ),
    Mutant(
        "app/security/jwt_tokens.py",
        "if name in (ANONYMOUS.name, WILDCARD):",
        "if name == WILDCARD:",
        f"{_UNIT}/test_jwt.py",
    ),
    Mutant(
        "app/security/tls/principal_mapping.py",
        '_RESERVED = ("*", "ANONYMOUS")',
        '_RESERVED = ("ANONYMOUS",)',
        f"{_UNIT}/test_principal_mapping.py",
    ),
    Mutant(
        "app/security/tls/principal_mapping.py",
        '_RESERVED = ("*", "ANONYMOUS")',
        '_RESERVED = ("*",)',
        f"{_UNIT}/test_principal_mapping.py",
    ),
    # Other users of the machine read a password among the arguments (CVE-2026-33247).
    Mutant(
        "clients/python/stele/commands/cdc.py",
        'if source_of("dsn") is ParameterSource.COMMANDLINE and has_password(dsn):',
        "if False:",
        "tests/unit/stele/cdc/test_options.py",
        "in_an_argument",
    ),
    Mutant(
        "clients/python/stele/commands/serve.py",
        'if server_module("settings").is_secret(setting):',
        "if False:",
        "tests/integration/test_login_settings.py",
        "in_arguments",
    ),
    # A value within a certificate passes for another attribute (CVE-2026-33248).
    Mutant(
        "app/security/tls/principal_mapping.py",
        "rule.apply(hidden)",
        "rule.apply(name)",
        f"{_UNIT}/test_principal_mapping.py",
    ),
    # A client changes to another user on its connection (CVE-2022-24450).
    Mutant(
        "app/tcp/kafka/sasl_session.py",
        "        if self.login is not None and outcome.login.principal != self.principal:\n",
        "        if False:\n",
        "tests/integration/test_kafka_logins.py",
        "second_login_as_another",
    ),
    Mutant(
        "app/tcp/binary/login.py",
        "        if self.login is not None and login.principal != self.principal:\n",
        "        if False:\n",
        "tests/integration/test_binary_logins.py",
        "keeps_its_principal",
    ),
    Mutant(
        "app/api/authentication.py",
        "if access is None or (access.principal is not principal and access.principal != principal):",
        "if access is None:",
        "tests/integration/test_mistakes_of_others.py",
        "its_own_login",
    ),
    # A user that nobody has made logs in (CVE-2023-47090).
    Mutant(
        "app/security/credentials.py",
        "if user == ANONYMOUS.name:",
        "if False:",
        f"{_UNIT}/test_credentials.py",
    ),
    # A rule is lost when another one is removed (CVE-2024-27309).
    Mutant(
        "app/security/acls.py",
        "            del self._acls[acl]\n",
        "            self._acls = {one: None for one in self._acls if one.resource_name != acl.resource_name}\n",
        f"{_UNIT}/test_authorizer.py",
        "as_if_there_had_been_no_others",
    ),
    # A token of another issuer logs in.
    Mutant(
        "app/security/jwt_tokens.py",
        "                issuer=self._options.issuer,\n",
        "",
        f"{_UNIT}/test_jwt.py",
    ),
    # An algorithm with a shared secret is allowed for a public key (CVE-2022-29217, CVE-2026-49852).
    Mutant(
        "app/security/jwt_keys.py",
        'if kind not in _KEY_TYPES or entry.get("use") == "enc":',
        'if entry.get("use") == "enc":',
        f"{_UNIT}/test_jwt.py",
    ),
    # Credentials are in a trace (CVE-2023-24619).
    Mutant(
        "app/tcp/kafka/trace.py",
        "_SECRET_APIS = frozenset({36, 51})",
        "_SECRET_APIS = frozenset({36})",
        "tests/integration/test_secrets_stay_secret.py",
    ),
    Mutant(
        "app/tcp/kafka/trace.py",
        "_SECRET_APIS = frozenset({36, 51})",
        "_SECRET_APIS = frozenset({51})",
        "tests/integration/test_kafka_logins.py",
    ),
    # Routes of administrators are open to others (CVE-2025-30215).
    Mutant(
        "app/api/rights.py",
        '    ("POST", "/v1/users"): (on_cluster(ALTER_CLUSTER),),\n',
        '    ("POST", "/v1/users"): OPEN,\n',
        "tests/integration/test_authorization.py",
        "every_documented_route",
    ),
    # An API is not checked, or asks for a wrong right (CVE-2023-50976, CVE-2026-41115).
    Mutant(
        "app/tcp/kafka/connection.py",
        "            served = GUARDED[head.api_key]\n",
        "            pass\n",
        "tests/integration/test_rights_of_every_api.py",
    ),
    Mutant(
        "app/tcp/kafka/handlers/topics.py",
        "on_each(DELETE_TOPIC,",
        "on_each(ALTER_TOPIC,",
        "tests/unit/test_declared_rights.py",
        "of_apache_kafka",
    ),
    # A client of the binary protocol without a login fills the memory (CVE-2026-27571, CVE-2026-33219).
    Mutant(
        "app/tcp/binary/connection.py",
        "            self._frames.limit(LOGIN_FRAME_BYTES_MAX)\n",
        "            pass\n",
        "tests/integration/test_binary_logins.py",
        "are_small",
    ),
    Mutant(
        "app/tcp/binary/login.py",
        "        if self.must_login and self._frames > LOGIN_FRAMES_MAX:\n",
        "        if False:\n",
        "tests/integration/test_binary_logins.py",
        "are_few",
    ),
    # A client that logs in again is cut off at the end of its first session, and one that does not is not.
    Mutant(
        "app/tcp/kafka/sasl_session.py",
        "        self._expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms\n",
        "        self._expires_ms = self._expires_ms or (None if lifetime_ms is None else now_ms + lifetime_ms)\n",
        "tests/integration/test_kafka_logins.py",
        "session_is_extended",
    ),
    Mutant(
        "app/tcp/kafka/sasl_session.py",
        "if self._expires_ms is not None and now_ms >= self._expires_ms:",
        "if False:",
        "tests/integration/test_kafka_logins.py",
        "session_that_has_ended",
    ),
    # The session of an expired token begins within the skew of clocks.
    Mutant(
        "app/tcp/kafka/sasl_session.py",
        "        if lifetime_ms is not None and lifetime_ms <= 0:\n            return _refused()\n",
        "",
        "tests/integration/test_kafka_logins.py",
        "just_expired",
    ),
    # A client whose login has failed is served as an anonymous one.
    Mutant(
        "app/tcp/binary/login.py",
        "        if self._failures:\n",
        "        if False:\n",
        "tests/integration/test_binary_logins.py",
        "never_anonymous",
    ),
    # The rules of a user are those of everybody.
    Mutant(
        "app/security/credentials.py",
        "if user == WILDCARD:",
        "if False:",
        f"{_UNIT}/test_credentials.py",
    ),
    # Fetches, and the fast path of Produce, do not count for quotas.
    Mutant(
        "app/tcp/kafka/connection.py",
        "delay_ms = 0 if charge is None else charge.produced(len(frame))\n",
        "delay_ms = 0\n",
        "tests/unit/tcp/kafka/test_direct_produce.py",
        "both_ways",
    ),
    Mutant(
        "app/tcp/kafka/throttling.py",
        "if at_once_max is None or request.max_bytes <= at_once_max:",
        "if True:",
        "tests/unit/tcp/kafka/test_quick_look.py",
        "at_once",
    ),
    # Records of share groups do not count for quotas.
    Mutant(
        "app/tcp/kafka/throttling.py",
        "_FETCHES = frozenset((FETCH_API.key, SHARE_FETCH_API.key))",
        "_FETCHES = frozenset((FETCH_API.key,))",
        "tests/integration/test_quotas.py",
        "counts_for_the_same",
    ),
    Mutant(
        "app/tcp/kafka/throttling.py",
        "        if isinstance(response, FetchResponse | ShareFetchResponse):\n",
        "        if isinstance(response, FetchResponse):\n",
        "tests/integration/test_quotas.py",
        "counts_for_the_same",
    ),
    Mutant(
        "app/api/throttling.py",
        "/(share/)?poll",
        "/poll",
        "tests/unit/api/test_throttling.py",
    ),
    # A client reads on through another connection, or another broker, while it has to wait.
    Mutant(
        "app/tcp/kafka/handlers/groups/share_fetch.py",
        "    wait_ms = context.consume_wait_ms()\n",
        "    wait_ms = 0\n",
        "tests/integration/test_quotas.py",
        "on_another_connection_is_empty",
    ),
    Mutant(
        "app/tcp/binary/connection.py",
        "            request = limited(request, delays.meters().consume.at_once_max())\n",
        "            pass\n",
        "tests/integration/shared_storage/test_forwarding.py",
        "forwarded_poll",
    ),
    # A client keeps the quota that it had when it connected.
    Mutant(
        "app/broker/quotas/machine.py",
        "        self.generation += 1\n",
        "",
        "tests/unit/broker/quotas/test_meter.py",
    ),
    # A meter charges a use that the machine has forgotten, which no other connection sees.
    Mutant(
        "app/broker/quotas/machine.py",
        "            oldest.is_forgotten = True\n",
        "",
        "tests/unit/broker/quotas/test_meter.py",
    ),
    Mutant(
        "app/api/direct_produce.py",
        "            self._quotas.charge(PROTOCOL, QuotaKey.PRODUCE, client, len(body))\n",
        "            pass\n",
        "tests/unit/api/test_direct_produce.py",
        "are_charged",
    ),
    # How long a refusal takes tells whether a hidden topic exists.
    Mutant(
        "app/tcp/kafka/handlers/fetch.py",
        "elif access is None or access.allows(READ_TOPIC, topic.topic):",
        "else:",
        "tests/unit/tcp/kafka/test_fetch_handler.py",
    ),
    Mutant(
        "app/api/routes/groups.py",
        "    require(request, READ_TOPIC, named)\n    await",
        "    await",
        _NAMES,
        "reset",
    ),
    Mutant(
        "app/tcp/binary/handlers/topics.py",
        "name for name in request.topics if access is None or access.sees(DESCRIBE_TOPIC, name)\n",
        "name for name in request.topics\n",
        _NAMES,
        "metadata",
    ),
    # A refusal names what others have open.
    Mutant(
        "app/tcp/binary/guards.py",
        "        ids.append(request.abandoned_prefix)\n",
        "        pass\n",
        _FRAMES,
        "CommitTransactions",
    ),
    # One right of several is forgotten.
    Mutant(
        "app/tcp/kafka/guards/groups.py",
        "if not access.allows(DESCRIBE_TOPIC, topic):",
        "if False:",
        _SEVERAL,
        "Heartbeat",
    ),
    Mutant(
        "app/tcp/kafka/guards/groups.py",
        "if not all(access.sees(DESCRIBE_TOPIC, topic) for topic in topics):",
        "if False:",
        _SEVERAL,
        "GroupDescribe",
    ),
    Mutant(
        "app/tcp/kafka/guards/groups.py",
        "    if not access_of(context).allows(DELETE_GROUP, request.group_id):\n"
        "        return refused(OffsetDeleteResponse, DELETE_GROUP)\n",
        "",
        _SEVERAL,
        "OffsetDelete",
    ),
    Mutant(
        "app/tcp/kafka/guards/transactions.py",
        "    if not access.allows(READ_GROUP, request.group_id):\n"
        "        return refused(AddOffsetsToTxnResponse, READ_GROUP)\n",
        "",
        _SEVERAL,
        "AddOffsetsToTxn",
    ),
    Mutant(
        "app/tcp/kafka/guards/transactions.py",
        "return refuse_all(TxnOffsetCommitResponse, PARTITIONS, request.topics, WRITE_TRANSACTIONAL_ID)",
        "pass",
        _SEVERAL,
        "TxnOffsetCommit",
    ),
    Mutant(
        "app/tcp/kafka/guards/transactions.py",
        "if access.sees(ALTER_CLUSTER) or access.allows(CLUSTER_ACTION_CLUSTER):",
        "if access.allows(CLUSTER_ACTION_CLUSTER):",
        _SEVERAL,
        "WriteTxnMarkers",
    ),
    Mutant(
        "app/tcp/kafka/guards/topics.py",
        "if not topic.error_code and not access.sees(DESCRIBE_CONFIGS_TOPIC, topic.name):",
        "if False:",
        _SEVERAL,
        "CreateTopics",
    ),
    Mutant(
        "app/tcp/kafka/guards/topics.py",
        "is_seen = topic.name is not None or (name is not None and access.sees(DESCRIBE_TOPIC, name))",
        "is_seen = True",
        _SEVERAL,
        "by_id",
    ),
    Mutant(
        "app/tcp/kafka/handlers/groups/share_groups.py",
        "    is_allowed = _may(context, READ_TOPIC, topic.topic_name)\n",
        "    is_allowed = True\n",
        _SEVERAL,
        "AlterShareGroupOffsets",
    ),
    Mutant(
        "app/tcp/kafka/handlers/groups/share_fetch.py",
        "if context.access is not None and not context.access.allows(READ_TOPIC, topic.name):",
        "if False:",
        _SEVERAL,
        "ShareAcknowledge or ShareFetch",
    ),
    Mutant(
        "app/tcp/binary/guards.py",
        "_require_each(access, READ_TOPIC, {part.topic for part in lease.partitions})",
        "_require_each(access, READ_TOPIC, ())",
        _FRAMES,
        "AckRequest or NackRequest or ExtendRequest",
    ),
    Mutant(
        "app/tcp/binary/guards.py",
        "        access.require(ALTER_TOPIC, request.topic)\n",
        "        pass\n",
        _FRAMES,
        "AlterTopic",
    ),
    Mutant(
        "app/tcp/binary/handlers/topics.py",
        "is_shown = access is None or access.sees(DESCRIBE_CONFIGS_TOPIC, topic.name)",
        "is_shown = True",
        _FRAMES,
        "DescribeTopic",
    ),
    # A broker's own change comes back as news, and ends the waits of clients.
    Mutant(
        "app/broker/quotas/manager.py",
        "            if stored != self._set:",
        "            if True:",
        "tests/unit/broker/quotas/test_manager.py",
    ),
)
