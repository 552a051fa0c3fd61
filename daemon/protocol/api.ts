/**
 * The lease API: HTTP/1.1 on a unix socket that only root may use, or on a TCP port with a credential (auth.ts); JSON
 * unless said otherwise.
 *
 *   GET    /v1/health                      {status, version, pid, engine}; 200 as soon as the daemon serves
 *   GET    /v1/host                        HostFacts
 *   GET    /v1/gpus                        GpuReport (gpu.ts): as last seen
 *   POST   /v1/gpus/probe                  GpuReport: looks now, and takes back quarantined GPUs that are well
 *   GET    /v1/images?reference=R          ImageInfo {id, …}; 404 image_missing
 *   POST   /v1/leases                      LeaseRequest → 201 LeaseView once `ready`; closes it if the client goes away first
 *   GET    /v1/leases                      {leases: LeaseView[]}
 *   GET    /v1/leases/:id                  LeaseView
 *   GET    /v1/leases/:id?waitFor=ready    waits until that state or `closing`, `timeoutMs` at most
 *   POST   /v1/leases/:id/renew            LeaseView: pushes expiresAt by its ttl
 *   POST   /v1/leases/:id/model            LeaseView: {the request's model}, for a lease that `awaitsModel`
 *   POST   /v1/leases/:id/freeze           FreezeReport; shuts the model gateway first; idempotent
 *   POST   /v1/leases/:id/prove            {canaries: CanaryResult[], ok}: runs the canaries again (proof.after)
 *   DELETE /v1/leases/:id                  LeaseView `closed`; idempotent
 *   POST   /v1/leases/:id/exec             upgrade to closedbook.exec.v1 (exec-frames.ts)
 *   POST   /v1/leases/:id/ptys             PtyOpen (pty.ts) → 201 PtyView: a program on a terminal, which outlives its viewers and the daemon
 *   GET    /v1/leases/:id/ptys             {ptys: PtyView[]}, ended ones too
 *   GET    /v1/leases/:id/ptys/:pty        PtyView
 *   DELETE /v1/leases/:id/ptys/:pty        PtyView, ended: HUP, TERM, KILL to all that it started; idempotent
 *   POST   /v1/leases/:id/ptys/:pty/markers   {label}: a mark in its recording
 *   GET    /v1/leases/:id/ptys/:pty/recording   asciicast v2 so far, also of a closed lease
 *   GET    /v1/leases/:id/ptys/:pty/attach   WebSocket closedbook.pty.v1 (pty-frames.ts); view looks on, run may control
 *   GET    /v1/ptys?of=LEASE|TRIAL         {ptys: PtyView[]}; without `of` those of all open leases
 *   GET    /v1/leases/:id/archive?path=P   application/x-tar; header X-Closedbook-Path-Kind: file|directory|symlink|other
 *   GET    /v1/leases/:id/changes          {changes: FileChange[]}: what differs from the image
 *   PUT    /v1/leases/:id/archive?path=P   a tar to extract at P
 *   GET    /v1/leases/:id/usage            Usage (zeros where the lease has no model gateway)
 *   GET    /v1/leases/:id/exchanges        application/x-ndjson of RecordedCall
 *   GET    /v1/leases/:id/egress           EgressSummary (canaries of our proof not counted)
 *   GET    /v1/leases/:id/events?from=N&follow=true   application/x-ndjson of LeaseEvent, or as one accepts
 *                                          text/event-stream, or as a WebSocket closedbook.stream.v1 (stream-frames.ts); ends when the lease closed
 *   GET    /v1/audit?of=LEASE|TRIAL        application/x-ndjson of AuditEvent, also of closed leases; 404 for unknown ids;
 *                                          with `follow=true` it goes on: until the lease is closed, or with a trial for ever
 *   GET    /v1/audit/query?…               application/x-ndjson of AuditEvent of all leases that match (AuditQuery in audit.ts)
 *   GET    /v1/audit/summary?of=LEASE|TRIAL   {leases: LeaseAudit[]}: exact totals and the targets tried most
 *   GET    /v1/audit/verify?of=LEASE|TRIAL    {leases: AuditVerdict[]}: numbers, chain, schema, end and canaries
 *   PUT    /v1/bundles/:sha256             a tar whose sha256 is the name → {bundle}; idempotent, verified
 *   POST   /v1/bundles                     {image} → {bundle}: the image's file system, for a harness inside another image
 *   DELETE /v1/bundles/:sha256             forgets it when no lease mounts it
 *   GET    /v1/host/load                   HostLoad: disks, memory, load
 *   GET    /v1/tokens                      {tokens: TokenView[]} (auth.ts); POST makes one, DELETE /v1/tokens/:id revokes it
 *   POST   /v1/tickets                     {path, role} → 201 Ticket, good once
 *   POST   /v1/session                     {ticket} or {token} → a session of the dashboard, as a cookie; GET, DELETE
 *   GET    /v1/board/:kind                 BoardList (board.ts): what runners have published
 *   PUT    /v1/board/:kind/:id             a document, any JSON; GET, DELETE
 *   POST   /v1/board/:kind/:id/lines       numbered JSON lines; GET reads and follows them, the same three ways
 *   GET    /v1/board/changes               text/event-stream of changes, resumable
 *   POST   /v1/shutdown                    closes every lease, answers, ends the daemon
 *
 * Errors: status 4xx/5xx, body {code, message, blame}.
 */
export const apiVersion = 'v1'

/** HTTP status of an error by its code; 500 for what is not listed. */
export const statusByCode: Readonly<Record<string, number>> = {
  bad_request: 400,
  unauthenticated: 401,
  ticket_refused: 401,
  forbidden: 403,
  host_refused: 403,
  origin_refused: 403,
  too_many_requests: 429,
  board_conflict: 409,
  not_found: 404,
  too_large: 413,
  unsupported: 422,
  lease_unknown: 404,
  lease_wrong_state: 409,
  lease_refused: 422,
  lease_no_capacity: 503,
  lease_expired: 410,
  seal_failed: 500,
  proof_failed: 500,
  freeze_failed: 500,
  close_incomplete: 500,
  gpu_lost: 500,
  engine_unreachable: 503,
  engine_refused: 502,
  engine_timeout: 504,
  image_missing: 404,
  image_not_pinned: 422,
  image_build_failed: 500,
  container_gone: 410,
  exec_not_started: 422,
  path_missing: 404,
  disk_full: 507,
  spec_refused: 422,
  gpu_unavailable: 503,
}
