// Producing, and reading without a group as far as KafkaJS can.
import { randomUUID } from 'node:crypto'

import kafkajs from 'kafkajs'

import { Failure } from './failure.js'

const { CompressionTypes } = kafkajs

const ACKS = { 0: 0, 1: 1, all: -1 }
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

const toBuffer = text => text == null ? null : Buffer.from(text, 'base64')
const toBase64 = buffer => buffer == null ? null : buffer.toString('base64')

export function toRecord (topic, partition, message) {
  // Headers of one name are one property with a list.
  const headers = Object.entries(message.headers ?? {})
    .flatMap(([name, values]) => [values].flat().map(value => [name, toBase64(value)]))
  return {
    topic,
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: toBase64(message.key),
    value: toBase64(message.value),
    headers
  }
}

export function toMessage (record) {
  const message = { partition: record.partition, key: toBuffer(record.key), value: toBuffer(record.value) }
  if (record.timestamp != null) message.timestamp = String(record.timestamp)
  if (record.headers?.length) {
    message.headers = {}
    for (const [name, value] of record.headers) {
      (message.headers[name] ??= []).push(toBuffer(value))
    }
  }
  return message
}

async function withProducer (kafka, options, use) {
  const producer = kafka.producer(options)
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

export async function produce (kafka, { topic, acks = 'all', idempotent = false, codec = 'none', records }) {
  const sent = await withProducer(kafka, { idempotent }, producer => producer.send({
    topic,
    acks: idempotent ? -1 : ACKS[acks],
    compression: CODECS[codec],
    messages: records.map(toMessage)
  }))
  // KafkaJS tells the offset of the first record in each partition, and nothing with acks=0.
  const next = new Map((sent ?? []).map(({ partition, baseOffset }) => [partition, Number(baseOffset)]))
  const offsets = records.map(({ partition }) => {
    const offset = next.get(partition) ?? -1
    if (offset >= 0) next.set(partition, offset + 1)
    return offset
  })
  return { offsets }
}

export async function produceKeyed (kafka, { topic, keys }) {
  const partitions = await withProducer(kafka, {}, async producer => {
    const partitions = []
    // One after the other: for records sent together KafkaJS does not tell which went where.
    for (const key of keys.map(toBuffer)) {
      const [{ partition }] = await producer.send({ topic, messages: [{ key, value: key }] })
      partitions.push(partition)
    }
    return partitions
  })
  return { partitions }
}

// KafkaJS reads in a group only, so this is one of its own, which commits nothing.
export async function fetch (kafka, command, signal) {
  const { topic, partition, partitions = [partition], offset, count } = command
  const limits = {}
  if (command.max_bytes) limits.maxBytes = command.max_bytes
  if (command.partition_max_bytes) limits.maxBytesPerPartition = command.partition_max_bytes
  if (command.isolation) limits.readUncommitted = command.isolation === 'uncommitted'
  const consumer = kafka.consumer({ groupId: `fetch-${randomUUID()}`, maxWaitTimeInMs: 500, ...limits })
  await consumer.connect()
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: offset !== 'latest' })
    const records = []
    await new Promise((resolve, reject) => {
      signal.addEventListener('abort', resolve)
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
      consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition: from, message }) => {
          if (!partitions.includes(from) || records.length >= count) return
          if (Number(message.offset) < offset) {
            // It goes to the beginning where the offset is not there.
            reject(new Failure('OFFSET_OUT_OF_RANGE', `${offset} is not in the partition`))
            return
          }
          const { topic: _, ...record } = toRecord(topic, from, message)
          if (records.push(record) === count) resolve()
        }
      }).catch(reject)
      if (typeof offset === 'number') {
        for (const number of partitions) consumer.seek({ topic, partition: number, offset: String(offset) })
      }
    })
    if (records.length < count) throw new Failure('TIMED_OUT', `${records.length} records came in the time given`)
    return { records }
  } finally {
    await consumer.disconnect()
  }
}
