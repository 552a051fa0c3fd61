/** `closedbook replay TRIAL|LEASE|FILE`: plays a recording, or writes it in another form. */
import { readFile, readdir, stat } from 'node:fs/promises'
import path from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { InvalidArgumentError, Option, type Command } from 'commander'
import { parseCast, type Cast } from '../../daemon/protocol/pty-cast.ts'
import type { DaemonClient } from '../../daemon/protocol/client.ts'
import type { PtyView } from '../../daemon/protocol/pty.ts'
import { findPublished } from '../board/read-trial.ts'
import { RunnerError } from '../errors.ts'
import { findTrial, newestExecution } from '../job/find-trial.ts'
import { findLeases } from '../pty/find-session.ts'
import { LocalTerminal } from '../pty/local-terminal.ts'
import { play, toRaw, toText, toV3 } from '../pty/play.ts'
import { note, withContext, type Context } from './context.ts'

interface ReplayOptions {
  pty?: string
  speed: number
  idleLimit: number
  export?: 'v2' | 'v3' | 'txt' | 'raw'
}

export function addReplay(program: Command): void {
  program
    .command('replay')
    .description('play the recording of a terminal: space pauses, q leaves')
    .argument('<trial|lease|file>', 'id or the beginning of one, or an asciicast file')
    .option('--pty <id>', 'which terminal, where there are several')
    .option('--speed <n>', 'so many times as fast', positive, 1)
    .option('--idle-limit <seconds>', 'waits last at most so long', positive, 2)
    .addOption(
      new Option('--export <form>', 'write it to stdout instead').choices([
        'v2',
        'v3',
        'txt',
        'raw',
      ]),
    )
    .action(async (text: string, options: ReplayOptions, command: Command) =>
      withContext(command, async (context) => {
        const source = await findRecording(text, options.pty, context)
        const cast = parsed(source)
        if (cast.torn) note('closedbook: the last line was torn by a crash and is left out')
        if (options.export !== undefined)
          return void process.stdout.write(exported(options.export, cast, source))
        await show(cast, options, context.signal)
      }),
    )
}

function exported(form: 'v2' | 'v3' | 'txt' | 'raw', cast: Cast, source: string): string {
  switch (form) {
    case 'v2':
      return source
    case 'v3':
      return toV3(cast)
    case 'txt':
      return toText(cast)
    case 'raw':
      return toRaw(cast)
  }
}

async function show(cast: Cast, options: ReplayOptions, signal: AbortSignal): Promise<void> {
  using terminal = LocalTerminal.open()
  if (terminal === null) return void process.stdout.write(toText(cast))
  const over = new AbortController()
  let paused: PromiseWithResolvers<void> | null = null
  terminal.onTyped((typed) => {
    for (const key of typed.toString())
      if (key === 'q' || key === '\u0003') {
        over.abort()
        paused?.resolve()
      } else if (key === ' ') {
        if (paused === null) paused = Promise.withResolvers()
        else {
          paused.resolve()
          paused = null
        }
      }
  })
  const { width, height, title } = cast.header
  note(`closedbook: ${title ?? 'a recording'}, ${width}x${height}; space pauses, q leaves\r`)
  await terminal.show(new Uint8Array(), { cols: width, rows: height })
  await play(cast, {
    speed: options.speed,
    idleLimitMs: options.idleLimit * 1000,
    signal: AbortSignal.any([signal, over.signal]),
    write: (bytes) => terminal.write(bytes),
    running: async () => paused?.promise,
  })
  signal.throwIfAborted()
}

function positive(text: string): number {
  const value = Number(text)
  if (!Number.isFinite(value) || value <= 0) throw new InvalidArgumentError('a number above zero.')
  return value
}

function parsed(source: string): Cast {
  try {
    return parseCast(source)
  } catch (error) {
    throw new RunnerError('result_invalid', 'operator', `no recording: ${(error as Error).message}`)
  }
}

/** A file, the evidence of a trial, or what a daemon has. */
async function findRecording(
  text: string,
  pty: string | undefined,
  { config, client }: Context,
): Promise<string> {
  const isFile = await stat(text).then(
    (found) => found.isFile(),
    () => false,
  )
  if (isFile) return readFile(text, 'utf8')
  const trial = await findTrial(config.jobsDir, text)
  const execution = trial === null ? null : await newestExecution(trial)
  const kept = execution === null ? null : await castIn(execution, pty)
  if (kept !== null) return readFile(kept, 'utf8')
  const views = (await ptysOf(client, trial?.planned.trial ?? text)).filter(
    (view) => pty === undefined || view.pty.startsWith(pty),
  )
  const view = views.findLast(({ role }) => role === 'agent') ?? views.at(-1)
  if (view !== undefined) return textOf(await client.ptyRecording(view.lease, view.pty))
  throw new RunnerError(
    'trial_unknown',
    'operator',
    `there is no recording of ${JSON.stringify(text)}: it is no file, and no terminal was opened in a trial or lease of that id`,
  )
}

/** A daemon knows ids; a beginning is looked for among what is open there, and what was published. */
async function ptysOf(client: DaemonClient, text: string): Promise<PtyView[]> {
  const exact = await client.ptys(text)
  if (exact.length > 0) return exact
  const open = await findLeases(client, text).catch((error: unknown) => {
    if (error instanceof RunnerError && error.code === 'trial_unknown') return []
    throw error
  })
  const [lease] = open
  const whole = lease?.trial ?? lease?.lease ?? (await findPublished(client, text))?.trial
  return whole === undefined ? [] : client.ptys(whole)
}

async function castIn(directory: string, pty: string | undefined): Promise<string | null> {
  const names = (await readdir(directory, { recursive: true }))
    .filter((name) => name.endsWith('.cast') && (pty === undefined || name.includes(pty)))
    .toSorted()
  const [name] = names
  return name === undefined ? null : path.join(directory, name)
}
