/** `closedbook images`: builds what is missing of our own images: base, harness, sglang-cpu (a task that needs sglang-radix builds it). */
import type { Command } from 'commander'
import { imageNames } from '../../images/build.ts'
import { buildOurImages } from '../host/images.ts'
import { note, print, printJson, withContext } from './context.ts'

export function addImages(program: Command): void {
  program
    .command('images')
    .description(
      `build our own images where they are missing or their recipe changed: ${imageNames.join(', ')}`,
    )
    .option('--json', 'print JSON')
    .action(async (_options: object, command: Command) =>
      withContext(command, async ({ client, config, json, signal }) => {
        const images = await buildOurImages(imageNames, {
          client,
          stateDir: config.stateDir,
          say: (what) => note(`· ${what}`),
          signal,
        })
        if (json) return printJson({ images })
        for (const { tag, id } of Object.values(images)) print(`${tag}  ${id}`)
      }),
    )
}
