/** Tars of what a lease mounts read-only. Deterministic, so that equal content is one bundle on the host. */
import { lstat, readFile, readdir, readlink, stat } from 'node:fs/promises'
import path from 'node:path'
import { buffer } from 'node:stream/consumers'
import tar from 'tar-stream'

const epoch = new Date(0)

export async function packFiles(
  files: Readonly<Record<string, string | Buffer>>,
  { executable = new Set<string>() }: { readonly executable?: ReadonlySet<string> } = {},
): Promise<Buffer> {
  const pack = tar.pack()
  for (const name of Object.keys(files).toSorted())
    pack.entry(
      { name, mode: executable.has(name) ? 0o755 : 0o644, mtime: epoch },
      files[name] ?? '',
    )
  pack.finalize()
  return buffer(pack)
}

/** `leftOut`: paths in it that stay behind, with all below. */
export async function packDirectory(
  directory: string,
  leftOut: ReadonlySet<string> = new Set(),
): Promise<Buffer> {
  const pack = tar.pack()
  const add = async (relative: string): Promise<void> => {
    if (leftOut.has(relative)) return
    const file = path.join(directory, relative)
    // the directory itself may be named by a link
    const facts = relative === '' ? await stat(file) : await lstat(file)
    const header = { name: relative, mtime: epoch }
    if (facts.isDirectory()) {
      if (relative !== '') pack.entry({ ...header, type: 'directory', mode: 0o755 })
      for (const name of (await readdir(file)).toSorted())
        await add(path.posix.join(relative, name))
    } else if (facts.isSymbolicLink()) {
      pack.entry({ ...header, type: 'symlink', linkname: await readlink(file) })
    } else {
      const mode = (facts.mode & 0o111) === 0 ? 0o644 : 0o755
      pack.entry({ ...header, mode }, await readFile(file))
    }
  }
  await add('')
  pack.finalize()
  return buffer(pack)
}
