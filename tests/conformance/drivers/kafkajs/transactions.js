// Transactional producers, which live until the driver ends.
import { toMessage } from './records.js'

const producers = new Map()

export async function transact (kafka, command) {
  const { producer: name, transactional_id: transactionalId, topic, records, begins, end } = command
  let state = producers.get(name)
  const isNew = state === undefined
  if (isNew) {
    const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    state = { producer, transaction: null }
    producers.set(name, state)
  }
  if (isNew || begins) state.transaction = await state.producer.transaction()
  const { transaction } = state
  if (records.length) await transaction.send({ topic, messages: records.map(toMessage) })
  if (command.offset !== undefined) {
    const partitions = [{ partition: 0, offset: String(command.offset) }]
    await transaction.sendOffsets({
      consumerGroupId: command.group,
      topics: [{ topic: command.source, partitions }]
    })
  }
  if (end === 'commit') await transaction.commit()
  else if (end === 'abort') await transaction.abort()
  return {}
}

export async function closeAll () {
  await Promise.all([...producers.values()].map(({ producer }) => producer.disconnect()))
}
