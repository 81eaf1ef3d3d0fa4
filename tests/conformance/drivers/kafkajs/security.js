// How the client logs in, over TLS.
import { readFileSync } from 'node:fs'

// The options of a client; none without a LOGIN.
export function security (loginFile) {
  if (!loginFile) return {}
  const login = JSON.parse(readFileSync(loginFile, 'utf8'))
  return { ssl: { ca: [readFileSync(login.ca_file, 'utf8')] }, sasl: saslOf(login) }
}

function saslOf (login) {
  const mechanism = login.mechanism.toLowerCase()
  if (mechanism !== 'oauthbearer') return { mechanism, username: login.user, password: login.password }
  // Read again whenever the client needs one.
  const token = async () => ({ value: readFileSync(login.token_file, 'utf8').trim() })
  return { mechanism, oauthBearerProvider: token }
}
