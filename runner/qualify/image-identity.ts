/**
 * What an image is, for evidence that travels with a task. The id of a built image differs from host to host; the recipe
 * (build context, and the recipes or digests that it starts from) doesn't, so a rebuild of an unchanged recipe is told
 * apart from a change. What starts from a tag has no recipe, for a tag moves. Nothing is built or pulled here.
 */
import { readFile } from 'node:fs/promises'
import { allImageNames, imageTags, readRecipes } from '../../images/build.ts'
import { readContext, recipeHash } from '../../images/context.ts'
import { outsideImages } from '../../images/dockerfile.ts'
import { isPinned } from '../task/image.ts'
import type { Task } from '../task/task.ts'

/** `sha256:…`; null for an image that only its id can name. */
export async function imageRecipe({ image }: Pick<Task, 'image'>): Promise<string | null> {
  if (image.kind === 'reference') {
    const { reference, loose } = image
    return loose === undefined || !isPinned(reference)
      ? null
      : recipeOf(loose.folder, [reference, loose.workdir ?? ''])
  }
  const recipes = await readRecipes()
  const parents: string[] = []
  for (const reference of outsideImages(await readFile(image.dockerfile, 'utf8'))) {
    const own = allImageNames.find((name) => imageTags[name] === reference)
    if (own === undefined && !isPinned(reference)) return null
    parents.push(own === undefined ? reference : `${own} ${recipes[own].hash}`)
  }
  return recipeOf(image.context, parents)
}

const recipeOf = async (folder: string, words: readonly string[]): Promise<string> =>
  `sha256:${await recipeHash(await readContext(folder), ['qualified image', ...words])}`
