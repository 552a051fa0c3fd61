/**
 * mini-SWE-agent, unmodified, inside the task's container: its image's file system is mounted read-only and its Python
 * is started by that image's own loader and libraries, so that the task's image need have neither, and nothing of the
 * task's own Python is touched. Its commands go through a script in place of `docker`, which runs each as `docker exec`
 * would: `bash -lc`, in the container's environment. Pure.
 */
import {
  miniCommand,
  miniFiles,
  type HarnessCommand,
  type MiniInput,
  type MiniPaths,
} from './mini-swe-agent.ts'
import { insidePlaces } from './places.ts'

const { busybox, harness, config, scratch } = insidePlaces
const site = `${harness}/opt/closedbook/venv/lib/python3.13/site-packages`

export const miniInsidePaths: MiniPaths = {
  mini: `${config}/start.sh`,
  baseConfig: `${site}/minisweagent/config/mini.yaml`,
  shim: `${config}/docker`,
  configDir: config,
  scratchDir: scratch,
}

/** Set for the harness, and of no concern to the commands that it runs. */
const ownVariables = [
  ...['TERM', 'COLORTERM', 'LANG', 'COLUMNS', 'LINES', 'TYPER_STANDARD_TRACEBACK'],
  ...['OPENAI_BASE_URL', 'OPENAI_API_KEY', 'ANTHROPIC_BASE_URL', 'ANTHROPIC_API_KEY'],
  ...['MSWEA_CONFIGURED', 'MSWEA_SILENT_STARTUP', 'MSWEA_GLOBAL_CONFIG_DIR'],
  ...['MSWEA_DOCKER_EXECUTABLE', 'MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT'],
  'LITELLM_LOCAL_MODEL_COST_MAP',
]

/**
 * glibc's loader takes the place of the kernel's choice of one; `--argv0` is by what Python finds its own library. Input
 * is empty: at a terminal mini asks what to do at a limit, and nobody would answer.
 */
const startScript = `#!${busybox} sh
root=${harness}
${busybox} mkdir -p ${scratch}
for loader in $root/lib64/ld-linux-x86-64.so.2 $root/lib/ld-linux-aarch64.so.1; do
  [ -e "$loader" ] && break
done
libraries=$root/usr/lib/x86_64-linux-gnu:$root/usr/lib/aarch64-linux-gnu
exec "$loader" --argv0 $root/usr/bin/python3 --library-path "$libraries" $root/usr/bin/python3 \
  -E -s -P ${config}/start.py "$@" </dev/null
`

const startPython = `import sys
sys.path.insert(0, ${JSON.stringify(site)})
for stream in (sys.stdout, sys.stderr):
    stream.reconfigure(encoding='utf-8', errors='backslashreplace')
sys.argv[0] = 'mini'
from minisweagent.run.mini import app
sys.exit(app())
`

/** mini's whole use of it: run -d … , exec [-w DIR] [-e NAME=VALUE]… ID ARGV… , stop or rm. */
const dockerScript = `#!${busybox} sh
verb=$1
[ $# -gt 0 ] && shift
case "$verb" in
run) echo inside; exit 0 ;;
stop|rm) exit 0 ;;
exec) ;;
*) echo "docker $verb: not in this sandbox" >&2; exit 125 ;;
esac
unset ${ownVariables.join(' ')}
while [ $# -gt 0 ]; do
  case "$1" in
  -w) cd "$2" || exit 126; shift 2 ;;
  -e) export "$2"; shift 2 ;;
  *) break ;;
  esac
done
shift
exec "$@" </dev/null
`

export interface InsideFile {
  readonly text: string
  readonly executable: boolean
}

export function miniInsideFiles(input: MiniInput): Record<string, InsideFile> {
  const plain = Object.entries(miniFiles(input, miniInsidePaths)).map(
    ([name, text]) => [name, { text, executable: false }] as const,
  )
  return {
    ...Object.fromEntries(plain),
    'start.sh': { text: startScript, executable: true },
    'start.py': { text: startPython, executable: false },
    docker: { text: dockerScript, executable: true },
  }
}

/** The container's own environment and a few variables more; its PATH and HOME stay as they are, and TERM is the terminal's. */
export function miniInsideCommand(model: MiniInput['model']): HarnessCommand {
  const { argv, env } = miniCommand(model, miniInsidePaths)
  return {
    argv,
    env: Object.fromEntries(
      Object.entries(env).filter(([name]) => /^(MSWEA|LITELLM|OPENAI|ANTHROPIC|TYPER)_/.test(name)),
    ),
    workdir: '/',
  }
}
