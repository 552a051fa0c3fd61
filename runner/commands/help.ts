/** What `--help` says beyond commander's own: examples for each command, and the options that all commands have. */
import { Help, type Command, type Option } from 'commander'

/** By the words of the command; each is a whole line for a shell. A test holds every option in them against the command. */
export const examples: Readonly<Record<string, readonly string[]>> = {
  up: ['closedbook up', 'closedbook up --json'],
  down: ['closedbook down'],
  daemon: ['closedbook daemon --config /etc/closedbook/daemon.yaml'],
  doctor: ['closedbook doctor'],
  images: ['closedbook images'],
  plan: ['closedbook plan job.yaml', 'closedbook plan --task DIR --config gpt.yaml --runs 3'],
  run: [
    'closedbook run --task DIR --config gpt.yaml --runs 3',
    'closedbook run job.yaml --concurrency 8',
    'closedbook run --task DIR --harness oracle',
  ],
  resume: ['closedbook resume', 'closedbook resume JOB --retry-void'],
  cancel: ['closedbook cancel JOB'],
  worker: ['closedbook worker --slots 4', 'closedbook worker --until-idle'],
  ps: ['closedbook ps', 'closedbook ps latest'],
  logs: ['closedbook logs TRIAL', 'closedbook logs -f TRIAL'],
  report: [
    'closedbook report latest',
    'closedbook report JOB -o report.html',
    'closedbook report JOB --format csv > trials.csv',
  ],
  compare: ['closedbook compare JOB:one JOB:other'],
  regrade: ['closedbook regrade JOB'],
  'task init': ['closedbook task init DIR'],
  'task lint': ['closedbook task lint DIR'],
  'task import': ['closedbook task import HARBOR_DIR --out DIR --area api --source maintainer:REF'],
  'task show': ['closedbook task show DIR'],
  qualify: ['closedbook qualify DIR --repeats 3'],
  probe: ['closedbook probe DIR'],
  review: ['closedbook review DIR --include --by ME --reason WHY', 'closedbook review DIR'],
  'lease open': [
    'closedbook lease open --image closedbook/base:trixie',
    'closedbook lease open --image closedbook/base:trixie --policy policy.yaml',
  ],
  'lease list': ['closedbook lease list'],
  'lease close': ['closedbook lease close LEASE'],
  exec: ["closedbook exec LEASE -- python3 -c 'print(1)'"],
  audit: ['closedbook audit TRIAL --denied', 'closedbook audit LEASE --json --canaries'],
  'audit tail': ['closedbook audit tail -f TRIAL'],
  'audit query': [
    "closedbook audit query --host '*.example.com'",
    'closedbook audit query --canaries --json > audit.jsonl',
  ],
  'audit summary': ['closedbook audit summary TRIAL', 'closedbook audit summary --job latest'],
  'audit verify': ['closedbook audit verify TRIAL', 'closedbook audit verify egress.jsonl'],
  hosts: ['closedbook hosts'],
  gpus: ['closedbook gpus'],
  attach: ['closedbook attach TRIAL', 'closedbook attach TRIAL --control'],
  shell: ['closedbook shell TRIAL'],
  replay: ['closedbook replay TRIAL --speed 4', 'closedbook replay TRIAL --export v3 > trial.cast'],
  'token create': ['closedbook token create --role view --name board'],
  'token list': ['closedbook token list'],
  'token revoke': ['closedbook token revoke TOKEN'],
  dashboard: ['closedbook dashboard'],
  'policy check': ['closedbook policy check policy.yaml'],
  'policy explain': ['closedbook policy explain policy.yaml https://docs.example.com/'],
  'policy hash': ['closedbook policy hash policy.yaml'],
  selftest: ['closedbook selftest'],
  completion: ['source <(closedbook completion bash)'],
}

const nothing = / *\(default: (?:\[\]|\{\})\)$/

export function improveHelp(program: Command, commands: readonly Command[]): void {
  for (const command of commands) {
    if (command === program) continue
    const mine = examples[wordsOf(command).join(' ')] ?? []
    command.configureHelp({
      showGlobalOptions: true,
      // An option without a default starts with an empty list or table.
      optionDescription: (option: Option) =>
        new Help().optionDescription(option).replace(nothing, ''),
    })
    if (mine.length > 0)
      command.addHelpText(
        'after',
        () => `\nExamples:\n${mine.map((line) => `  ${line}`).join('\n')}`,
      )
  }
}

/** Without the program's own name. */
export const wordsOf = (command: Command): string[] =>
  command.parent === null ? [] : [...wordsOf(command.parent), command.name()]
