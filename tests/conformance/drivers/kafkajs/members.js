// The consumers of groups, by the names the tests gave them.
import { Failure } from './failure.js'
import { toRecord } from './records.js'

const members = new Map()

// KafkaJS consumes, heartbeats and rebalances in the background, once it runs.
class Member {
  assigned = [] // of [topic, partition]
  kept = [] // records that were met and not yet polled for
  #changed = () => {}

  constructor (consumer) {
    this.consumer = consumer
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      this.#lose()
      this.assigned = Object.entries(payload.memberAssignment)
        .flatMap(([topic, partitions]) => partitions.map(partition => [topic, partition]))
      this.joined = true
      this.#changed()
    })
    consumer.on(consumer.events.REBALANCING, () => this.#lose())
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      this.#lose()
      if (!payload.restart) this.crash = payload.error
      this.#changed()
    })
  }

  // Whoever has these partitions next meets their records again, from what was committed.
  #lose () {
    this.assigned = []
    this.kept = []
  }

  owns (topic, partition) {
    return this.assigned.some(([t, p]) => t === topic && p === partition)
  }

  async start (topics, fromBeginning) {
    await this.consumer.connect()
    await this.consumer.subscribe({ topics, fromBeginning })
    await this.consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        if (!this.owns(topic, partition)) return
        this.kept.push(toRecord(topic, partition, message))
        this.#changed()
      }
    })
  }

  // Waits until the condition holds, or the time is over, which the caller finds out.
  async until (condition, signal) {
    signal.addEventListener('abort', () => this.#changed())
    while (!condition() && !signal.aborted) {
      if (this.crash) throw this.crash
      await new Promise(resolve => { this.#changed = resolve })
    }
  }
}

function memberOf (command) {
  const member = members.get(command.member)
  if (!member) throw new Failure('NO_SUCH_MEMBER', command.member)
  return member
}

export async function join (kafka, command, signal) {
  const { group, topics, session_timeout_ms: sessionTimeout = 6000, start = 'earliest' } = command
  if (members.has(command.member)) throw new Failure('MEMBER_EXISTS', command.member)
  const member = new Member(kafka.consumer({
    groupId: group,
    sessionTimeout,
    // A member learns of a rebalance by its heartbeat; the default of 3 s would make the tests slow. Heartbeats
    // are sent between fetches, so that a fetch must not wait for its default of 5 s either.
    heartbeatInterval: 500,
    maxWaitTimeInMs: 500
  }))
  try {
    const joined = member.until(() => member.joined, signal)
    await Promise.all([joined, Promise.race([joined, member.start(topics, start === 'earliest')])])
    if (!member.joined) throw new Failure('TIMED_OUT', 'no assignment in the time given')
  } catch (error) {
    await member.consumer.disconnect()
    throw error
  }
  members.set(command.member, member)
  return { assignment: member.assigned }
}

export async function assignment (kafka, command) {
  const member = memberOf(command)
  await new Promise(resolve => setTimeout(resolve, command.poll_ms ?? 500))
  if (member.crash) throw member.crash
  return { assignment: member.assigned }
}

export async function poll (kafka, command, signal) {
  const member = memberOf(command)
  await member.until(() => member.kept.length >= command.count, signal)
  return { records: member.kept.splice(0, command.count) }
}

export async function commit (kafka, command) {
  await memberOf(command).consumer.commitOffsets(command.offsets.map(([topic, partition, offset, metadata]) =>
    ({ topic, partition, offset: String(offset), metadata })))
  return {}
}

export async function leave (kafka, command) {
  const member = memberOf(command)
  members.delete(command.member)
  await member.consumer.disconnect()
  return {}
}

export async function leaveAll () {
  await Promise.all([...members.values()].map(member => member.consumer.disconnect()))
}
