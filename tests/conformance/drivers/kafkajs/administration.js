// What the admin client of KafkaJS does.
import kafkajs from 'kafkajs'

import { Failure } from './failure.js'

const TOPIC = kafkajs.ConfigResourceTypes.TOPIC

export async function offsets (admin, { topic, partition, at }) {
  const offset = found => {
    const one = found.find(each => each.partition === partition)
    if (!one) throw new Failure('UNKNOWN_TOPIC_OR_PARTITION', `${topic} ${partition}`)
    return one
  }
  const ends = offset(await admin.fetchTopicOffsets(topic))
  if (at === 'earliest') return { offset: Number(ends.low) }
  if (at === 'latest') return { offset: Number(ends.high) }
  const found = Number(offset(await admin.fetchTopicOffsetsByTimestamp(topic, at)).offset)
  // KafkaJS gives the end where nothing is at or after the time.
  return { offset: found < Number(ends.high) ? found : -1 }
}

export async function committed (admin, { group, topic, partition }) {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const found = partitions.find(each => each.partition === partition)
  return { offset: Number(found?.offset ?? -1), metadata: found?.metadata ?? '' }
}

const entriesOf = (configs = {}) => Object.entries(configs).map(([name, value]) => ({ name, value }))

export async function createTopic (admin, { topic, partitions, configs }) {
  const created = await admin.createTopics({
    topics: [{ topic, numPartitions: partitions, configEntries: entriesOf(configs) }]
  })
  // The only error that KafkaJS tells in this way.
  if (!created) throw new Failure('TOPIC_ALREADY_EXISTS', topic)
  return {}
}

export async function describeTopic (admin, { topic }) {
  const { topics: [{ partitions }] } = await admin.fetchTopicMetadata({ topics: [topic] })
  const { resources: [{ configEntries }] } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: TOPIC, name: topic }]
  })
  const configs = Object.fromEntries(configEntries.map(({ configName, configValue }) => [configName, configValue]))
  return { partitions: partitions.length, configs }
}

export async function alterTopic (admin, { topic, configs }) {
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: TOPIC, name: topic, configEntries: entriesOf(configs) }]
  })
  return {}
}

export async function addPartitions (admin, { topic, partitions }) {
  await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
  return {}
}

export async function deleteTopic (admin, { topic }) {
  await admin.deleteTopics({ topics: [topic] })
  return {}
}

export async function listTopics (admin) {
  return { topics: await admin.listTopics() }
}

export async function deleteRecords (admin, { topic, partition, before_offset: beforeOffset }) {
  // It looks for the leader of the partition before it has asked about the topic; this asks.
  await admin.fetchTopicOffsets(topic)
  await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(beforeOffset) }] })
  // KafkaJS keeps the answer's offset to itself.
  return { log_start_offset: (await offsets(admin, { topic, partition, at: 'earliest' })).offset }
}

export async function listGroups (admin) {
  const { groups } = await admin.listGroups()
  return { groups: groups.map(({ groupId }) => groupId) }
}

export async function describeGroup (admin, { group }) {
  const { groups: [{ state, members }] } = await admin.describeGroups([group])
  return { state, members: members.length }
}

export async function deleteGroup (admin, { group }) {
  await admin.deleteGroups([group])
  return {}
}
