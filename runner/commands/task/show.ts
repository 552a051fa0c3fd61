/** `closedbook task show DIR`: what the runner understands of a task. Needs no daemon; with one it knows the image too. */
import type { Command } from 'commander'
import { loadForLooking } from '../../task/lenient.ts'
import { taskFacts } from '../../task/show/facts.ts'
import { renderFacts } from '../../task/show/render.ts'
import { ClosedbookError } from '../../../daemon/protocol/errors.ts'
import { print, printJson, withContext } from '../context.ts'

export function addTaskShow(task: Command): void {
  task
    .command('show')
    .description('what the runner understands of a task, and what is known about it')
    .argument('<dir>', 'the task directory')
    .option('--json', 'print JSON')
    .action(async (dir: string, _options: object, command: Command) =>
      withContext(command, async ({ client, json, signal }) => {
        const looked = await loadForLooking(dir)
        if (looked.task === null) throw looked.refused
        const { task: loaded, refused } = looked
        const { image } = loaded
        const id =
          image.kind === 'dockerfile' || image.loose !== undefined
            ? null
            : await client
                .inspectImage(image.reference, { signal })
                .then((found) => found.id)
                .catch((error: unknown) => {
                  if (error instanceof ClosedbookError) return null
                  throw error
                })
        const notes = refused === null ? [] : [`a run refuses it: ${refused.message}`]
        const known = await taskFacts(loaded, id)
        const facts = { ...known, notes: [...known.notes, ...notes] }
        if (json) return printJson(facts)
        print(renderFacts(facts))
      }),
    )
}
