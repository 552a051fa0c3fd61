/** A daemon with a lease of busybox to run terminals in, and viewers that remember what they saw. */
import type { AttachOptions, Gap, PtyAttachment } from '../../daemon/protocol/pty-client.ts'
import type { PtyEnd, PtyOpenInput, PtyView } from '../../daemon/protocol/pty.ts'
import type { SnapshotFacts } from '../../daemon/protocol/pty-frames.ts'
import { TestDaemon } from './daemon.ts'
import { testEngine } from './engine.ts'

export interface PtyWorld extends AsyncDisposable {
  readonly daemon: TestDaemon
  readonly image: string
  readonly lease: string
  readonly open: (script: string, options?: Partial<PtyOpenInput>) => Promise<PtyView>
  readonly watch: (view: PtyView, options?: Partial<AttachOptions>) => Seen
}

export interface Seen {
  readonly attachment: PtyAttachment
  readonly ended: Promise<PtyEnd>
  /** All bytes so far; what gaps left out is missing. None where the test takes the output itself. */
  bytes(): Buffer
  text(): string
  readonly snapshots: { text: string; facts: SnapshotFacts }[]
  readonly gaps: Gap[]
  readonly events: string[]
  readonly sizes: string[]
  /** Offsets that did not follow on what came before, gaps apart. */
  readonly broken: string[]
  until(what: RegExp | (() => boolean)): Promise<void>
}

export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  const deadline = Date.now() + 30_000
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

export async function ptyWorld(config: object = {}, trial?: string): Promise<PtyWorld> {
  await using undo = new AsyncDisposableStack()
  const engine = undo.use(await testEngine())
  const image = await engine.baseImage()
  const daemon = undo.use(await TestDaemon.open(engine.socketPath, config))
  const { lease } = await daemon.client.openLease({
    image,
    network: 'offline',
    ...(trial === undefined ? {} : { trial }),
  })
  const viewers: PtyAttachment[] = []
  // One that is left would look for its daemon for ever, and the test's process with it.
  undo.defer(() => {
    for (const viewer of viewers) viewer.close()
  })
  const owned = undo.move()
  return {
    daemon,
    image,
    lease,
    open: (script, options = {}) =>
      daemon.client.openPty(lease, { argv: ['sh', '-c', script], role: 'agent', ...options }),
    watch: (view, options) => {
      const seen = watch(daemon, view, options)
      viewers.push(seen.attachment)
      return seen
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  }
}

export function watch(
  { client }: Pick<TestDaemon, 'client'>,
  view: PtyView,
  options: Partial<AttachOptions> = {},
): Seen {
  const chunks: Buffer[] = []
  const snapshots: Seen['snapshots'] = []
  const gaps: Gap[] = []
  const events: string[] = []
  const sizes: string[] = []
  const broken: string[] = []
  let next = options.from ?? -1
  const attachment = client.attachPty(view.lease, view.pty, {
    from: 0,
    as: 'harness',
    ...options,
    onOutput: (bytes, offset) => {
      if (next >= 0 && offset !== next) broken.push(`${offset} after ${next}`)
      next = offset + bytes.length
      if (options.onOutput !== undefined) return options.onOutput(bytes, offset)
      chunks.push(Buffer.from(bytes))
      return undefined
    },
    onSnapshot: (bytes, facts) => {
      next = facts.offset
      snapshots.push({ text: Buffer.from(bytes).toString(), facts })
    },
    onGap: (gap) => void gaps.push(gap),
    onSize: ({ cols, rows }) => void sizes.push(`${cols}x${rows}`),
    onControl: ({ event }) => void events.push(event),
    onState: (state) => void events.push(state),
  })
  const bytes = (): Buffer => Buffer.concat(chunks)
  return {
    attachment,
    ended: attachment.ended,
    bytes,
    text: () => bytes().toString(),
    snapshots,
    gaps,
    events,
    sizes,
    broken,
    until: (what) =>
      until(String(what), () =>
        what instanceof RegExp
          ? what.test(bytes().toString()) || snapshots.some(({ text }) => what.test(text))
          : what(),
      ),
  }
}
