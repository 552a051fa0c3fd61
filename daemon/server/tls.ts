/**
 * Certificate and key from files, checked to be a pair before anything listens, and read again when they change. A pair
 * that can't be used is logged and the one before it stays: a renewal that went wrong must not end the daemon.
 */
import { createPrivateKey, X509Certificate } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import type https from 'node:https'
import { HostError } from '../errors.ts'
import type { Logger } from '../logger.ts'

export interface TlsFiles {
  readonly cert: string
  readonly key: string
}

export interface TlsPair {
  readonly cert: Buffer
  readonly key: Buffer
}

const pollMs = 2_000

/** Throws config_invalid, and says what is wrong with which file. */
export async function readTls({ cert, key }: TlsFiles): Promise<TlsPair> {
  const pair = { cert: await readPem(cert), key: await readPem(key) }
  let matches: boolean
  try {
    matches = new X509Certificate(pair.cert).checkPrivateKey(createPrivateKey(pair.key))
  } catch (error) {
    throw invalid(
      `${cert} and ${key} are not a certificate and a key in PEM: ${(error as Error).message}`,
      error,
    )
  }
  if (!matches) throw invalid(`the key in ${key} is not that of the certificate in ${cert}`)
  return pair
}

export function watchTls(server: https.Server, files: TlsFiles, log: Logger): Disposable {
  let known = ''
  let busy = false
  const look = async (): Promise<void> => {
    const now = await stampOf(files)
    if (known === '') known = now
    if (now === known) return
    known = now
    server.setSecureContext(await readTls(files))
    log.info({ cert: files.cert }, 'tls.reloaded')
  }
  const poll = (): void => {
    if (busy) return
    busy = true
    look()
      .catch((error: unknown) => log.error({ err: error }, 'tls.reload-failed'))
      .finally(() => (busy = false))
  }
  poll()
  const timer = setInterval(poll, pollMs)
  timer.unref()
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

async function stampOf({ cert, key }: TlsFiles): Promise<string> {
  const stats = await Promise.all([stat(cert), stat(key)])
  return stats.map(({ ino, size, mtimeMs }) => `${ino} ${size} ${mtimeMs}`).join()
}

async function readPem(file: string): Promise<Buffer> {
  return readFile(file).catch((error: unknown) => {
    throw invalid(`cannot read ${file}: ${(error as Error).message}`, error)
  })
}

const invalid = (message: string, cause?: unknown): HostError =>
  new HostError('config_invalid', 'operator', `server.tls: ${message}`, { cause })
