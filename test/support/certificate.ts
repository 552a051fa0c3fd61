/** A certificate of our own for localhost, made by openssl; `ca` is what trusts it. */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'

export interface Certificate {
  readonly cert: string
  readonly key: string
  readonly ca: string
}

export async function makeCertificate(directory: string, name = 'server'): Promise<Certificate> {
  const cert = path.join(directory, `${name}.pem`)
  const key = path.join(directory, `${name}.key`)
  await promisify(execFile)('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'],
    ...['-keyout', key, '-out', cert, '-days', '2', '-subj', `/CN=${name}`],
    ...['-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
  ])
  return { cert, key, ca: await readFile(cert, 'utf8') }
}
