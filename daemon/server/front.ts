/**
 * What serves people and other hosts beside the lease API: credentials, the board, the dashboard, metrics, health, the
 * OpenAPI document; and the listener that they are reached by. Opened in two steps, for routes are added in between and
 * nothing may be served before the leases are reconciled.
 */
import { statfs } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { z } from 'zod'
import type { DaemonConfig } from '../config.ts'
import type { GpuPool } from '../gpu/pool.ts'
import type { Leases } from '../lease/leases.ts'
import type { Logger } from '../logger.ts'
import { hostLoadSchema, type HostLoad } from '../protocol/host-load.ts'
import { addAuthRoutes } from './auth/auth-routes.ts'
import { Gate } from './auth/gate.ts'
import { Tokens } from './auth/tokens.ts'
import { addBoardRoutes } from './board/board-routes.ts'
import { Board } from './board/board.ts'
import { Metrics, type MetricsDeps } from './metrics.ts'
import { openNetworkDoor } from './network-door.ts'
import { StreamSockets } from './numbered-stream.ts'
import { openApi } from './openapi.ts'
import { sendJson, type Router } from './router.ts'
import { addWebRoutes } from './web/web-routes.ts'

export async function openGate(
  stateDir: string,
  log: Logger,
  owned: AsyncDisposableStack,
): Promise<Gate> {
  const tokens = owned.use(await Tokens.open(path.join(stateDir, 'auth')))
  return owned.use(new Gate(tokens, log))
}

export interface FrontDeps {
  readonly config: DaemonConfig
  readonly gate: Gate
  readonly leases: Leases
  readonly gpus: GpuPool
  /** The engine keeps images and sandboxes there. */
  readonly engineRoot: string
  readonly log: Logger
  readonly cache?: MetricsDeps['cache']
  readonly ptys?: MetricsDeps['ptys']
  readonly streams?: StreamSockets
}

export interface Front extends AsyncDisposable {
  /** null: the unix socket alone. */
  readonly url: string | null
}

export async function openFront(router: Router, deps: FrontDeps): Promise<Front> {
  const {
    config,
    gate,
    leases,
    gpus,
    engineRoot,
    log,
    cache,
    ptys,
    streams = new StreamSockets(),
  } = deps
  await using undo = new AsyncDisposableStack()
  const board = await Board.open(path.join(config.stateDir, 'board'), config.board, log)
  const metrics = undo.use(
    new Metrics({
      leases,
      gpus: () => gpus.report(),
      refusals: () => gate.refusals.counts,
      board: () => board.size,
      streams: () => streams.counts,
      ...(cache === undefined ? {} : { cache }),
      ...(ptys === undefined ? {} : { ptys }),
    }),
  )
  addAuthRoutes(router, gate, { secure: config.server.tls !== undefined })
  addBoardRoutes(router, board, streams)
  router.on(
    'GET',
    '/health',
    { role: 'anyone', summary: 'that it serves', answer: z.strictObject({ status: z.string() }) },
    ({ response }) => sendJson(response, 200, { status: 'ok' }),
  )
  router.on(
    'GET',
    '/metrics',
    { role: 'view', summary: "metrics in Prometheus' format", type: 'text/plain' },
    async ({ response }) => {
      const text = await metrics.text()
      response
        .writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' })
        .end(text)
    },
  )
  router.on(
    'GET',
    '/v1/host/load',
    { role: 'view', summary: 'disk, memory and load of the host', answer: hostLoadSchema },
    async ({ response }) => sendJson(response, 200, await hostLoad([config.stateDir, engineRoot])),
  )
  router.on(
    'GET',
    '/v1/openapi.json',
    { role: 'view', summary: 'this document', answer: z.json() },
    ({ response }) => sendJson(response, 200, openApi(router)),
  )
  addWebRoutes(router)
  const door = await openNetworkDoor(router, config.server, {
    tokens: gate.tokens,
    refusals: gate.refusals,
    log,
  })
  if (door !== null) undo.use(door)
  const owned = undo.move()
  return { url: door?.url ?? null, [Symbol.asyncDispose]: () => owned.disposeAsync() }
}

async function hostLoad(directories: readonly string[]): Promise<HostLoad> {
  const disks = await Promise.all(
    directories.map(async (directory) => {
      const { blocks, bavail, bsize } = await statfs(directory)
      return { path: directory, bytes: blocks * bsize, freeBytes: bavail * bsize }
    }),
  )
  const [one = 0] = os.loadavg()
  return {
    disks,
    memoryBytes: os.totalmem(),
    freeMemoryBytes: os.freemem(),
    load: one,
    cpus: os.availableParallelism(),
    uptimeSeconds: Math.round(process.uptime()),
  }
}
