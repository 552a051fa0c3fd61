/** `closedbook policy check|explain|hash`: what a policy document allows, without a daemon or a network. */
import { readFile } from 'node:fs/promises'
import type { Command } from 'commander'
import { explain, explainForms, type Explanation } from '../../policy/explain.ts'
import { policyHash } from '../../policy/hash.ts'
import { tunnelHosts } from '../../policy/hugging-face-hosts.ts'
import type { Policy } from '../../policy/policy.ts'
import { messageOf, RunnerError } from '../errors.ts'
import { exitCode } from '../exit-codes.ts'
import { checkPolicyFile, readPolicyFile } from '../policy-file.ts'
import { plainLine } from '../report/terminal.ts'
import { note, print, printJson, type GlobalOptions } from './context.ts'

export function addPolicy(program: Command): void {
  const policy = program
    .command('policy')
    .description('check a policy document, ask what it says, and name it by its hash')
  const wantsJson = (command: Command): boolean =>
    command.optsWithGlobals<GlobalOptions>().json === true

  policy
    .command('check')
    .description('whether a document is a policy; says what to write where it is not (status 78)')
    .argument('<file>', 'policy document (YAML or JSON)')
    .option('--json', 'print JSON')
    .action(async (file: string, _options: object, command: Command) => {
      const result = await checkPolicyFile(file)
      if (!result.ok) {
        process.exitCode = exitCode.config
        if (wantsJson(command)) return printJson({ valid: false, issues: result.issues })
        for (const { path, message } of result.issues)
          note(plainLine(`${file}: ${path === '' ? '' : `${path}: `}${message}`))
        return
      }
      const hash = policyHash(result.policy)
      const notes = notesOf(result.policy)
      if (wantsJson(command)) return printJson({ valid: true, hash, notes })
      print(`valid  ${hash}`)
      for (const text of notes) print(`· ${text}`)
    })

  policy
    .command('explain')
    .description(
      'what a policy says to one request, its reason and its rule; asks nobody and sends nothing',
    )
    .argument('<file>', 'policy document (YAML or JSON)')
    .argument('<request...>', explainForms.join(' · '))
    .option('--model <name>', "the lease's model; default: the one that the body names")
    .option('--json', 'print JSON')
    .addHelpText('after', '\nThe status is 0 whether the request would be allowed or denied.')
    .action(
      async (file: string, words: string[], { model }: { model?: string }, command: Command) => {
        const document = await readPolicyFile(file)
        const { text, body } = await splitBody(words)
        const result = explain(document, text, {
          ...(body === undefined ? {} : { body }),
          ...(model === undefined ? {} : { model }),
        })
        if (!result.ok) throw new RunnerError('usage', 'operator', result.message)
        const { ok: _, ...explanation } = result
        if (wantsJson(command)) printJson({ ...explanation, policy: policyHash(document) })
        else for (const line of explanationLines(explanation)) print(plainLine(line))
      },
    )

  policy
    .command('hash')
    .description('the name of a policy in results and audit events: SHA-256 of its canonical JSON')
    .argument('<file>', 'policy document (YAML or JSON)')
    .option('--json', 'print JSON')
    .action(async (file: string, _options: object, command: Command) => {
      const hash = policyHash(await readPolicyFile(file))
      if (wantsJson(command)) printJson({ hash })
      else print(hash)
    })
}

/** The fourth word of a model request names a file with its body. */
async function splitBody(words: readonly string[]): Promise<{ text: string; body?: unknown }> {
  const all = words.join(' ').trim().split(/ +/)
  const [kind = '', , , file] = all
  if (kind.toLowerCase() !== 'model' || file === undefined || all.length > 4)
    return { text: all.join(' ') }
  try {
    return { text: all.slice(0, 3).join(' '), body: JSON.parse(await readFile(file, 'utf8')) }
  } catch (error) {
    throw new RunnerError(
      'usage',
      'operator',
      `cannot read the body of the request from ${file}: ${messageOf(error)}`,
    )
  }
}

function explanationLines({ request, action, reason, rule, message, then }: Explanation): string[] {
  return [
    `${action}  ${reason}`,
    `request  ${request}`,
    `rule     ${rule}`,
    ...(message === null ? [] : [`in words ${message}`]),
    ...then.map((text) => `then     ${text}`),
  ]
}

/** What is well formed and still worth a second look. */
function notesOf({ connect, huggingface }: Policy): string[] {
  const notes: string[] = []
  for (const [name, list] of Object.entries({ allow: connect.allow, deny: connect.deny }))
    for (const host of new Set(list.filter((one, index) => list.indexOf(one) !== index)))
      notes.push(`${host} stands in connect.${name} twice`)
  for (const host of connect.allow)
    if (connect.deny.includes(host)) notes.push(`${host} is allowed and denied: it is denied`)
  if (connect.allow.length > 0 && !connect.ports.includes(443))
    notes.push('port 443 is not among connect.ports: no TLS gets out')
  const hub = connect.allow.filter((host) => tunnelHosts.includes(host.replace(/^\*\./, '')))
  if (hub.length > 0 || huggingface?.tunnel === true)
    notes.push(
      `a tunnel to the Hub (${hub[0] ?? 'huggingface.tunnel'}) opens all of it: no path is seen, every repository can be read`,
    )
  for (const { repo, revision } of huggingface?.repos ?? [])
    if (!/^[0-9a-f]{40}$/.test(revision))
      notes.push(`${repo}: "${revision}" moves; each lease freezes it anew, a commit would not`)
  return notes
}
