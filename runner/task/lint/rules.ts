/**
 * Every rule of `closedbook task lint`: its name, how bad it is and what it says. The names are a promise: tasks ignore
 * rules by name, and where Harbor's lint has the same check the name is Harbor's. `image` rules need the image itself.
 */

export type Severity = 'error' | 'warning'

export interface Rule {
  readonly severity: Severity
  /** What it looks at: the files of the task, or the inside of its image. */
  readonly looksAt: 'files' | 'image'
  readonly byDefault: boolean
  readonly about: string
}

const files = (severity: Severity, about: string, byDefault = true): Rule => ({
  severity,
  looksAt: 'files',
  byDefault,
  about,
})
const image = (severity: Severity, about: string): Rule => ({
  severity,
  looksAt: 'image',
  byDefault: true,
  about,
})

export const rules = {
  // the directory
  'invalid-task-config': files('error', 'task.toml or a compose file has a value that is refused'),
  'unknown-config-field': files('warning', 'a key of task.toml that nobody reads'),
  'invalid-task-files': files('error', 'a file is missing, empty, unreadable or of a wrong kind'),
  'unsupported-feature': files('error', 'the runner refuses what the task asks for'),
  'unused-harborignore': files('warning', 'a .harborignore outside tests/ and solution/'),
  'root-agent': files('warning', 'the agent works as root', false),
  'shared-verifier': files('warning', "Harbor would run the tests in the agent's own container"),
  'artifact-log-overlap': files('error', 'a declared artifact lies over the logs of the harness'),
  'overlapping-artifacts': files('error', 'two artifacts would be kept at one place'),
  'compose-privileged': files('error', 'a compose service asks for all rights on the host'),
  'compose-additional-capabilities': files('warning', 'a compose service asks for capabilities'),
  'compose-writable-bind-mount': files('error', 'a compose service may write to host files'),
  'compose-external-bind-mount': files('error', 'a compose service mounts what is not the task'),
  'compose-symlink-bind-mount': files('error', 'a bind mount that leaves the task by a link'),
  'missing-task-facts': files('warning', 'area, source or workdir are not said'),
  'missing-solution': files('warning', 'there is no oracle, so nothing shows that it can be done'),
  'missing-regression-suite': files('warning', 'nothing tests what must stay as it is'),
  'missing-expected-tests': files('warning', 'a test that vanishes would not be missed'),
  'no-canaries': files('warning', 'a forged report of the suite would not be noticed'),
  // what moves
  'unpinned-image': files('error', 'an image that is named by a tag'),
  'unpinned-python-dependency': files('warning', 'a Python package without an exact version'),
  // the hidden tests
  'verifier-runtime-install': files('error', 'the tests install packages; they run offline'),
  'verifier-network-download': files('error', 'the tests download; they run offline'),
  'tests-need-network': files('warning', 'a test speaks to a host that is not the sandbox'),
  'agent-image-test-leak': files('error', 'the Dockerfile copies tests or the solution'),
  // secrets and settings
  'baked-secret': files('error', 'a token, password or private key in task, image or history'),
  'baked-proxy': files('warning', 'a proxy of the build host that the image still names'),
  // what the agent could look up
  'test-in-image': image('error', 'bytes of a hidden test, anywhere in any layer'),
  'solution-in-image': image('error', 'bytes of the solution, anywhere in any layer'),
  'test-visible': image('warning', 'a functional test that the repository holds at its base'),
  'git-missing': image('error', 'verify = "patch" without a repository at workdir'),
  'git-head': image('error', 'the repository is not at base_commit'),
  'git-dirty': image('warning', 'tracked files differ from the base commit'),
  'git-future-ref': image('error', 'a branch, tag or other ref to what came after the base'),
  'git-stash': image('error', 'a stash'),
  'git-notes': image('error', 'notes that the base commit does not hold'),
  'git-reflog': image('error', 'a reflog that names what came after the base'),
  'git-pseudo-ref': image('error', 'FETCH_HEAD, ORIG_HEAD or the like names what came after'),
  'git-worktree': image('error', 'another worktree of the repository'),
  'git-alternates': image('error', 'the repository borrows objects from elsewhere'),
  'git-replace': image('error', 'replace refs or grafts: history is not what it says'),
  'git-remote': image('warning', 'a remote is still configured'),
  'git-unreachable-object': image('error', 'objects, loose or packed, that the base cannot reach'),
  'git-answer-object': image('error', 'an object with the bytes of a test or of the solution'),
  'git-other-repository': image('error', 'another repository with the history of this project'),
  'git-removed-object': image('warning', 'a lower layer holds objects that a later one removed'),
  'noisy-shell': image('warning', 'starting a shell prints something'),
  'instruction-path': image('warning', 'the instruction names a path that is not in the image'),
  'not-inspected': image('warning', 'something in the image that could not be looked into'),
} as const satisfies Record<string, Rule>

export type RuleName = keyof typeof rules

export const ruleNames = Object.keys(rules) as RuleName[]

export const isRuleName = (name: string): name is RuleName => Object.hasOwn(rules, name)
