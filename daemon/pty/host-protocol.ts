/**
 * Between the daemon and its pty-host: HTTP/1.1 on a unix socket that only root may use. The host outlives the daemon,
 * so that the two may be of different versions: with another `protocol` the daemon asks the host for nothing but its end.
 *
 *   GET    /hello                      {protocol, pid, version, running}
 *   GET    /events                     NDJSON of HostEvent; an empty line every 5 s; who reads it is the host's daemon
 *   GET    /sessions                   {ptys: PtyView[]}
 *   GET    /counts                     Tally, since the start of the host, and `attachments`, open now
 *   POST   /sessions                   OpenSession → 201 PtyView
 *   DELETE /sessions/:pty?alone=true   PtyView, ended
 *   POST   /sessions/:pty/markers      {label}
 *   GET    /sessions/:pty/attach       WebSocket closedbook.pty.v1, with the headers below
 *   DELETE /attachments/:id?code=N     closes one
 *   DELETE /leases/:lease              ends its sessions and forgets them
 *   POST   /shutdown                   ends all sessions, then the host
 *
 * The daemon that started the host also has a channel to it, over which it gives the sockets of viewers away: each is a
 * HandedViewer beside the socket. They end with that channel, for nobody may look on unseen by a daemon.
 */
import { z } from 'zod'
import { ptyOpenSchema, ptyViewSchema } from '../protocol/pty.ts'

export const hostProtocol = 1
export const heartbeatMs = 5_000
export const heartbeatPatienceMs = 20_000

export const hostHelloSchema = z.looseObject({
  protocol: z.int(),
  pid: z.int(),
  version: z.string(),
  running: z.int(),
})
export type HostHello = z.infer<typeof hostHelloSchema>

export const openSessionSchema = z.strictObject({
  lease: z.string().regex(/^[a-z0-9]{12,32}$/),
  trial: z.string().nullable(),
  container: z.string(),
  initPid: z.int().positive().nullable(),
  open: ptyOpenSchema,
})

export const hostEventSchema = z.strictObject({
  type: z.enum(['started', 'person_input', 'ended']),
  view: ptyViewSchema,
})
export type HostEvent = z.infer<typeof hostEventSchema>

/** The request of a viewer whose socket comes with it: as in GET /sessions/:pty/attach, and answered by the host. */
export const handedViewerSchema = z.strictObject({
  url: z.string(),
  headers: z.record(z.string(), z.string()),
})
export type HandedViewer = z.infer<typeof handedViewerSchema>

/** What the daemon says of one who attaches; the host takes nobody else's word. */
export const attachHeaders = {
  attachment: 'x-closedbook-attachment',
  /** `true` or `false` */
  mayControl: 'x-closedbook-may-control',
  name: 'x-closedbook-name',
} as const
