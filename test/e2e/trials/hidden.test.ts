/**
 * While an agent works, no byte of the hidden tests or of the solution is within its view: searched from inside by a
 * script with root's rights, and from outside over the whole file system as the engine exports it.
 */
import t from 'tap'
import { readFile } from 'node:fs/promises'
import { Scratch } from '../../runner/support/scratch.ts'
import { TestDaemon } from '../../support/daemon.ts'
import { testEngine } from '../../support/engine.ts'
import {
  endOf,
  executionDirs,
  jobFile,
  openLeases,
  readRun,
  tally,
  until,
  whileRunning,
} from './setup.ts'
import path from 'node:path'

const engine = await testEngine()
t.teardown(() => engine.dispose())

/** Words that stand in every hidden test, and in the solution. */
const words = ['quincunx-7731', 'zephyrine-4402']
/** What the script looks for to show that it would have found them. */
const bait = 'gallimaufry-1173'

/** Reads every file, name, link, mount and process that it can, and says where a word is. */
const search = `
set -eu
printf %s "gallimaufry" >/bait && printf %s "-1173" >>/bait
exec python3 - <<'END'
import os, stat, sys
words = [a.encode() + b"-" + b.encode() for a, b in (("quincunx", "7731"), ("zephyrine", "4402"), ("gallimaufry", "1173"))]
own = str(os.getpid())
found = set()

def look(where, data):
    for word in words:
        if word in data and not where.startswith("/closedbook-script/"):
            found.add(where + " has " + word.decode().split("-")[0])

def read(path):
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            look(path, os.fsencode(os.readlink(path)))
        elif stat.S_ISREG(mode):
            rest = b""
            with open(path, "rb") as file:
                while True:
                    data = file.read(1 << 20)
                    if not data:
                        break
                    look(path, rest + data)
                    rest = data[-32:]
    except OSError:
        pass

for top, directories, files in os.walk("/"):
    if top == "/":
        directories[:] = [name for name in directories if name not in ("proc", "sys")]
    for name in directories + files:
        look(top, os.fsencode(name))
        read(os.path.join(top, name))
for pid in os.listdir("/proc"):
    if pid.isdigit() and pid != own:
        for name in ("environ", "cmdline", "mountinfo", "mounts", "maps", "cgroup", "status"):
            try:
                look(f"/proc/{pid}/{name}", open(f"/proc/{pid}/{name}", "rb").read())
            except OSError:
                pass
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                read(f"/proc/{pid}/fd/{fd}")
        except OSError:
            pass
look("environment", repr(dict(os.environb)).encode())
mounts = sorted(line.split()[4] for line in open("/proc/self/mountinfo"))
print("FOUND " + " | ".join(sorted(found)))
print("MOUNTS " + " ".join(mounts))
print("ROOT " + " ".join(sorted(os.listdir("/"))), flush=True)
import time
while not os.path.exists("/go-on"):
    time.sleep(0.05)
END
`

t.test(
  'no byte of the hidden tests or the solution is in the sandbox while an agent works',
  async (t) => {
    await using daemon = await TestDaemon.open(engine.socketPath)
    await using scratch = await Scratch.make()
    for (const file of ['tests/functional/test_tally.py', 'tests/regression/test_words.py'])
      t.match(await readFile(path.join(tally, file), 'utf8'), words[0], `${file} has its word`)
    t.match(await readFile(path.join(tally, 'solution/solve.sh'), 'utf8'), words[1])

    const job = await jobFile(scratch, [{ name: 'search', script: search }])
    const running = daemon.cli(['run', job, '--json'])
    const lease = await whileRunning(
      running,
      until('the script has laid its bait', async () => {
        const open = (await openLeases(daemon.stateDir)).find(({ network }) => network === 'sealed')
        if (open?.state !== 'ready') return null
        const { lease: id } = open
        return daemon.client.readArchive(id, '/bait').then(
          async ({ tar }) => ((await wordsIn(tar, [bait])).length === 1 ? id : null),
          () => null,
        )
      }),
    )

    const { tar } = await daemon.client.readArchive(lease, '/')
    const seen = await wordsIn(tar, [...words, bait])
    t.strictSame(seen, [bait], 'seen from outside: the bait, so the search works, and nothing else')
    // Labelled, as the runner's own commands are: without, it would be a person's, and the trial assisted.
    await daemon.client.exec(lease, { argv: ['touch', '/go-on'], label: 'test' })

    const { results, jobDir } = await readRun(daemon, await running)
    const [result] = results
    if (result === undefined) throw new Error('no result')
    t.match(endOf(result), /^failed agent tests_failed: functional 0 of 3, regression 2 of 2/)
    const [execution] = await executionDirs(jobDir, result.trial)
    const log = await readFile(path.join(execution ?? '', 'harness.log'), 'utf8')
    const lines = new Map(log.split('\n').map((line) => [line.split(' ')[0], line]))
    t.equal(lines.get('FOUND'), 'FOUND /bait has gallimaufry', 'seen from inside')
    const mounts = (lines.get('MOUNTS') ?? '').split(' ').slice(1)
    const unknown = mounts.filter(
      (mount) =>
        !/^\/$|^\/(proc|sys|dev|etc\/(hosts|hostname|resolv\.conf)|\.closedbook|closedbook-script)(\/|$)/.test(
          mount,
        ),
    )
    t.strictSame(unknown, [], 'nothing else is mounted')
    t.notMatch(lines.get('ROOT'), /\b(tests|solution|results|logs)\b/)
  },
)

async function wordsIn(
  stream: AsyncIterable<Uint8Array>,
  wanted: readonly string[],
): Promise<string[]> {
  const found = new Set<string>()
  let rest = Buffer.alloc(0)
  for await (const chunk of stream) {
    const data = Buffer.concat([rest, chunk])
    for (const word of wanted) if (data.includes(word)) found.add(word)
    rest = data.subarray(-32)
  }
  return [...found].sort()
}
