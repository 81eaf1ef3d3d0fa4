-- What several brokers share beside the log: the catalog, users and rules, membership, groups (ADR-0046).
-- Texts that a client chooses freely are bytea (UTF-8), because a text of PostgreSQL cannot have NUL.

-- A version per kind of catalog data. Every change raises it in its own transaction, so versions are
-- committed in order, and changes of one kind come one after the other.
CREATE TABLE changes (
    kind text PRIMARY KEY,
    version bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO changes VALUES ('topics', 0), ('configs', 0), ('credentials', 0), ('acls', 0);

CREATE TABLE topics (
    topic_id uuid PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    partitions int NOT NULL,
    -- JSON that is only read and written whole.
    configs text NOT NULL
);

-- cluster_id, next_producer_id, credential_secret.
CREATE TABLE numbers (
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE named_producers (
    name bytea PRIMARY KEY,
    version bigint NOT NULL,
    producer_id bigint NOT NULL,
    epoch int NOT NULL,
    begun_at_ms bigint NOT NULL
);

CREATE TABLE configs (
    kind text NOT NULL,
    entity bytea NOT NULL,
    configs text NOT NULL,
    PRIMARY KEY (kind, entity)
);

CREATE TABLE scram_credentials (
    username text COLLATE "C" NOT NULL,
    mechanism text COLLATE "C" NOT NULL,
    salt bytea NOT NULL,
    stored_key bytea NOT NULL,
    server_key bytea NOT NULL,
    iterations int NOT NULL,
    PRIMARY KEY (username, mechanism)
);

CREATE TABLE api_keys (
    key_id text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    principal text NOT NULL,
    description text NOT NULL,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint
);

CREATE TABLE acls (
    resource_type int NOT NULL,
    pattern_type int NOT NULL,
    resource_name bytea NOT NULL,
    principal bytea NOT NULL,
    host bytea NOT NULL,
    operation int NOT NULL,
    permission int NOT NULL,
    PRIMARY KEY (resource_type, pattern_type, resource_name, principal, host, operation, permission)
);

-- The brokers of the cluster. A row is that of the incarnation that registered last under its id.
CREATE TABLE brokers (
    broker_id int PRIMARY KEY,
    incarnation uuid NOT NULL,
    rack text,
    -- JSON: host and port of each listener, by its name.
    endpoints text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    seen timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Who may do what only one broker does at a time. epoch rises with each new owner; writes are fenced by it.
CREATE TABLE leases (
    name text PRIMARY KEY,
    broker_id int NOT NULL,
    incarnation uuid NOT NULL,
    epoch int NOT NULL,
    expires timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A group with its members, as JSON: it is only read and written whole. Owners and offsets change one by one.
CREATE TABLE groups (
    group_id bytea PRIMARY KEY,
    record text NOT NULL
);

-- Groups whose partitions the broker assigns (KIP-848), and their members, as JSON, too.
CREATE TABLE consumer_groups (
    group_id bytea PRIMARY KEY,
    record text NOT NULL
);

CREATE TABLE consumer_members (
    group_id bytea NOT NULL,
    member_id bytea NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (group_id, member_id)
) WITH (fillfactor = 70);

CREATE TABLE group_owners (
    group_id bytea NOT NULL,
    topic text COLLATE "C" NOT NULL,
    part int NOT NULL,
    member_id bytea NOT NULL,
    PRIMARY KEY (group_id, topic, part)
);

CREATE TABLE group_offsets (
    group_id bytea NOT NULL,
    topic text COLLATE "C" NOT NULL,
    part int NOT NULL,
    topic_id uuid NOT NULL,
    committed_offset bigint NOT NULL,
    leader_epoch int NOT NULL,
    metadata bytea NOT NULL,
    committed_at_ms bigint NOT NULL,
    expires_at_ms bigint,
    PRIMARY KEY (group_id, topic, part)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
