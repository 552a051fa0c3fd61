/**
 * The smallest image that a sandbox can be opened with: one static busybox under the names of all its programs, and two
 * users. It is imported in a second, without a registry or a package, and named by what is in it.
 */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { promisify } from 'node:util'
import tar from 'tar-stream'
import type { Engine } from '../daemon/engine/engine.ts'
import { inspect, type BuiltImage } from './build.ts'

const run = promisify(execFile)
const folders = ['bin', 'etc', 'root', 'work', 'proc', 'sys', 'dev']
/** Counted up when what is made here changes. */
const recipe = '1'

/** `busyboxPath`: a static busybox of the host. */
export async function busyboxImage(options: {
  readonly engine: Engine
  readonly busyboxPath: string
  readonly signal?: AbortSignal
}): Promise<BuiltImage> {
  const { engine, busyboxPath, signal } = options
  const busybox = await readFile(busyboxPath)
  const digest = createHash('sha256').update(busybox).update(recipe).digest('hex')
  const tag = `closedbook/busybox:${digest.slice(0, 16)}`
  const found = await inspect(tag, options)
  if (found !== undefined) return { id: found.id, tag }
  const { stdout } = await run(busyboxPath, ['--list'])
  const programs = stdout.split('\n').filter((name) => /^[a-z0-9[_.-]+$/.test(name))
  const pack = tar.pack()
  for (const name of folders) pack.entry({ name, type: 'directory', mode: 0o755 })
  pack.entry({ name: 'tmp', type: 'directory', mode: 0o1777 })
  pack.entry({ name: 'bin/busybox', mode: 0o755 }, busybox)
  for (const name of programs)
    if (name !== 'busybox')
      pack.entry({ name: `bin/${name}`, type: 'symlink', linkname: 'busybox' })
  pack.entry(
    { name: 'etc/passwd' },
    'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/work:/bin/sh\n',
  )
  pack.entry({ name: 'etc/group' }, 'root:x:0:\nnobody:x:65534:\n')
  pack.finalize()
  const { id } = await engine.importImage(Readable.from(pack as AsyncIterable<Buffer>), {
    tag,
    changes: ['ENV PATH=/bin', 'CMD ["/bin/sh"]'],
    ...(signal === undefined ? {} : { signal }),
  })
  return { id, tag }
}
