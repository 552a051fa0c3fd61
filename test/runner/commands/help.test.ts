/** What `--help` of every command says, and that the examples in it are good. */
import t from 'tap'
import { examples, wordsOf } from '../../../runner/commands/help.ts'
import { build, withNested } from '../../../runner/program.ts'

const program = build()
const all = withNested(program).filter((command) => command !== program)
// What only groups others does nothing by itself.
const acting = all.filter(
  (command) => command.commands.length === 0 || command.registeredArguments.length > 0,
)

void t.test('every command has examples, and each of their options and words is known', (t) => {
  const known = new Set(acting.map((command) => wordsOf(command).join(' ')))
  t.strictSame(
    Object.keys(examples).filter((words) => !known.has(words)),
    [],
  )
  for (const command of acting) {
    const name = wordsOf(command).join(' ')
    const lines = examples[name] ?? []
    t.ok(lines.length > 0, name)
    const flags = new Set(
      [...command.options, ...program.options].flatMap(({ short, long }) => [short, long]),
    )
    for (const line of lines) {
      t.match(line, new RegExp(`\\bclosedbook ${name}\\b`))
      const [own = ''] = line.split(' -- ')
      for (const word of own.split(' ').filter((one) => /^--?[a-z]/.test(one)))
        t.ok(flags.has(word), `${word} in ${line}`)
    }
  }
  t.end()
})

void t.test('help shows the options of all commands, and no empty list as a default', (t) => {
  for (const command of acting) {
    const help = command.helpInformation()
    t.match(help, /Global Options:\n[^]*--state-dir/, wordsOf(command).join(' '))
    t.notMatch(help, /default: (\[\]|\{\})/, wordsOf(command).join(' '))
  }
  t.end()
})
