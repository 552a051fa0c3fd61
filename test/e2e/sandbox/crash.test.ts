/**
 * A daemon that is killed at any moment leaves nothing that the next one doesn't adopt or remove, and nothing open
 * meanwhile: the sandbox of a dead daemon is a closed book.
 */
import { readFileSync, watch } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { instanceLabel } from '../../../daemon/engine/labels.ts'
import { RemoteError } from '../../../daemon/protocol/errors.ts'
import type { LeaseState } from '../../../daemon/protocol/lease.ts'
import { eventLine, SandboxWorld, until } from './setup.ts'

const world = await SandboxWorld.open()
t.teardown(() => world[Symbol.asyncDispose]())
const { daemon } = world
const journal = (which: 'open' | 'closed'): string => path.join(daemon.stateDir, 'leases', which)

/** Processes of any daemon of this state directory that are not the daemon itself. */
async function helpers(parent: number): Promise<string[]> {
  const found: string[] = []
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const command = (await readFile(`/proc/${name}/cmdline`, 'utf8')).replaceAll('\0', ' ')
      const stat = await readFile(`/proc/${name}/stat`, 'utf8')
      const ppid = Number(stat.slice(stat.lastIndexOf(')') + 4).split(' ')[0])
      if (ppid === parent || /nsenter .*namespace-helper/.test(command)) found.push(command)
    } catch {
      // it has ended
    }
  }
  return found
}

/** Kills the daemon as soon as the journal has the lease in that state. */
async function killWhen(lease: string, state: LeaseState): Promise<void> {
  await new Promise<void>((resolve) => {
    const watcher = watch(journal('open'), () => {
      try {
        const text = readFileSync(path.join(journal('open'), `${lease}.json`), 'utf8')
        if ((JSON.parse(text) as { state: string }).state !== state) return
      } catch {
        return
      }
      process.kill(daemon.pid, 'SIGKILL')
      watcher.close()
      resolve()
    })
  })
  await daemon.kill()
}

/** What must hold after every start: containers are those of open leases, and each lease is in one journal folder. */
async function consistent(t: Test): Promise<void> {
  const leases = await daemon.client.leases()
  const { instance } = await daemon.client.host()
  const containers = await world.engine.listContainers({ [instanceLabel]: instance })
  t.equal(containers.length, leases.length, 'a container for each lease and no other')
  const open = await readdir(journal('open'))
  t.strictSame(open.toSorted(), leases.map(({ lease }) => `${lease}.json`).toSorted())
  const closed = await readdir(journal('closed'))
  t.strictSame(
    closed.filter((name) => open.includes(name)),
    [],
  )
}

for (const state of ['admitted', 'creating', 'sealing', 'proving'] as const)
  void t.test(
    `killed while a lease is ${state}: the next daemon removes what was made`,
    async (t) => {
      const id = `killed${state}`
      const { pid } = daemon
      const opening = world.lease({ id }).then(
        () => 'opened',
        (error: unknown) => (error instanceof RemoteError ? error.code : String(error)),
      )
      await killWhen(id, state)
      t.equal(await opening, 'daemon_unreachable')
      await until('helpers end by themselves', async () => (await helpers(pid)).length === 0)
      await daemon.start()
      await consistent(t)
      t.strictSame(await daemon.client.leases(), [])
      const record: unknown = JSON.parse(
        await readFile(path.join(journal('closed'), `${id}.json`), 'utf8'),
      )
      t.match(record, {
        state: 'closed',
        reason: new RegExp(
          `restarted while it was ${state === 'admitted' ? '(admitted|creating)' : state}`,
        ),
      })
      const again = await world.lease({ id })
      t.equal(again, id, 'the id can be opened again')
      await daemon.client.closeLease(id, 'done')
      await consistent(t)
    },
  )

/** Waits until nobody answers at the proxy, tries what it can, and tells what came of it in a file. */
const whileDown = `
import json, os, socket, time
def tcp(address, port):
    with socket.socket() as s:
        s.settimeout(3)
        try: s.connect((address, port)); return 'empty' if s.recv(1) == b'' else 'answered'
        except OSError as error: return type(error).__name__
def udp(address, port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        try: s.connect((address, port)); s.send(bytes(20)); s.recv(1); return 'answered'
        except OSError as error: return type(error).__name__
open('/tmp/waiting', 'w').close()
while True:
    with socket.socket() as s:
        if s.connect_ex(('127.0.0.1', 443)): break
    time.sleep(0.02)
results = [tcp('127.0.0.1', 3128), tcp('198.51.100.43', 443), tcp('198.51.100.80', 80), tcp('198.51.100.53', 53),
  tcp('198.51.100.22', 22), tcp('127.0.0.1', 30000), udp('198.51.100.54', 53), udp('198.51.100.9', 9)]
open('/tmp/results.part', 'w').write(json.dumps(results))
os.rename('/tmp/results.part', '/tmp/results')
`

void t.test('a ready lease is adopted and nothing was open meanwhile', async (t) => {
  const lease = await world.lease({ id: 'adoptedready' })
  const frozen = await world.lease({ id: 'adoptedfrozen' })
  const beside = await world.lease({ id: 'besideadopted', execInto: lease })
  const report = await daemon.client.freeze(frozen)
  await world.run(lease, ['curl', '-s', 'http://198.51.100.7:8080'])
  const start = `setsid python3 -c "$0" >/tmp/log 2>&1 </dev/null & while ! test -e /tmp/waiting; do sleep 0.05; done`
  await world.run(lease, ['sh', '-c', start, whileDown])
  const earlier = await world.audit(lease)
  t.equal(
    earlier[0] === undefined ? '' : eventLine(earlier[0]),
    'census tcp - 198.51.100.7 8080 deny direct_tcp x1',
  )
  await daemon.kill()
  const { instance } = JSON.parse(
    await readFile(path.join(journal('open'), `${lease}.json`), 'utf8'),
  ) as { instance: string }
  const held = await world.engine.listContainers({ [instanceLabel]: instance })
  const container = held.find(({ name }) => name === `cb-${lease}`)?.id ?? ''
  await until('it tried what it could', () =>
    world.engine.readArchive(container, '/tmp/results').then(
      ({ tar }) => tar.destroy(),
      () => null,
    ),
  )
  await daemon.start()
  await consistent(t)
  t.strictSame(
    (await daemon.client.leases()).map((view) => `${view.lease} ${view.state}`).toSorted(),
    ['adoptedfrozen frozen', 'adoptedready ready'],
    'a gateway is not adopted',
  )
  t.match(JSON.parse(await readFile(path.join(journal('closed'), `${beside}.json`), 'utf8')), {
    reason: /gateway does not outlive/,
  })
  t.strictSame(await daemon.client.freeze(frozen), report, 'a freeze told again is the same')

  const { output } = await world.run(lease, ['cat', '/tmp/results'])
  t.strictSame(JSON.parse(output), [
    ...Array.from({ length: 7 }, () => 'ConnectionRefusedError'),
    'PermissionError',
  ])
  const denied = await world.run(lease, [
    ...['curl', '-sS', '-x', 'http://127.0.0.1:3128', 'https://denied.example/'],
  ])
  t.match(denied.output, /CONNECT tunnel failed, response 403/)
  await world.run(lease, ['curl', '-s', 'http://198.51.100.7:8080'])
  const proof = await daemon.client.prove(lease)
  t.ok(proof.ok, 'it is as sealed as before')

  const events = await Array.fromAsync(daemon.client.audit(lease))
  t.strictSame(
    events.map(({ seq }) => seq),
    events.map((_, n) => n + 1),
    'numbers go on without a gap',
  )
  const lines = events
    .filter(({ canary, seq }) => canary !== true && seq > (earlier.at(-1)?.seq ?? 0))
    .map(eventLine)
    .filter((line) => !line.includes('127.0.0.1 443 deny'))
  const unanswered = 'x1 no daemon was there to answer'
  t.strictSame(
    lines.toSorted(),
    [
      'lifecycle none - - - none none x1 the daemon was restarted; while it was down every attempt was refused',
      `census tcp - 127.0.0.1 3128 deny internal_error ${unanswered}`,
      `census tcp - 198.51.100.43 443 deny direct_tcp ${unanswered}`,
      `census tcp - 198.51.100.80 80 deny direct_tcp ${unanswered}`,
      `census tcp - 198.51.100.53 53 deny dns_query ${unanswered}`,
      `census udp - 198.51.100.54 53 deny dns_query ${unanswered}`,
      'census tcp - 198.51.100.22 22 deny direct_tcp x1',
      'census udp - 198.51.100.9 9 deny direct_udp x1',
      'decision connect denied.example - 443 deny not_allowed_host x1',
      'census tcp - 198.51.100.7 8080 deny direct_tcp x1',
    ].toSorted(),
  )
  for (const id of [lease, frozen]) await daemon.client.closeLease(id, 'done')
  await consistent(t)
})

void t.test('a lease whose container died with the daemon is closed', async (t) => {
  const lost = await world.lease({ id: 'lostcontainer' })
  const { instance } = await daemon.client.host()
  const [container] = await world.engine.listContainers({ [instanceLabel]: instance })
  await daemon.kill()
  await world.engine.removeContainer(container?.id ?? '')
  await daemon.start()
  await consistent(t)
  t.match(JSON.parse(await readFile(path.join(journal('closed'), `${lost}.json`), 'utf8')), {
    state: 'closed',
    reason: /could not be adopted/,
  })
  t.ok((await Array.fromAsync(daemon.client.audit(lost))).length > 0, 'its audit can still be read')
})
