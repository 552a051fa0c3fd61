/**
 * Which model artifacts a sandbox may read. A policy pins repositories, one commit each (a branch is frozen to a commit
 * when the lease opens), and the files of them by patterns; all else of the Hub is closed. The decision is made from the
 * request and the policy alone, before any cache or upstream is asked, so that a refusal tells nothing of what exists.
 */
import { z } from 'zod'
import { allow, deny, type Decision, type Reason } from './decision.ts'
import { canonicalFileGlob, matchesFileGlob } from './file-glob.ts'
import { isRepoId, type HubRequest, type HubRoute } from './hugging-face-route.ts'

/** No upstream code (`*.py`), no archives, no pickles: those must be asked for by name. */
export const defaultArtifactFiles = [
  '*.safetensors',
  '*.json',
  'tokenizer.*',
  '*.model',
  '*.txt',
  '*.jinja',
  'LICENSE',
  'README.md',
] as const

const repoSchema = z.string().superRefine((text, context) => {
  if (isRepoId(text)) return
  const guess = text.trim().replace(/^(?:https?:\/\/)?(?:huggingface\.co|hf\.co)\//, '')
  const repo = guess.split('/').slice(0, 2).join('/')
  context.addIssue({
    code: 'custom',
    message:
      repo !== text && isRepoId(repo)
        ? `not canonical: write "${repo}"`
        : 'must be "owner/name" of a model repository, as the Hub spells it',
  })
})

const commitPattern = /^[0-9a-f]{40}$/
const refPattern = /^[A-Za-z0-9](?:[A-Za-z0-9._/+-]{0,126}[A-Za-z0-9_+-])?$/

const revisionSchema = z
  .string()
  .refine(
    (text) => refPattern.test(text) && !/\.\.|\/\//.test(text),
    'must be a commit of 40 hex digits, or the name of a branch or tag',
  )
  .refine(
    (text) => !/^[0-9a-fA-F]{7,64}$/.test(text) || commitPattern.test(text),
    'must be a whole commit: 40 hex digits in lower case',
  )

export const huggingFaceRepoSchema = z.strictObject({
  repo: repoSchema.describe('a model repository: owner/name'),
  revision: revisionSchema.describe(
    'the commit that is served (40 hex digits), or a branch or tag, frozen when the lease opens',
  ),
  files: z
    .array(
      z.string().superRefine((text, context) => {
        const result = canonicalFileGlob(text)
        if (!result.ok) context.addIssue({ code: 'custom', message: result.message })
      }),
    )
    .min(1)
    .max(256)
    .default([...defaultArtifactFiles])
    .describe('patterns of the files that may be read'),
  maxBytes: z
    .int()
    .positive()
    .optional()
    .describe('bytes of this repository that one lease may be sent in all; absent: no limit'),
})
export type HuggingFaceRepo = z.infer<typeof huggingFaceRepoSchema>

export const huggingFaceSchema = z
  .strictObject({
    repos: z.array(huggingFaceRepoSchema).max(64).default([]),
    tunnel: z
      .boolean()
      .default(false)
      .describe(
        'lets the proxy connect to every published host of the Hub, where no path is seen: the whole Hub is then open',
      ),
  })
  .superRefine(({ repos }, context) => {
    for (const [index, { repo, revision }] of repos.entries())
      if (repos.findIndex((other) => other.repo === repo && other.revision === revision) !== index)
        context.addIssue({
          code: 'custom',
          path: ['repos', index],
          message: `"${repo}" at "${revision}" is named twice: join the files into one entry`,
        })
  })
export type HuggingFacePolicy = z.infer<typeof huggingFaceSchema>

/** A repository of the policy with the commit that is served for it. */
export interface Pin {
  readonly entry: HuggingFaceRepo
  readonly commit: string
}

export type HubDecision = { readonly message: string } & (
  | (Decision & { readonly action: 'allow'; readonly pin: Pin | null })
  | (Decision & { readonly action: 'deny' })
)

export const isCommit = (revision: string): boolean => commitPattern.test(revision)

export const fileAllowed = ({ files }: HuggingFaceRepo, path: string): boolean =>
  files.some((glob) => matchesFileGlob(glob, path))

const refuse = (reason: Reason, rule: string, message: string): HubDecision => ({
  ...deny(reason, rule),
  action: 'deny',
  message,
})

export function decideHubRequest(pins: readonly Pin[], { route }: HubRequest): HubDecision {
  switch (route.kind) {
    case 'malformed':
      return refuse('bad_request', 'path', `the request can't be read: ${route.why}`)
    case 'closed':
      return route.write
        ? refuse('write_denied', 'methods', `nothing can be written from here (${route.what})`)
        : refuse('path_denied', 'paths', `not served here: ${route.what}`)
    case 'noise':
      return { ...allow('noise', route.name), action: 'allow', message: 'answered here', pin: null }
    case 'file':
    case 'info':
    case 'tree':
    case 'paths-info':
    case 'refs':
      return decideRepo(pins, route)
    default:
      return route satisfies never
  }
}

type RepoRoute = Extract<HubRoute, { repo: string }>

function decideRepo(pins: readonly Pin[], route: RepoRoute): HubDecision {
  const { repo } = route
  const named = pins.filter(({ entry }) => entry.repo === repo)
  if (named.length === 0) {
    const open = pins.slice(0, 4).map(({ entry }) => entry.repo)
    const list = open.length === 0 ? 'none' : [...new Set(open)].join(', ')
    const more = pins.length > open.length ? ', ...' : ''
    return refuse(
      'repo_not_allowed',
      'repos',
      `${repo} is not among the model repositories of this sandbox (${list}${more})`,
    )
  }
  const revision = 'revision' in route ? route.revision : null
  const pin = named.find((one) => revision === null || serves(one, revision))
  if (pin === undefined)
    return refuse(
      'revision_not_allowed',
      `repo ${repo}`,
      `only ${named.map(({ commit }) => commit).join(' or ')} of ${repo} is served, by that name or as main`,
    )
  if (route.kind === 'file' && !fileAllowed(pin.entry, route.path))
    return refuse(
      'file_not_allowed',
      `repo ${repo}`,
      `${route.path} is not among the files of ${repo} that this sandbox may read (${pin.entry.files.slice(0, 12).join(' ')})`,
    )
  return { ...allow('allowed_artifact', `repo ${repo}`), action: 'allow', message: 'allowed', pin }
}

/** `main`, which clients ask for unless told otherwise, is the pinned commit; so is a short form of its id. */
const serves = ({ entry, commit }: Pin, revision: string): boolean =>
  revision === 'main' ||
  revision === entry.revision ||
  revision === `refs/heads/${entry.revision}` ||
  revision === commit ||
  (/^[0-9a-f]{7,39}$/.test(revision) && commit.startsWith(revision))
