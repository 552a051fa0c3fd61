/** The files of an execution that people read in the dashboard, as documents of the board: text, cut where it is long. */
import { open, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import type { EvidenceDocument } from '../../daemon/protocol/board-documents.ts'

const shownBytes = 1024 * 1024
const maxFiles = 60
/** What else there is, is named with its size and read where it lies. */
const shown = /^(?!exchanges\.jsonl$).+\.(json|jsonl|diff|log|stdout|stderr|xml|tap|txt)$/

export interface EvidenceFile {
  readonly name: string
  readonly file: string
  readonly bytes: number
  readonly shown: boolean
}

export async function evidenceFiles(directory: string): Promise<EvidenceFile[]> {
  const names = (await readdir(directory).catch((): string[] => [])).toSorted().slice(0, maxFiles)
  const files: EvidenceFile[] = []
  for (const name of names) {
    const file = path.join(directory, name)
    const facts = await stat(file).catch(() => null)
    if (facts?.isFile() !== true) continue
    const readable = shown.test(name) && facts.size > 0 && /^[A-Za-z0-9][\w.-]*$/.test(name)
    files.push({ name, file, bytes: facts.size, shown: readable })
  }
  return files
}

export async function evidenceDocument({
  name,
  file,
  bytes,
}: EvidenceFile): Promise<EvidenceDocument> {
  await using handle = await open(file, 'r')
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(bytes, shownBytes)))
  return {
    name,
    path: file,
    bytes,
    truncated: bytesRead < bytes,
    text: buffer.subarray(0, bytesRead).toString('utf8'),
  }
}
