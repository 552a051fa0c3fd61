/**
 * What a copied repository holds, asked with our own git in our own container: what the base commit reaches, what lies
 * there beside it (loose or packed), which of the named objects are among that, and whether the bytes of a test or of
 * the solution are. Sorting and comparing are done there, so that a history of any size costs no memory here.
 */
import { RunnerError } from '../../../errors.ts'
import { exitCodeOf, type Sandbox } from '../../../trial/sandbox.ts'
import { lastLines, runGitScript } from '../../../trial/trusted-git.ts'

export interface RepositoryAnswer {
  /** Instant of the base commit. */
  readonly baseDate: string
  /** Of the named objects: those that the base commit does not reach. */
  readonly beyond: ReadonlySet<string>
  /** Everything that the base commit does not reach, by type. */
  readonly unreachable: Readonly<Record<string, number>>
  /** Some of the commits among it: id, instant, subject. */
  readonly commits: readonly (readonly [string, string, string])[]
  /** Of the asked-for blobs: those that the repository holds. */
  readonly held: ReadonlySet<string>
}

export interface TreeFile {
  readonly mode: string
  readonly blob: string
}

const exitNoBase = 45
const exitUnreadable = 46

/** `$1` git, `$2` copied repository, `$3` commit, `$4` object format; stdin: `named ID` and `blob ID` a line. */
const open = `
umask 077
GIT_DIR=$2/git
if [ ! -d "$GIT_DIR" ]; then
  "$1" init -q --bare --template= --object-format="$4" "$GIT_DIR" || exit ${exitUnreadable}
  rm -rf "$GIT_DIR/objects" && mv "$2/objects" "$GIT_DIR/objects" && mkdir -p "$GIT_DIR/objects/info" "$GIT_DIR/objects/pack" || exit ${exitUnreadable}
  if [ -f "$2/shallow" ]; then mv "$2/shallow" "$GIT_DIR/shallow"; fi
fi
export GIT_DIR GIT_NO_REPLACE_OBJECTS=1 GIT_NO_LAZY_FETCH=1
`

const ask = `${open}
git=$1 base=$3
cd "$2" || exit ${exitUnreadable}
cat >asked
"$git" cat-file -e "$base^{commit}" 2>/dev/null || exit ${exitNoBase}
"$git" rev-list --objects --no-object-names --missing=allow-any "$base" >reached.raw || exit ${exitUnreadable}
sort -u reached.raw >reached && rm reached.raw
"$git" cat-file --batch-all-objects --unordered --batch-check='%(objectname) %(objecttype)' >all.raw || exit ${exitUnreadable}
sort -u all.raw >all && rm all.raw
cut -d' ' -f1 all >ids
printf 'base %s\\n' "$("$git" show -s --format=%cI "$base")"

# An annotated tag of a reached commit is as harmless as the commit.
comm -23 ids reached >beyond.raw
join beyond.raw all | awk '$2=="tag"{print $1}' >tags
sed 's/$/^{}/' tags | "$git" cat-file --batch-check='%(objectname)' | paste -d' ' tags - | sort -k2,2 >peeled
join -1 2 -2 1 -o 1.1 peeled reached | sort -u >harmless
comm -23 beyond.raw harmless >beyond
join beyond all | cut -d' ' -f2 | sort | uniq -c | awk '{print "count", $2, $1}'
join beyond all | awk '$2=="commit"{print $1}' | head -n 2000 | "$git" log --no-walk --stdin --date-order --format='commit %H%x09%cI%x09%s' 2>/dev/null | head -n 10

awk '$1=="named"{print $2}' asked | sort -u >named
comm -12 named ids >known
comm -23 known reached | comm -23 - harmless | sed 's/^/beyond /'
awk '$1=="blob"{print $2}' asked | sort -u | comm -12 - ids | sed 's/^/held /'
rm -f reached all ids beyond beyond.raw tags peeled harmless named known asked
`

const list = `${open}
"$1" ls-tree -r -z --full-tree "$3"
`

export async function askRepository(
  sandbox: Sandbox,
  repository: { readonly at: string; readonly objectFormat: string },
  question: {
    base: string
    named: readonly string[]
    blobs: readonly string[]
    signal: AbortSignal
  },
): Promise<RepositoryAnswer | 'no-base' | { unreadable: string }> {
  const lines = [
    ...new Set(question.named.map((id) => `named ${id}`)),
    ...question.blobs.map((id) => `blob ${id}`),
  ]
  const run = await runGitScript(sandbox, ask, argumentsOf(repository, question.base), {
    stdin: Buffer.from(lines.map((line) => `${line}\n`).join('')),
    scratch: false,
    signal: question.signal,
  })
  const code = exitCodeOf(run.end)
  if (code === exitNoBase) return 'no-base'
  if (code !== 0) return { unreadable: lastLines(run.stderr) }
  const answer = {
    baseDate: '',
    beyond: new Set<string>(),
    unreachable: {} as Record<string, number>,
    commits: [] as [string, string, string][],
    held: new Set<string>(),
  }
  for (const line of run.stdout.toString('utf8').split('\n')) {
    const [word = '', ...rest] = line.split(' ')
    const first = rest[0] ?? ''
    if (word === 'base') answer.baseDate = first
    else if (word === 'beyond') answer.beyond.add(first)
    else if (word === 'held') answer.held.add(first)
    else if (word === 'count') answer.unreachable[first] = Number(rest[1])
    else if (word === 'commit') {
      const [id = '', date = '', subject = ''] = rest.join(' ').split('\t')
      answer.commits.push([id, date, subject])
    }
  }
  return answer
}

/** Every file of the commit's tree, by its path as bytes; submodules are left out. */
export async function listTree(
  sandbox: Sandbox,
  repository: { readonly at: string; readonly objectFormat: string },
  commit: string,
  signal: AbortSignal,
): Promise<Map<string, TreeFile>> {
  const run = await runGitScript(sandbox, list, argumentsOf(repository, commit), {
    scratch: false,
    limitBytes: 512 * 1024 * 1024,
    signal,
  })
  if (exitCodeOf(run.end) !== 0)
    throw new RunnerError(
      'transfer_failed',
      'infra',
      `listing the tree of ${commit} failed: ${lastLines(run.stderr)}`,
    )
  const files = new Map<string, TreeFile>()
  for (const record of run.stdout.toString('latin1').split('\0')) {
    const match = /^(\d{6}) (\w+) ([0-9a-f]+)\t([\s\S]+)$/.exec(record)
    if (match?.[2] === 'blob')
      files.set(match[4] ?? '', { mode: match[1] ?? '', blob: match[3] ?? '' })
  }
  return files
}

const argumentsOf = (
  { at, objectFormat }: { readonly at: string; readonly objectFormat: string },
  commit: string,
): string[] => ['/usr/bin/git', at, commit, objectFormat]
