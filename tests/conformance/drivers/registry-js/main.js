// A driver of KafkaJS' schema registry client: the commands are in tests/conformance/README.md.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

import library from '@kafkajs/confluent-schema-registry'

const { SchemaRegistry } = library
const registry = new SchemaRegistry({ host: process.argv[2] })

const schemaOf = ({ schema, schemaType, references }) => ({ schema, references, type: schemaType ?? 'AVRO' })
const ops = {
  // Of a new subject it also sets the level.
  register: async ({ subject, schema, level }) =>
    (await registry.register(schemaOf(schema), { subject, compatibility: level ?? 'BACKWARD' })).id,
  lookup: async ({ subject, schema }) => [await registry.getRegistryIdBySchema(subject, schemaOf(schema))],
  latest: ({ subject }) => registry.getLatestSchemaId(subject),
  encode: async ({ schema_id: id, value }) => (await registry.encode(id, value)).toString('base64'),
  decode: ({ data }) => registry.decode(Buffer.from(data, 'base64'))
}

const reply = answer => process.stdout.write(JSON.stringify(answer) + '\n')
const { version } = createRequire(import.meta.url)('@kafkajs/confluent-schema-registry/package.json')
// Its values of Protobuf lack the message indexes, so that nothing but itself reads them.
const unsupported = ['versions', 'check', 'set_level', 'delete', 'encode PROTOBUF']
reply({ client: 'kafkajs confluent-schema-registry', version, unsupported })

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  try {
    reply({ id: command.id, result: await ops[command.op](command) })
  } catch (error) {
    reply({ id: command.id, error: error.constructor.name, message: error.message })
  }
}
