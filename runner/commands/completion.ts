/** `closedbook completion bash|zsh|fish`: a script that completes verbs and options, made from the commands themselves. */
import { Argument, type Command } from 'commander'
import { print } from './context.ts'

interface Words {
  /** Verbs that lead here, such as `lease open`. */
  readonly path: string
  readonly verbs: readonly { readonly name: string; readonly about: string }[]
  readonly options: readonly { readonly name: string; readonly about: string }[]
}

const shells = ['bash', 'zsh', 'fish'] as const

export function addCompletion(program: Command): void {
  program
    .command('completion')
    .description('print a script for your shell that completes commands and options')
    .addArgument(new Argument('<shell>').choices(shells))
    .addHelpText('after', '\nbash: source <(closedbook completion bash)')
    .action((shell: (typeof shells)[number]) => print(scripts[shell](wordsOf(program, ''))))
}

function wordsOf(command: Command, path: string): Words[] {
  const help = command.createHelp()
  const verbs = help.visibleCommands(command)
  const own: Words = {
    path,
    verbs: verbs.map((verb) => ({
      name: verb.name(),
      about: verb.summary() || verb.description(),
    })),
    options: help
      .visibleOptions(command)
      .flatMap(({ long, description }) =>
        long === undefined || long === null ? [] : [{ name: long, about: description }],
      ),
  }
  const below = verbs.flatMap((verb) =>
    verb.name() === 'help'
      ? []
      : wordsOf(verb, path === '' ? verb.name() : `${path} ${verb.name()}`),
  )
  return [own, ...below]
}

const names = ({ verbs, options }: Words): string =>
  [...verbs, ...options].map(({ name }) => name).join(' ')

/** The longest run of verbs that is known decides; files are offered where nothing else fits. */
const bash = (all: readonly Words[]): string => `_closedbook() {
  local current=\${COMP_WORDS[COMP_CWORD]} path= word next
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in -*) continue ;; esac
    next=\${path:+$path }$word
    case $next in
${all
  .filter(({ path }) => path !== '')
  .map(({ path }) => `    '${path}') path=$next ;;`)
  .join('\n')}
    esac
  done
  case $path in
${all.map((words) => `  '${words.path}') COMPREPLY=($(compgen -W '${names(words)}' -- "$current")) ;;`).join('\n')}
  esac
}
complete -o default -F _closedbook closedbook`

const zsh = (all: readonly Words[]): string => `#compdef closedbook
autoload -U +X bashcompinit && bashcompinit
${bash(all)}`

const quote = (text: string): string => `'${text.replaceAll("'", "\\'")}'`

const fish = (all: readonly Words[]): string =>
  all
    .flatMap(({ path, verbs, options }) => {
      const parts = path === '' ? [] : path.split(' ')
      const seen = parts.map((part) => `__fish_seen_subcommand_from ${part}`)
      const none =
        verbs.length > 0
          ? [`not __fish_seen_subcommand_from ${verbs.map(({ name }) => name).join(' ')}`]
          : []
      const at = [...seen, ...none].join('; and ')
      return [
        ...verbs.map(
          ({ name, about }) =>
            `complete -c closedbook -n ${quote(at)} -a ${name} -d ${quote(about)}`,
        ),
        ...options.map(
          ({ name, about }) =>
            `complete -c closedbook -n ${quote(seen.join('; and ') || 'true')} -l ${name.replace(/^--/, '')} -d ${quote(about)}`,
        ),
      ]
    })
    .join('\n')

const scripts = { bash, zsh, fish } as const
