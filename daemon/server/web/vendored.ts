/**
 * The packages that the dashboard uses, as the browser gets them: each package's own build, no bundler. Imports by
 * name become paths of this daemon. highlight.js comes as CommonJS and is wrapped into one module.
 */
import { readFile } from 'node:fs/promises'
import { findPackageJSON } from 'node:module'
import path from 'node:path'

const highlightLanguages = ['bash', 'diff', 'json', 'python'] as const
const d3 = [
  'd3-array',
  'd3-color',
  'd3-format',
  'd3-interpolate',
  'd3-path',
  'd3-scale',
  'd3-shape',
  'd3-time',
  'd3-time-format',
] as const

/** Where a module that is imported by name is served. */
export const modulePaths: ReadonlyMap<string, string> = new Map([
  ['@xterm/xterm', '/vendor/xterm.mjs'],
  ['highlight.js/lib/core', '/vendor/highlight.mjs'],
  ...d3.map((name) => [name, `/vendor/${name}.mjs`] as const),
])

export interface VendoredFile {
  readonly path: string
  readonly type: 'text/javascript' | 'text/css'
  readonly read: () => Promise<string>
}

export const vendored: readonly VendoredFile[] = [
  script('/vendor/xterm.mjs', '@xterm/xterm', 'lib/xterm.mjs'),
  { ...script('/vendor/xterm.css', '@xterm/xterm', 'css/xterm.css'), type: 'text/css' },
  { path: '/vendor/highlight.mjs', type: 'text/javascript', read: highlight },
  ...d3.map((name) => script(`/vendor/${name}.mjs`, name, `dist/${name}.min.mjs`)),
]

function script(at: string, name: string, file: string): VendoredFile {
  return {
    path: at,
    type: 'text/javascript',
    read: async () => withPaths(withoutMap(await readFile(fileOf(name, file), 'utf8'))),
  }
}

function fileOf(name: string, file: string): string {
  const manifest = findPackageJSON(name, import.meta.url)
  if (manifest === undefined) throw new Error(`the package ${name} is not installed`)
  return path.join(path.dirname(manifest), file)
}

/** `from 'name'` with the path that the name is served at; names of nothing stay, and the browser says so. */
export const withPaths = (source: string): string =>
  source.replaceAll(
    /(\bfrom\s*)(["'])([^"'./][^"']*)\2/g,
    (whole, from: string, quote: string, name: string) => {
      const at = modulePaths.get(name)
      return at === undefined ? whole : `${from}${quote}${at}${quote}`
    },
  )

const withoutMap = (source: string): string =>
  source.replace(/\n\/[/*]# sourceMappingURL=.*$/m, '\n')

async function highlight(): Promise<string> {
  const common = async (file: string): Promise<string> =>
    `((module) => {\nconst exports = module.exports\n${await readFile(fileOf('highlight.js', file), 'utf8')}\nreturn module.exports\n})({ exports: {} })`
  const languages = highlightLanguages.map(
    async (name) =>
      `hljs.registerLanguage('${name}', ${await common(`lib/languages/${name}.js`)})\n`,
  )
  return `const hljs = ${await common('lib/core.js')}\n${(await Promise.all(languages)).join('')}export default hljs\n`
}
