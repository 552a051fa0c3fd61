/**
 * What agents leave behind: trees that can't be read, repositories that lie, names that break tools, processes and bytes
 * without end. None is ever void. `solved` rows do the work as well, and pass: what we measure is the tree's content.
 */
import type { Row } from './setup.ts'

const tree = '/workspace/tally'
const graded = /^failed agent tests_failed: functional 0 of 3, regression 2 of 2/
const passed = /^passed null tests_passed: functional 3 of 3, regression 2 of 2/

/** The work itself, as any agent might do it. */
export const solution = `cat >>${tree}/tally/__init__.py <<'END'


def tally(text):
    found = words(text)
    return sorted(((word, found.count(word)) for word in set(found)), key=lambda pair: (-pair[1], pair[0]))
END
`

export const trees: readonly Row[] = [
  {
    name: 'no-tree',
    why: 'the working directory is gone',
    script: `cd / && rm -rf ${tree}`,
    end: /^failed agent workdir_missing: \/workspace\/tally is gone/,
  },
  {
    name: 'tree-is-a-link',
    why: 'the working directory is a link, to a directory that holds a solution',
    script: `${solution}cd / && mv ${tree} /elsewhere && ln -s /elsewhere ${tree}`,
    end: /^failed agent workdir_replaced: /,
  },
  {
    name: 'tree-is-a-link-to-the-host',
    why: 'a link that would mean another file where it is followed outside of the sandbox',
    script: `cd / && rm -rf ${tree} && ln -s /proc/1/root/../../../../etc ${tree}`,
    end: /^failed agent workdir_replaced: /,
  },
  {
    name: 'tree-is-a-file',
    why: 'the working directory is a plain file',
    script: `cd / && rm -rf ${tree} && echo nothing >${tree}`,
    end: /^failed agent workdir_replaced: /,
  },
  {
    name: 'parent-is-a-link',
    why: 'what the working directory lies in is a link',
    script: `${solution}cd / && mv /workspace /moved && ln -s /moved /workspace`,
    end: /^(passed null tests_passed|failed agent workdir_)/,
  },
  {
    name: 'no-permission',
    why: 'nobody may read the tree or a file in it; the engine reads it all the same',
    script: `${solution}chmod 000 ${tree}/tally/__init__.py && chmod 000 ${tree}`,
    end: passed,
  },
  {
    name: 'no-repository',
    why: 'the repository is gone; what counts is the tree',
    script: `rm -rf ${tree}/.git`,
    end: graded,
  },
  {
    name: 'no-repository-solved',
    why: 'the same, with the work done',
    script: `${solution}rm -rf ${tree}/.git`,
    end: passed,
  },
  {
    name: 'odd-names',
    why: 'names with a line feed, a quote, a leading dash, other encodings, and of the greatest length',
    script: `cd ${tree}
printf x >"$(printf 'line\\nfeed')"
printf x >"$(printf 'not-utf8-\\377\\376')"
printf x >'-rf'; printf x >'--help'; printf x >'a"b\\c'"'"'d'; printf x >' space '; printf x >':(glob)*'
printf x >"$(printf '%0255d' 7)"
mkdir -p '...' 'tab	bed' "$(printf 'esc\\033[31m')" && for d in '...' 'tab	bed'; do printf x >"$d/x"; done
ln -s "$(printf '%01000d' 1)" long-link; ln -s loop loop
${solution}`,
    end: passed,
  },
  {
    name: 'deep-tree',
    why: 'a path longer than the kernel takes at once',
    script: `python3 - <<'END'
import os
os.chdir("${tree}")
for _ in range(40):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
open("x", "w").close()
END
`,
    end: /^failed agent (workdir_unreadable|tests_failed|patch_unusable|tree_too_large): /,
  },
  {
    name: 'special-files',
    why: 'a pipe, a socket and a hole of a terabyte where files should be',
    script: `cd ${tree} && mkfifo pipe && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
${solution}`,
    end: passed,
  },
  {
    name: 'huge-hole',
    why: 'a file that says it holds a terabyte',
    script: `truncate -s 1T ${tree}/hole`,
    end: /^failed agent (tree_too_large|patch_too_large): /,
  },
  {
    name: 'too-large-a-patch',
    why: 'more bytes than a patch may have',
    script: `head -c 300000000 /dev/zero >${tree}/zeros`,
    end: /^failed agent patch_too_large: .*zeros/,
  },
  {
    name: 'module-is-a-directory',
    why: 'a file of the base commit became a directory, and a directory a file',
    script: `cd ${tree} && rm tally/__init__.py && mkdir tally/__init__.py && echo x >tally/__init__.py/x`,
    end: /^failed agent tests_failed: functional 0 of 3, regression 0 of 2/,
  },
]

/** Git's own ways to show a tree that isn't there, or to hide one that is. */
const gitTricks = `cd ${tree}
printf '*.py filter=gone diff=gone text eol=crlf working-tree-encoding=UTF-16 export-ignore\\n' >.gitattributes
cp .gitattributes .git/info/attributes 2>/dev/null || { mkdir -p .git/info && cp .gitattributes .git/info/attributes; }
printf '#!/bin/sh\\necho ran >>/hook-ran\\nexit 0\\n' >/hook && chmod 755 /hook
git config filter.gone.clean true; git config filter.gone.smudge true; git config filter.gone.required true
git config diff.gone.textconv true; git config diff.external /hook; git config core.fsmonitor /hook
git config core.hooksPath /hooks; git config core.worktree /tmp; git config core.excludesFile /ignore-all
git config core.attributesFile /attributes; git config core.sshCommand /hook; git config core.pager /hook
git config core.autocrlf true; git config core.fileMode false; git config core.ignoreCase true; git config core.bare false
git config --global safe.directory '*'; git config --system alias.diff '!/hook' || true
mkdir -p /hooks && for h in pre-commit post-checkout post-index-change reference-transaction; do cp /hook /hooks/$h; done
echo '*' >/ignore-all; mkdir -p .git/info; echo '*' >.git/info/exclude
`

export const repositories: readonly Row[] = [
  {
    name: 'git-tricks',
    why: 'filters, drivers, hooks and settings that change what git shows',
    script: gitTricks,
    end: graded,
  },
  {
    name: 'git-tricks-solved',
    why: 'the same, with the work done',
    script: `${solution}${gitTricks}`,
    end: passed,
  },
  {
    name: 'committed',
    why: 'the work is committed, and the history rewritten to look as if it had always been there',
    script: `${solution}cd ${tree} && git checkout -q --orphan other && git add -A && git commit -q -m base --date 2020-01-01 && git branch -D main 2>/dev/null || true
git update-ref -d refs/heads/main; git reflog expire --expire=now --all; git gc -q --prune=now`,
    end: passed,
  },
  {
    name: 'other-repository',
    why: 'the repository is another one, with its objects elsewhere and its work tree too',
    script: `${solution}cd ${tree} && mv .git /objects && git init -q . && echo /objects/objects >.git/objects/info/alternates && git config core.worktree /nowhere`,
    end: passed,
  },
  {
    name: 'repository-is-a-file',
    why: 'a .git that points at a place of the agent, as submodules and worktrees have it',
    script: `${solution}cd ${tree} && mv .git /moved.git && echo 'gitdir: /moved.git' >.git`,
    end: passed,
  },
  {
    name: 'nested-repository',
    why: 'the package is a repository of its own, which git takes for a submodule',
    script: `${solution}cd ${tree}/tally && git init -q . && git add -A && git commit -q -m nested`,
    end: passed,
  },
  {
    name: 'index-tricks',
    why: 'files that the index says to be unchanged, absent or somebody else’s',
    script: `${solution}cd ${tree} && git update-index --assume-unchanged tally/__init__.py && git update-index --skip-worktree tally/__init__.py && git sparse-checkout set --no-cone nothing || true`,
    end: /^passed |^failed agent tests_failed/,
  },
  {
    name: 'ignore-everything',
    why: 'ignore rules of the agent hide new files',
    script: `cd ${tree} && echo '*' >.gitignore && cat >tally/counting.py <<'END'
def tally(text):
    from tally import words
    found = words(text)
    return sorted(((word, found.count(word)) for word in set(found)), key=lambda pair: (-pair[1], pair[0]))
END
echo 'from tally.counting import tally' >>tally/__init__.py
`,
    end: passed,
  },
]

/** Damage to what a sandbox needs so that we can still prove, freeze and read it: never a way to a void trial. */
export const sabotage: readonly Row[] = [
  {
    name: 'no-null-device',
    why: 'the null device is a directory, and then the tree is as it was',
    script: 'rm -f /dev/null && mkdir /dev/null',
    end: graded,
  },
  {
    name: 'our-files-moved',
    why: 'the directory of our own mounts has another name',
    script: `${solution}mv /.closedbook /moved`,
    end: passed,
  },
  {
    name: 'everything-removed',
    why: 'all that can be removed is gone',
    script: 'rm -rf --no-preserve-root / 2>/dev/null; true',
    end: /^failed agent workdir_missing: /,
  },
  {
    name: 'everything-but-the-work',
    why: 'the same, but for the working directory, with the work done',
    script: `${solution}rm -rf /bin /lib* /usr /etc /var /root /dev/null /dev/shm/* 2>/dev/null; true`,
    end: passed,
  },
  {
    name: 'pipes-for-accounts',
    why: 'the engine opens the files of accounts when it reads a container, and would wait for ever',
    script: `${solution}rm /etc/passwd /etc/group && mkfifo /etc/passwd /etc/group`,
    end: passed,
  },
  {
    name: 'endless-accounts',
    why: 'the same with a file of a terabyte behind a link',
    script: `truncate -s 1T /endless && rm /etc/passwd && ln -s /endless /etc/passwd`,
    end: graded,
  },
  {
    name: 'full-shared-memory',
    why: 'every byte of memory that files may take is taken',
    script: `head -c 200000000 /dev/zero >/dev/shm/full 2>/dev/null; head -c 200000000 /dev/zero >/dev/full-too 2>/dev/null; true`,
    end: graded,
  },
]

/** What outlives the agent or has no end. */
export const leftRunning: readonly Row[] = [
  {
    name: 'fork-storm',
    why: 'as many processes as the sandbox may have, in sessions of their own, are still there at the end',
    script: `python3 - <<'END'
import os, time
for _ in range(2000):
    try:
        if os.fork() == 0:
            os.setsid()
            time.sleep(1 << 30)
    except OSError:
        break
END
`,
    end: graded,
  },
  {
    name: 'respawning',
    why: 'processes that start one another faster than a careless killer lists them',
    script: `cat >/again.py <<'END'
import os, time
while True:
    if os.fork() != 0:
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
END
for n in 1 2 3 4; do ( setsid python3 /again.py >/dev/null 2>&1 </dev/null & ); done
sleep 0.2`,
    end: graded,
  },
  {
    name: 'full-disk',
    cutShort: true,
    why: 'the agent writes more than it may',
    script: `${solution}head -c 120000000 /dev/zero >/filler; sleep 30`,
    resources: { diskBytes: 20_000_000 },
    end: /^(passed null|failed agent tests_failed: .*disk_limit)/,
  },
  {
    name: 'full-disk-unsolved',
    cutShort: true,
    why: 'the same without the work',
    script: `head -c 120000000 /dev/zero >/filler; sleep 30`,
    resources: { diskBytes: 20_000_000 },
    end: /^failed agent tests_failed: .*\(disk_limit\)/,
  },
  {
    name: 'memory',
    cutShort: true,
    why: 'the agent needs more memory than it may have',
    script: `exec python3 -c 'a = bytearray(1 << 30)
for n in range(0, len(a), 4096): a[n] = 1'`,
    resources: { memoryBytes: 67_108_864 },
    end: /^failed agent (tests_failed|sandbox_out_of_memory)/,
  },
  {
    name: 'out-of-time',
    cutShort: true,
    why: 'the agent never ends',
    script: `trap '' TERM INT HUP; while :; do sleep 1; done`,
    limits: { wallTimeSeconds: 3 },
    end: /^failed agent tests_failed: .*\(wall_time\)/,
  },
  {
    name: 'kills-everything',
    cutShort: true,
    why: 'the agent sends every process of its sandbox a signal that can not be caught',
    script: `kill -9 -1`,
    end: /^failed agent tests_failed/,
  },
  {
    name: 'fails',
    cutShort: true,
    why: 'the script ends with a status of its own',
    script: 'exit 3',
    end: graded,
  },
]
