// The conformance driver for KafkaJS.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

import kafkajs from 'kafkajs'

import * as administration from './administration.js'
import { registerCodecs } from './codecs.js'
import { Failure, nameOf } from './failure.js'
import * as members from './members.js'
import * as records from './records.js'
import { security } from './security.js'
import * as transactions from './transactions.js'

const withClient = {
  produce: records.produce,
  produce_keyed: records.produceKeyed,
  fetch: records.fetch,
  transact: transactions.transact,
  join: members.join,
  assignment: members.assignment,
  poll: members.poll,
  commit: members.commit,
  leave: members.leave
}
const withAdmin = {
  offsets: administration.offsets,
  committed: administration.committed,
  create_topic: administration.createTopic,
  describe_topic: administration.describeTopic,
  alter_topic: administration.alterTopic,
  add_partitions: administration.addPartitions,
  delete_topic: administration.deleteTopic,
  list_topics: administration.listTopics,
  delete_records: administration.deleteRecords,
  list_groups: administration.listGroups,
  describe_group: administration.describeGroup,
  delete_group: administration.deleteGroup
}
// After its time an operation may still say what it has; then it is given up.
const GRACE_MS = 1000

const [bootstrap, loginFile] = process.argv.slice(2)
if (!bootstrap) {
  console.error('usage: kafkajs BOOTSTRAP [LOGIN]')
  process.exit(2)
}

// Its own logger writes to standard output.
const logCreator = () => ({ namespace, label, log }) => console.error(label, namespace, log.message, log.error ?? '')
const kafka = new kafkajs.Kafka({
  brokers: bootstrap.split(','),
  logLevel: kafkajs.logLevel.WARN,
  logCreator,
  ...security(loginFile)
})

// A background task of the library that fails is no reason to end.
process.on('unhandledRejection', error => console.error(error))

// One for each command: an admin client asks about all its topics of before again, and fails once one is deleted.
async function administer (operation, command) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await operation(admin, command)
  } finally {
    await admin.disconnect()
  }
}

const reply = answer => process.stdout.write(JSON.stringify(answer) + '\n')

function run (command, signal) {
  if (command.op in withClient) return withClient[command.op](kafka, command, signal)
  if (command.op in withAdmin) return administer(withAdmin[command.op], command)
  throw new Failure('UNKNOWN_OP', command.op)
}

async function execute (command) {
  const timeout = new AbortController()
  const timers = []
  const after = ms => new Promise(resolve => timers.push(setTimeout(resolve, ms)))
  const limit = command.timeout_ms ?? 30000
  after(limit).then(() => timeout.abort())
  try {
    return await Promise.race([
      run(command, timeout.signal),
      after(limit + GRACE_MS).then(() => { throw new Failure('TIMED_OUT', 'the time given was over') })
    ])
  } finally {
    timers.forEach(clearTimeout)
  }
}

const unsupported = ['static membership', 'broker-side assignment', 'share groups', 'null header values', ...await registerCodecs()]
const { version } = createRequire(import.meta.url)('kafkajs/package.json')
reply({ client: 'kafkajs', version, unsupported })

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  try {
    reply({ id: command.id, result: await execute(command) })
  } catch (error) {
    reply({ id: command.id, error: nameOf(error) || error.name, message: error.message })
  }
}
await transactions.closeAll()
await members.leaveAll()
