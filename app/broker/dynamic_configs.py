"""Stores and describes all configurations that do not belong to topics.

They belong to brokers, groups and client metrics subscriptions. They can change
while the broker runs, and are kept in the catalog: a change that was answered
survives a crash. Defaults of topics take effect on every topic immediately. The
configurations of topics are in ``topics.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from ..cluster.catalog import ConfigRecord
from ..errors import InvalidRequest
from ..storage.config_types import ConfigType, as_stored
from ..storage.topic_config import CONFIG_ENTRIES
from .broker_configs import (
    BROKER_CONFIGS,
    CLEANER_BACKOFF_MS,
    SHARE_LOCK_MS_MAX,
    SHARE_LOCK_MS_MIN,
    SYNONYMS,
    BrokerFacts,
    check_broker_values,
    check_share_locks,
    check_topic_defaults,
    topic_defaults,
)
from .catalog_thread import CatalogThread
from .cluster import Cluster
from .config_values import ConfigChange, ConfigSource, ConfigSynonym, ConfigValue, changed_values
from .entity_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    EntityConfig,
    GroupConfigs,
    check_client_metrics_values,
    check_dead_letter_topic,
    check_group_values,
    check_lock,
)
from .mirrors import MIRROR_KIND
from .quotas.manager import QUOTA_KIND
from .topics import Topic, Topics

# The entity that stands for the default of all brokers.
CLUSTER = ""
# Per kind, because their configurations are held in memory.
_ENTITIES_MAX = 10_000
_ENTITY_CHARACTERS_MAX = 1_000
_VALUE_CHARACTERS_MAX = 32_767
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ConfigKind(StrEnum):
    """The kinds of resources with configurations; the catalog stores these values."""

    BROKER = "broker"
    CLIENT_METRICS = "client-metrics"
    GROUP = "group"


_SCHEMAS: Mapping[ConfigKind, tuple[Mapping[str, EntityConfig], ConfigSource]] = {
    ConfigKind.CLIENT_METRICS: (CLIENT_METRICS_CONFIGS, ConfigSource.CLIENT_METRICS),
    ConfigKind.GROUP: (GROUP_CONFIGS, ConfigSource.GROUP),
}
_EMPTY_ENTITY = {
    ConfigKind.CLIENT_METRICS: "Client metrics subscription name must not be empty",
    ConfigKind.GROUP: "Group name must not be empty",
}
_CHECKS: Mapping[ConfigKind, Callable[[Mapping[str, str]], None]] = {
    ConfigKind.BROKER: check_broker_values,
    ConfigKind.CLIENT_METRICS: check_client_metrics_values,
    ConfigKind.GROUP: check_group_values,
}


class DynamicConfigs:
    """Holds the configurations that are set, and computes the values in effect.

    ``groups`` reads those of groups.

    ``facts`` returns the settings that the broker was started with; ``topics`` follow
    its defaults.
    """

    def __init__(
        self,
        *,
        catalog: CatalogThread,
        topics: Topics,
        facts: Callable[[], BrokerFacts],
        cluster: Cluster,
        set_cleaner_backoff: Callable[[int], None],
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._facts = facts
        self._set_cleaner_backoff = set_cleaner_backoff
        self._cluster = cluster
        cluster.observe("configs", self.refresh)
        self._set: dict[tuple[ConfigKind, str], dict[str, str]] = {}
        # A cache for the defaults of topics, emptied by each change.
        self._topic_synonyms: dict[str, list[ConfigSynonym]] = {}
        self._changes = asyncio.Lock()
        self.groups = GroupConfigs(lambda group: self._of(ConfigKind.GROUP, group), self._default_of)

    async def open(self) -> None:
        """Load all configurations; call this before the topics are opened."""
        await self.refresh()

    async def refresh(self) -> None:
        """Take over what is stored, which another broker may have changed."""
        async with self._changes:
            records = await self._catalog.run(lambda catalog: catalog.configs())
            self._set = {
                (kind := ConfigKind(record.kind), record.entity): as_stored(
                    record.configs, partial(_type_of, kind)
                )
                for record in records
                if record.kind not in (QUOTA_KIND, MIRROR_KIND)
            }
            await self._apply()

    async def _apply(self) -> None:
        self._topic_synonyms.clear()
        self._set_cleaner_backoff(int(self._broker_value(CLEANER_BACKOFF_MS)))
        await self._topics.set_defaults(topic_defaults(self._broker_values()))

    def entities(self, kind: ConfigKind) -> list[str]:
        """Return the names of the resources that have configurations."""
        return sorted(entity for of, entity in self._set if of is kind)

    def _of(self, kind: ConfigKind, entity: str) -> Mapping[str, str]:
        return self._set.get((kind, entity), _NOTHING)

    def _broker_values(self) -> dict[str, str]:
        """Return the values set for the cluster, overridden by those of this broker."""
        return {
            **self._of(ConfigKind.BROKER, CLUSTER),
            **self._of(ConfigKind.BROKER, str(self._facts().broker_id)),
        }

    def _default_of(self, config: EntityConfig) -> str:
        """Return what holds on this broker for groups that do not set ``config``."""
        if config.broker_name not in BROKER_CONFIGS:
            return config.default
        return self._broker_value(config.broker_name)

    def _broker_value(self, name: str) -> str:
        """Return the value in effect of a configuration that always has one."""
        facts = self._facts()
        value = self._of(ConfigKind.BROKER, str(facts.broker_id)).get(name)
        if value is None:
            value = self._of(ConfigKind.BROKER, CLUSTER).get(name)
        return value or BROKER_CONFIGS[name].value_at_start(facts) or ""

    # ── shown ──

    def describe_topic(self, topic: Topic) -> list[ConfigValue]:
        """Return every configuration of a topic."""
        values: list[ConfigValue] = []
        for name, value in topic.effective_configs.items():
            entry = CONFIG_ENTRIES[name]
            synonyms: list[ConfigSynonym] = []
            if name in topic.configs:
                synonyms.append(ConfigSynonym(name, value, ConfigSource.TOPIC))
            if entry.broker_names:
                synonyms += self._synonyms_of_topics(entry.broker_names[0])
            values.append(
                ConfigValue(
                    name=name,
                    value=value,
                    source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                    type=entry.type,
                    documentation=entry.description,
                    synonyms=synonyms,
                )
            )
        return values

    def _synonyms_of_topics(self, name: str) -> list[ConfigSynonym]:
        if name not in self._topic_synonyms:
            self._topic_synonyms[name] = self._broker_synonyms(name)
        return self._topic_synonyms[name]

    def describe_broker(self, entity: str) -> list[ConfigValue]:
        """Return every configuration of this broker, or those set for ``CLUSTER``.

        Raises ``InvalidRequest``: there is no such broker.
        """
        self._check_broker(entity)
        if entity == CLUSTER:
            return [
                self._shown(name, [ConfigSynonym(name, value, ConfigSource.DYNAMIC_CLUSTER)])
                for name, value in self._of(ConfigKind.BROKER, CLUSTER).items()
                if name in BROKER_CONFIGS
            ]
        described = ((name, self._broker_synonyms(name)) for name in BROKER_CONFIGS)
        return [
            self._shown(name, synonyms)
            for name, synonyms in described
            if synonyms or BROKER_CONFIGS[name].is_shown_unset
        ]

    def _shown(self, name: str, synonyms: Sequence[ConfigSynonym]) -> ConfigValue:
        config = BROKER_CONFIGS[name]
        return ConfigValue(
            name=name,
            value=synonyms[0].value if synonyms and not config.is_sensitive else None,
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            type=config.type,
            documentation=config.description,
            synonyms=[synonym._replace(value=None) for synonym in synonyms]
            if config.is_sensitive
            else synonyms,
            is_read_only=config.parse is None,
            is_sensitive=config.is_sensitive,
        )

    def _broker_synonyms(self, name: str) -> list[ConfigSynonym]:
        """Return every source with a value for a broker's configuration, by precedence.

        As in Kafka a name in other units counts only if ``name`` itself has a value.
        """
        facts = self._facts()
        synonyms: list[ConfigSynonym] = []
        for synonym in SYNONYMS.get(name, (name,)):
            config = BROKER_CONFIGS[synonym]
            at_start = config.value_at_start(facts)
            for value, source in (
                (self._of(ConfigKind.BROKER, str(facts.broker_id)).get(synonym), ConfigSource.DYNAMIC_BROKER),
                (self._of(ConfigKind.BROKER, CLUSTER).get(synonym), ConfigSource.DYNAMIC_CLUSTER),
                (None if at_start == config.default else at_start, ConfigSource.STATIC_BROKER),
                (config.default, ConfigSource.DEFAULT),
            ):
                if value is not None:
                    synonyms.append(ConfigSynonym(synonym, value, source))
        return synonyms if synonyms and synonyms[0].name == name else []

    def describe_entity(self, kind: ConfigKind, entity: str) -> list[ConfigValue]:
        """Return every configuration of a group or of a client metrics subscription.

        Raises ``InvalidRequest``: the name is empty or too long.
        """
        self._check_entity(kind, entity)
        schema, source = _SCHEMAS[kind]
        own = self._of(kind, entity)
        values: list[ConfigValue] = []
        for name, config in schema.items():
            synonyms: list[ConfigSynonym] = []
            if name in own:
                synonyms.append(ConfigSynonym(name, own[name], source))
            if config.broker_name in BROKER_CONFIGS:
                synonyms += self._broker_synonyms(config.broker_name)
            elif kind is ConfigKind.GROUP:
                synonyms.append(
                    ConfigSynonym(config.broker_name or name, config.default, ConfigSource.DEFAULT)
                )
            values.append(
                ConfigValue(
                    name=name,
                    value=synonyms[0].value if synonyms else config.default,
                    source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
                    type=config.type,
                    documentation=config.description,
                    synonyms=synonyms,
                )
            )
        return values

    # ── changed ──

    async def change(
        self, kind: ConfigKind, entity: str, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Apply ``changes``; when this returns, they are in effect and survive a loss of power.

        Raises:
            InvalidRequest, InvalidConfig: nothing was changed; the message names the configuration.
        """
        self._check_entity(kind, entity)
        await self._cluster.refresh()
        async with self._changes:
            values = changed_values(
                changes, effective=self._effective(kind, entity), type_of=partial(_type_of, kind)
            )
            self._check_values(kind, {name: value for name, value in values.items() if value is not None})
            merged = {**self._of(kind, entity), **values}
            configs = {name: value for name, value in merged.items() if value is not None}
            await self._replace(kind, entity, configs, validate_only=validate_only)

    async def replace(
        self, kind: ConfigKind, entity: str, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace all configurations by ``configs``; otherwise as ``change``."""
        self._check_entity(kind, entity)
        await self._cluster.refresh()
        async with self._changes:
            self._check_values(kind, configs)
            await self._replace(kind, entity, configs, validate_only=validate_only)

    def _check_values(self, kind: ConfigKind, values: Mapping[str, str]) -> None:
        _CHECKS[kind](values)
        if kind is ConfigKind.GROUP:
            check_dead_letter_topic(values, prefix=self._facts().settings.dead_letter_topic_prefix)
            check_lock(
                values,
                minimum=int(self._broker_value(SHARE_LOCK_MS_MIN)),
                maximum=int(self._broker_value(SHARE_LOCK_MS_MAX)),
            )

    async def _replace(
        self, kind: ConfigKind, entity: str, configs: Mapping[str, str], *, validate_only: bool
    ) -> None:
        for name, value in configs.items():
            if len(value) > _VALUE_CHARACTERS_MAX:
                raise InvalidRequest(
                    f"the value of {name} has {len(value)} characters; shorten it to {_VALUE_CHARACTERS_MAX} or fewer"
                )
        is_new = configs and (kind, entity) not in self._set
        if is_new and len(self.entities(kind)) >= _ENTITIES_MAX:
            raise InvalidRequest(
                f"{_ENTITIES_MAX} {kind} resources have configurations, which is the limit; remove those of one first"
            )
        if kind is ConfigKind.BROKER:
            self._check_broker_defaults(entity, configs)
        if validate_only:
            return
        record = ConfigRecord(kind=kind, entity=entity, configs=dict(configs))
        await self._catalog.run(lambda catalog: catalog.set_configs(record))
        if configs:
            self._set[kind, entity] = dict(configs)
        else:
            self._set.pop((kind, entity), None)
        if kind is ConfigKind.BROKER:
            await self._apply()

    def _check_broker_defaults(self, entity: str, configs: Mapping[str, str]) -> None:
        """Check the defaults of topics and groups after ``configs`` are set on ``entity``.

        Raises ``InvalidRequest``.
        """
        cluster, broker = (
            configs if entity == other else self._of(ConfigKind.BROKER, other)
            for other in (CLUSTER, str(self._facts().broker_id))
        )
        # A value of the broker may hide a contradiction in those of the cluster.
        check_topic_defaults(cluster)
        check_topic_defaults({**cluster, **broker})
        check_share_locks(cluster, self._facts().settings)
        check_share_locks({**cluster, **broker}, self._facts().settings)

    def _effective(self, kind: ConfigKind, entity: str) -> Mapping[str, str]:
        values = (
            self.describe_broker(entity) if kind is ConfigKind.BROKER else self.describe_entity(kind, entity)
        )
        if kind is ConfigKind.BROKER and entity == CLUSTER:
            own = {value.name for value in values}
            values += [value for value in self._defaults() if value.name not in own]
        return {value.name: value.value for value in values if value.value is not None}

    def _defaults(self) -> list[ConfigValue]:
        return [
            self._shown(name, [ConfigSynonym(name, config.default, ConfigSource.DEFAULT)])
            for name, config in BROKER_CONFIGS.items()
        ]

    def _check_entity(self, kind: ConfigKind, entity: str) -> None:
        if kind is ConfigKind.BROKER:
            self._check_broker(entity)
        elif not entity:
            raise InvalidRequest(_EMPTY_ENTITY[kind])
        elif len(entity) > _ENTITY_CHARACTERS_MAX:
            raise InvalidRequest(
                f"the name of a {kind} has {len(entity)} characters; shorten it to {_ENTITY_CHARACTERS_MAX} or fewer"
            )

    def _check_broker(self, entity: str) -> None:
        broker_id = self._facts().broker_id
        if entity in (CLUSTER, str(broker_id)):
            return
        if not entity.isdecimal():
            raise InvalidRequest(f"Broker id must be an integer, but it is: {entity[:80]}")
        raise InvalidRequest(
            f"Unexpected broker id, expected {broker_id} or empty string, but received {entity[:80]}"
        )


def _type_of(kind: ConfigKind, name: str) -> ConfigType | None:
    if kind is ConfigKind.BROKER:
        return BROKER_CONFIGS[name].type if name in BROKER_CONFIGS else None
    schema, _ = _SCHEMAS[kind]
    return schema[name].type if name in schema else None
