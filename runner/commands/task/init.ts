/** `closedbook task init DIR`: a small whole task to start from. */
import { Option, type Command } from 'commander'
import { initTask, type InitOptions } from '../../task/init/init.ts'
import { note, print, printJson } from '../context.ts'

export function addTaskInit(task: Command): void {
  task
    .command('init')
    .description('write a small whole task to start from: it lints clean and qualifies')
    .argument('<dir>', 'a directory that is empty or not there yet')
    .option('--area <area>', 'what the task is about, e.g. cache-systems', 'public-api')
    .addOption(
      new Option('--hardware <class>', 'hosts it runs on').choices(['cpu', 'h100']).default('cpu'),
    )
    .option('--json', 'print JSON')
    .action(async (dir: string, options: InitOptions, command: Command) => {
      const files = await initTask(dir, options)
      if (command.optsWithGlobals<{ json?: boolean }>().json === true)
        return printJson({ dir, files })
      for (const file of files) print(`${dir}/${file}`)
      note(
        `next: replace the project, the tests and the solution, then\n  closedbook task lint ${dir}\n  closedbook qualify ${dir}`,
      )
    })
}
