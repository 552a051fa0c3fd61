/** attach, shell and replay under a real terminal: raw mode, keys, sizes, and the terminal as it was afterwards. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import t from 'tap'
import { ptyWorld, until } from '../../support/pty.ts'
import { Terminal } from '../../support/terminal.ts'

const world = await ptyWorld({}, 'trial-on-a-terminal')
const { daemon, lease, open } = world
t.teardown(() => world[Symbol.asyncDispose]())

const terminalOf = (args: string, size: { cols?: number; rows?: number } = {}): Terminal =>
  new Terminal(args, { env: { CLOSEDBOOK_STATE_DIR: daemon.stateDir }, ...size })

t.test('attach looks on: it types nothing, follows, and leaves by its keys', async (t) => {
  const view = await open('echo ready; read x; echo "got $x"; exit 5')
  await using terminal = terminalOf(`attach trial-on --pty ${view.pty.slice(0, 6)}`)
  await terminal.until(/read-only; Ctrl-\] then \. leaves/)
  await terminal.until(/ready/)
  terminal.pty.write('typed\r')
  terminal.pty.write('\u001D.')
  await terminal.until(/left; it goes on/)
  t.ok(await terminal.restored())
  t.match(terminal.text, /status 0/)
  const found = (await daemon.client.ptys(lease)).find(({ pty }) => pty === view.pty)
  t.match(found, { state: 'running', personInput: false })
  t.notOk((await daemon.client.lease(lease)).assisted, 'looking on is no help')

  await using second = terminalOf(`attach ${lease} --control --detach-keys ctrl-p,ctrl-q`, {
    cols: 80,
    rows: 20,
  })
  await second.until(/you type; Ctrl-p then Ctrl-q leaves/)
  await second.until(/the session is 120x40, your window 80x20/)
  second.pty.write('\u001D.me\r')
  await second.until(/status 5/)
  t.match(second.text.replaceAll('\u001D', ''), /got \.me/, 'other keys than its own')
  t.match(second.text, /the program ended \(exit 5\)/)
  t.ok(await second.restored())
  await until('it is told', async () => (await daemon.client.lease(lease)).assisted)
})

t.test(
  "a shell follows its window, ends with its program, and is told as a person's",
  async (t) => {
    await using terminal = terminalOf(`shell ${lease} -- sh`, { cols: 91, rows: 31 })
    await terminal.until(/assisted: recorded, never scored/)
    await terminal.until(/[#$] $/)
    terminal.pty.write('stty size; echo $((40+2))\r')
    await terminal.until(/31 91\s+42/)
    terminal.pty.resize(77, 22)
    await until('the size is there', async () =>
      (await daemon.client.ptys(lease)).some(({ cols, rows }) => cols === 77 && rows === 22),
    )
    terminal.pty.write(
      'printf "\\033[?1049h\\033[?1000h\\033[?25lin full screen"; sleep 0.2; kill -9 $$\r',
    )
    await terminal.until(/status 137/)
    t.ok(await terminal.restored())
    for (const mode of ['?1049l', '?1000l', '?25h'])
      t.ok(terminal.text.includes(`\u001B[${mode}`), mode)
    t.match((await daemon.client.ptys(lease)).at(-1), {
      role: 'person',
      state: 'ended',
      exit: { signal: 'SIGKILL' },
    })
    const refused = await daemon.cli(['shell', lease])
    t.match(refused, { code: 2, stderr: /needs a terminal/ })
    const readOnly = await daemon.cli(['shell', lease, '--read-only'])
    t.match(readOnly, { stderr: /closedbook attach. looks on/ })
  },
)

t.test('a terminal is put back on every way out', async (t) => {
  const view = await open('printf "\\033[?1049h\\033[?2004hrunning"; sleep 1000')
  for (const [signal, status] of [
    ['SIGTERM', 130],
    ['SIGHUP', 130],
    ['SIGINT', 130],
  ] as const) {
    await using terminal = terminalOf(`attach ${lease} --pty ${view.pty}`)
    await terminal.until(/running/)
    process.kill(await terminal.command(), signal)
    await terminal.until(/status \d+/)
    t.ok(await terminal.restored(), signal)
    t.match(terminal.text, new RegExp(`status ${status}`), signal)
    t.ok(terminal.text.includes('\u001B[?1049l') && terminal.text.includes('\u001B[?2004l'), signal)
  }
  await using terminal = terminalOf(`attach ${lease} --pty ${view.pty}`)
  await terminal.until(/running/)
  await daemon.kill()
  await terminal.until(/connection lost at byte \d+/)
  await daemon.start()
  await terminal.until(/connected again, resumed at byte \d+/)
  await daemon.client.closePty(lease, view.pty)
  await terminal.until(/the program ended \(by SIG\w+, killed\)/)
  t.ok(await terminal.restored())
})

t.test('who waits for a daemon that hangs can leave', async (t) => {
  process.kill(daemon.pid, 'SIGSTOP')
  try {
    await using terminal = terminalOf(`attach ${lease}`)
    await terminal.until(/before/)
    await until('it hears signals', async () => {
      const status = await readFile(`/proc/${await terminal.command()}/status`, 'utf8').catch(
        () => '',
      )
      const caught = BigInt(`0x${/^SigCgt:\s+([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`)
      // SIGHUP, the last of those that it listens to
      return (caught & 1n) === 1n
    })
    process.kill(await terminal.command(), 'SIGINT')
    await terminal.until(/status \d+/)
    t.match(terminal.text, /interrupted by SIGINT\s+status 130/)
  } finally {
    process.kill(daemon.pid, 'SIGCONT')
  }
})

t.test(
  'without a terminal attach is a log, and replay plays or exports what was recorded',
  async (t) => {
    const view = await open('printf "\\033[31mred\\033[0m\\033[6n\\n"; echo second; exit 3', {
      label: 'for replay',
      hold: true,
    })
    const followed = await daemon.cli(['attach', lease, '--pty', view.pty])
    t.match(followed, { code: 3, stdout: 'red\nsecond\n' })
    const table: [form: string, says: RegExp][] = [
      ['v2', /^\{"version":2,.*\n\[[\d.]+, "o", "\\u001b\[31mred/],
      ['v3', /^\{"version":3,"term":\{"cols":120,"rows":40/],
      ['txt', /^red\nsecond\n$/],
      ['raw', /^.\[31mred.\[0m.\[6n\r\n/],
    ]
    for (const [form, says] of table) {
      const { code, stdout } = await daemon.cli([
        'replay',
        lease,
        '--pty',
        view.pty,
        '--export',
        form,
      ])
      t.equal(code, 0, form)
      t.match(stdout, says, form)
    }
    const directory = await mkdtemp(path.join(os.tmpdir(), 'cbt-'))
    t.teardown(() => rm(directory, { recursive: true }))
    const file = path.join(directory, 'torn.cast')
    const { stdout } = await daemon.cli(['replay', lease, '--pty', view.pty, '--export', 'v2'])
    await writeFile(file, stdout.slice(0, -6))
    await using terminal = terminalOf(`replay ${file} --speed 50`)
    await terminal.until(/the last line was torn/)
    await terminal.until(/second[\s\S]*status 0/)
    t.ok(await terminal.restored())
    t.notOk(terminal.text.includes('\u001B[6n'), 'no query reaches the terminal')
    const none = await daemon.cli(['replay', 'nosuch'])
    t.match(none, { code: 65, stderr: /no recording/ })
    const ambiguous = await daemon.cli(['attach', 'zz'])
    t.match(ambiguous, { code: 65, stderr: /no open sandbox belongs to/ })
  },
)
