/**
 * Prints docs/configuration.md: every setting that a person can write, from the zod schemas that read it. The page is
 * the same on every machine; a test checks that the committed one is current.
 */
import { schemaRows, type Row } from './json-schema.ts'
import { daemonConfigSchema } from '../daemon/config.ts'
import { leaseRequestSchema } from '../daemon/protocol/lease.ts'
import { policySchema } from '../policy/policy.ts'
import { runnerConfigSchema } from '../runner/config.ts'
import { configurationSchema } from '../runner/job/configuration.ts'
import { priceTableSchema } from '../runner/job/price-table.ts'
import { jobFileSchema } from '../runner/job/job-file.ts'
import { closedbookSectionSchema } from '../runner/task/schema.ts'

interface Section {
  readonly title: string
  readonly text: readonly string[]
  readonly rows: readonly Row[]
}

const ownState = '`/var/lib/closedbook` for root, else `~/.local/state/closedbook`'

const sections: readonly Section[] = [
  {
    title: 'Daemon',
    text: [
      'Read by `closedbookd`, `closedbook daemon --config FILE` and `closedbook up --daemon-config FILE` as YAML; without a',
      'file named, `daemon.yaml` in the state directory is read where there is one. Then come the variables',
      '`CLOSEDBOOK_STATE_DIR`, `CLOSEDBOOK_SOCKET`, `CLOSEDBOOK_ENGINE_SOCKET` and `CLOSEDBOOK_LOG_LEVEL`, then flags.',
    ],
    rows: schemaRows(daemonConfigSchema, { stateDir: ownState }),
  },
  {
    title: 'Runner',
    text: [
      'Read by every other command: the file named by `--runner-config` or `CLOSEDBOOK_CONFIG`, then `CLOSEDBOOK_STATE_DIR`,',
      '`CLOSEDBOOK_SOCKET`, `CLOSEDBOOK_JOBS_DIR`, `DATABASE_URL` (or `CLOSEDBOOK_DATABASE_URL`), `CLOSEDBOOK_HEARTBEAT_SECONDS` and',
      '`CLOSEDBOOK_REQUEST_TIMEOUT_MS`, then `--state-dir`, `--socket` and `--jobs-dir`. Nothing has to be set.',
    ],
    rows: schemaRows(runnerConfigSchema, {
      stateDir: ownState,
      socket: '`daemon.sock` in `stateDir`',
      jobsDir: '`jobs` in `stateDir`',
    }),
  },
  {
    title: 'Configuration of an agent',
    text: [
      'What a row of a results table stands for: model, harness and settings. `run --config FILE`, or named by a job file.',
      'Paths in it are relative to the file. A key is named, never written down.',
    ],
    rows: schemaRows(configurationSchema),
  },
  {
    title: 'Table of prices',
    text: [
      'What models cost on one day: `model.prices` of a configuration. The price is copied into the plan, so a table that',
      'changes later changes no job. `estimate` marks what a host of open weights would have taken, where nobody was paid.',
    ],
    rows: schemaRows(priceTableSchema),
  },
  {
    title: 'Job file',
    text: [
      'Tasks x configurations x runs: `closedbook run JOB.yaml`; [jobs.md](jobs.md) explains it. Paths are relative to the file.',
    ],
    rows: schemaRows(jobFileSchema),
  },
  {
    title: 'Policy',
    text: ['What a sandbox may reach; [policy.md](policy.md) explains it.'],
    rows: schemaRows(policySchema),
  },
  {
    title: 'Task: section `[closedbook]` of `task.toml`',
    text: ["Beside Harbor's own keys; [task-format.md](task-format.md) explains both."],
    rows: schemaRows(closedbookSectionSchema),
  },
  {
    title: 'Lease request',
    text: ['The body of `POST /v1/leases`; [protocol.md](protocol.md) explains the API.'],
    rows: schemaRows(leaseRequestSchema),
  },
]

const columns = ['key', 'value', 'default', 'meaning'] as const

function table(rows: readonly Row[]): string {
  const cells = rows.map(({ key, type, fallback, meaning }) =>
    [`\`${key}\``, type, fallback, meaning].map((text) =>
      text.replaceAll('|', '\\|').replaceAll('<', '\\<'),
    ),
  )
  const widths = columns.map((name, index) =>
    Math.max(name.length, ...cells.map((row) => row[index]?.length ?? 0)),
  )
  const line = (row: readonly string[]): string =>
    `| ${row.map((text, index) => text.padEnd(widths[index] ?? 0)).join(' | ')} |`
  return [line(columns), line(widths.map((width) => '-'.repeat(width))), ...cells.map(line)].join(
    '\n',
  )
}

const head = `# Configuration

Generated from the schemas by \`npm run docs\`; edit \`.describe()\` there, not this page.

Every document is strict: an unknown key, a wrong type or a value out of range ends the command with status 78 (65 for a
task) and the path of the value. A key without a default may be left out unless it is marked as required.
`

const page = [
  head,
  ...sections.map(
    ({ title, text, rows }) => `## ${title}\n\n${text.join('\n')}\n\n${table(rows)}\n`,
  ),
]
process.stdout.write(page.join('\n'))
