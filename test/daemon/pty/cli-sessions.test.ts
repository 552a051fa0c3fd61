/** PTY sessions by `docker exec -it` on a terminal of the host's: the suite of both backends, and what is this one's. */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import t from 'tap'
import { EndMark } from '../../../daemon/pty/end-mark.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { ptyWorld, until } from '../../support/pty.ts'
import { checkSessions } from './session-suite.ts'

const world = await ptyWorld({ pty: { backend: 'cli' } })
const { daemon, lease, open, watch } = world
t.teardown(() => world[Symbol.asyncDispose]())

checkSessions(t, world, { rounds: 3, withRefusedUser: false })

/** Processes of this host that carry `docker exec` and this text among their arguments; the command itself apart. */
function commandsWith(text: string): { all: number[]; docker: number | undefined } {
  const lines = execFileSync('ps', ['-eo', 'pid=,args='], { encoding: 'utf8' })
    .split('\n')
    .filter((line) => /\bexec -i -t\b/.test(line) && line.includes(text))
  const pidOf = (line: string): number => Number.parseInt(line, 10)
  const docker = lines.find((line) => /^\s*\d+ docker /.test(line))
  return { all: lines.map(pidOf), docker: docker === undefined ? undefined : pidOf(docker) }
}

void t.test('the command goes with its session, and its arguments tell no value', async (t) => {
  const view = await open('echo $GREETING $HOME; read x', {
    env: { GREETING: 'two\nlines', HOME: '/work' },
  })
  const seen = watch(view, { mode: 'control' })
  await seen.until(/two lines \/work/)
  const { all, docker } = commandsWith('read x')
  t.ok(docker)
  const arguments_ = all.map((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8')).join('')
  t.notMatch(arguments_, /two/)
  t.match(arguments_, /GREETING/)
  await seen.attachment.write(Buffer.from('\r'))
  t.match(await seen.ended, { exit: { code: 0 } })
  await until('the commands are gone', () => commandsWith('read x').all.length === 0)
})

void t.test(
  'a command that dies before its program takes it along, and nobody guesses',
  async (t) => {
    const out: Uint8Array[] = []
    const seen = watch(await open('echo up; sleep 1001'))
    await seen.until(/up/)
    const { docker } = commandsWith('sleep 1001')
    if (docker === undefined) throw new Error('no command')
    process.kill(docker, 'SIGKILL')
    t.match(await seen.ended, { exit: 'unknown', cause: 'engine_lost' })
    const listed = await daemon.client.exec(
      lease,
      { argv: ['ps'] },
      { onStdout: (_at, bytes) => void out.push(bytes) },
    )
    t.match(listed.exit, { code: 0 })
    t.notMatch(Buffer.concat(out).toString(), /sleep 1001/)
  },
)

void t.test('a daemon whose command line does not work says so, and does not start', async (t) => {
  await t.rejects(
    TestDaemon.open(daemon.engineSocket, {
      pty: { backend: 'cli', command: ['/nowhere/docker'] },
    }),
    /pty\.backend is cli, but `\/nowhere\/docker version` failed/,
  )
})

void t.test(
  'the mark of the end is found wherever it is cut, and what looks like it is output',
  (t) => {
    const mark = Buffer.from('\u00FFname 137 it was so\u00FF', 'latin1')
    const said = Buffer.from('\u00FF\u00FFnam\u00FFnamx \u00FF', 'latin1')
    for (let cut = 0; cut <= said.length + mark.length; cut += 1) {
      const all = Buffer.concat([said, mark])
      const end = new EndMark('name')
      const [a, b] = [end.push(all.subarray(0, cut)), end.push(all.subarray(cut))]
      t.strictSame(a.end ?? b.end, { status: 137, words: 'it was so' })
      t.ok(Buffer.concat([a.output, b.output]).equals(said), `cut at ${cut}`)
    }
    t.end()
  },
)
