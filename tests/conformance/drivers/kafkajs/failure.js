// An error of the driver itself, with the name the tests are told.
export class Failure extends Error {
  constructor (type, message) {
    super(message)
    this.type = type
  }
}

// KafkaJS has Kafka's name of the error as `type`, and wraps what it retried or did for several at once.
export function nameOf (error) {
  if (!error) return ''
  if (error.type === 'UNKNOWN') return 'UNKNOWN_SERVER_ERROR'
  if (typeof error.type === 'string') return error.type
  const inner = [
    ...(error.errors ?? []),
    ...(error.groups ?? []).map(group => group.error),
    ...(error.partitions ?? []).map(partition => partition.error),
    error.cause
  ]
  return inner.map(nameOf).find(name => name) ?? ''
}
