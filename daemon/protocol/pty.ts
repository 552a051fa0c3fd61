/** PTY sessions as they cross the wire: how one is opened, what is told of it, and the JSON messages of an attachment. */
import { z } from 'zod'
import { exitSchema } from './exec-frames.ts'

/** Beyond these a size is clamped, never refused: a window of one column is a window that is being dragged. */
export const minSize = 2
export const maxSize = 1000
/** Trials are run at one size, so that what a program prints doesn't depend on who looks on. */
export const defaultSize = { cols: 120, rows: 40 } as const

export const clampSize = (value: number): number =>
  Math.min(maxSize, Math.max(minSize, Math.trunc(value) || minSize))

export const ptyRoles = ['agent', 'harness', 'person'] as const
export type PtyRole = (typeof ptyRoles)[number]

const dimension = z.number().transform(clampSize)
const label = z.string().min(1).max(200)

export const ptyOpenSchema = z.strictObject({
  argv: z.array(z.string().refine((word) => !word.includes('\0'), 'a NUL byte')).min(1),
  env: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'a name of a variable'), z.string())
    .default({}),
  cwd: z.string().startsWith('/').optional(),
  user: z.string().optional(),
  cols: dimension.default(defaultSize.cols),
  rows: dimension.default(defaultSize.rows),
  /** Whose shell it is: of a person, it makes a trial assisted at once, and its size follows the person's window. */
  role: z.enum(ptyRoles),
  label: label.optional(),
  /** The whole tree is ended after so long. */
  timeoutMs: z.int().positive().optional(),
  /** Output is read only once somebody has attached, or after 10 s. */
  hold: z.boolean().default(false),
})
export type PtyOpen = z.infer<typeof ptyOpenSchema>
export type PtyOpenInput = z.input<typeof ptyOpenSchema>

export const ptyCauses = [
  'exited',
  'killed',
  'timeout',
  'container_gone',
  'engine_lost',
  'host_lost',
] as const
export type PtyCause = (typeof ptyCauses)[number]

export const ptyViewSchema = z.strictObject({
  pty: z.string(),
  lease: z.string(),
  trial: z.string().nullable(),
  role: z.enum(ptyRoles),
  label: z.string().nullable(),
  argv: z.array(z.string()),
  /** `lost`: the process that held it ended unseen; its recording ends where it was. */
  state: z.enum(['running', 'ended', 'lost']),
  cols: z.int(),
  rows: z.int(),
  startedAt: z.string(),
  endedAt: z.string().nullable(),
  exit: exitSchema.nullable(),
  cause: z.enum(ptyCauses).nullable(),
  /** Put out since the start. */
  bytes: z.int(),
  viewers: z.int(),
  controlled: z.boolean(),
  /** A person has typed into it. */
  personInput: z.boolean(),
  /** Bytes of output that the recording lacks: beyond its limit, or the disk was full. */
  unrecordedBytes: z.int(),
})
export type PtyView = z.infer<typeof ptyViewSchema>
export const ptyViewsSchema = z.strictObject({ ptys: ptyViewSchema.array() })

export const ptyMarkerSchema = z.strictObject({ label: z.string().min(1).max(1000) })

const size = { cols: dimension, rows: dimension }

export const clientControlSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('hello'),
    mode: z.enum(['view', 'control']).default('view'),
    /** Input of a person makes a trial assisted. */
    as: z.enum(['harness', 'person']).default('person'),
    /** First byte wanted; absent: a snapshot of the screen. */
    resumeFrom: z.int().nonnegative().optional(),
    /** Window of the client: told to nobody, applied when it may and does control. */
    cols: dimension.optional(),
    rows: dimension.optional(),
    /** It acknowledges output, and at most 1 MiB is under way. */
    acks: z.boolean().default(false),
    /** The program waits for this client; only for one that controls and acknowledges. */
    lossless: z.boolean().default(false),
  }),
  z.strictObject({ type: z.literal('resize'), ...size }),
  z.strictObject({ type: z.literal('control'), action: z.enum(['request', 'grant', 'release']) }),
  z.strictObject({ type: z.literal('snapshot') }),
])
export type ClientControl = z.infer<typeof clientControlSchema>
export type ClientControlInput = z.input<typeof clientControlSchema>

export const serverControlSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('ready'),
    pty: z.string(),
    /** The next byte that will be put out. */
    offset: z.int(),
    cols: z.int(),
    rows: z.int(),
    mode: z.enum(['view', 'control']),
    /** False: the session keeps its size, whoever controls it. */
    resizable: z.boolean(),
    role: z.enum(ptyRoles),
  }),
  z.strictObject({ type: z.literal('size'), cols: z.int(), rows: z.int() }),
  z.strictObject({
    type: z.literal('control'),
    /** `requested` goes to the one who controls; the others are answers. `waiting`: another has it, and was asked. */
    event: z.enum(['granted', 'waiting', 'requested', 'refused', 'released', 'lost']),
    reason: z.string().optional(),
  }),
  z.strictObject({
    type: z.literal('gap'),
    from: z.int(),
    to: z.int(),
    reason: z.enum(['slow', 'gone']),
  }),
  z.strictObject({
    type: z.literal('exit'),
    exit: exitSchema,
    cause: z.enum(ptyCauses),
    finalOffset: z.int(),
  }),
  z.strictObject({ type: z.literal('bye'), reason: z.string() }),
])
export type ServerControl = z.infer<typeof serverControlSchema>
export type PtyEnd = Omit<Extract<ServerControl, { type: 'exit' }>, 'type'>
