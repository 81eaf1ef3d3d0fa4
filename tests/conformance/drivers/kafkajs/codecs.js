// Registers what compression can be had; gzip is in KafkaJS itself. Returns the codecs that are missing.
import kafkajs from 'kafkajs'

const { CompressionCodecs, CompressionTypes } = kafkajs

// The largest that a batch may become: ZSTD_decompress wants to know, and not every batch tells.
const LARGEST_BATCH_BYTES = 64 * 1024 * 1024

const load = {
  async Snappy () {
    return (await import('kafkajs-snappy')).default
  },

  async LZ4 () {
    const { default: LZ4 } = await import('kafkajs-lz4')
    return new LZ4().codec
  },

  async ZSTD () {
    const { default: zstd } = await import('@bokuweb/zstd-wasm')
    await zstd.init()
    const decompress = buffer => {
      for (let size = 1024 * 1024; ; size *= 2) {
        try {
          return Buffer.from(zstd.decompress(buffer, { defaultHeapSize: size }))
        } catch (error) {
          if (size >= LARGEST_BATCH_BYTES) throw error
        }
      }
    }
    return () => ({
      compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, 3)),
      decompress: async buffer => decompress(buffer)
    })
  }
}

export async function registerCodecs () {
  const missing = []
  for (const [type, loadCodec] of Object.entries(load)) {
    try {
      CompressionCodecs[CompressionTypes[type]] = await loadCodec()
    } catch (error) {
      console.error(`no ${type}: ${error.message}`)
      missing.push(type.toLowerCase())
    }
  }
  return missing
}
