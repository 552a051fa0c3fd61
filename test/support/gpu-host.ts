/**
 * A host with GPUs, without any: a stand-in for nvidia-smi that answers from a folder, and one for NVIDIA's container
 * hook that is first on the PATH of a real engine of the test's own. The stand-in GPU is /dev/fuse, a device that root
 * can open and that the engine lets no container have.
 */
import { closeSync, openSync } from 'node:fs'
import { appendFile, chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { testEngine, type TestEngine } from './engine.ts'

export interface FakeGpu {
  readonly uuid: string
  readonly bus: string
}

export interface Reading {
  readonly usedMiB?: number
  readonly ecc?: string
  readonly mig?: string
  readonly computeMode?: string
  readonly remapFailed?: string
  readonly pids?: readonly number[]
  /** `lost`: fell off the bus; `hang`: nvidia-smi never answers; `gone`: not listed. */
  readonly mode?: 'well' | 'lost' | 'hang' | 'gone'
}

/** The order on the bus is not that of the UUIDs. */
export const fakeGpus: readonly FakeGpu[] = ['d0', 'b0', '90', '10'].map((bus, index) => ({
  uuid: `GPU-${String(index).repeat(8)}-aaaa-bbbb-cccc-0123456789ab`,
  bus,
}))

export class GpuHost implements AsyncDisposable {
  readonly directory: string
  readonly engine: TestEngine

  private constructor(directory: string, engine: TestEngine) {
    this.directory = directory
    this.engine = engine
  }

  static async open(): Promise<GpuHost> {
    const directory = await mkdtemp(path.join(os.tmpdir(), 'cb-gpu-'))
    const programs = path.join(directory, 'programs')
    await mkdir(programs)
    await program(path.join(programs, 'nvidia-smi'), smiScript(directory))
    await program(path.join(programs, 'nvidia-container-runtime-hook'), hookScript(directory))
    await writeFile(path.join(directory, 'kernel-log'), '')
    const host = new GpuHost(directory, await testEngine({ programs }))
    await host.hook('inject')
    await host.toolkit('NVIDIA Container Runtime Hook version 1.17.8\ncommit: 0000000')
    await host.driver('loaded')
    for (const gpu of fakeGpus) await host.set(gpu)
    return host
  }

  /** The `gpu` section of a daemon's configuration that makes this its host. */
  get config(): object {
    return {
      smi: path.join(this.directory, 'programs', 'nvidia-smi'),
      hook: path.join(this.directory, 'programs', 'nvidia-container-runtime-hook'),
      kernelLog: path.join(this.directory, 'kernel-log'),
    }
  }

  async set({ uuid, bus }: FakeGpu, reading: Reading = {}): Promise<void> {
    const directory = path.join(this.directory, 'gpus', uuid)
    await mkdir(directory, { recursive: true })
    const { usedMiB = 4, ecc = '0', mig = 'Disabled', computeMode = 'Default' } = reading
    const row = [uuid, 'NVIDIA H100 80GB HBM3', `00000000:${bus.toUpperCase()}:00.0`, '550.54.15']
    const files = {
      gpu: `${[...row, '81559', usedMiB, mig, ecc, computeMode].join(', ')}\n`,
      'remapped-rows': `${uuid}, No, ${reading.remapFailed ?? 'No'}\n`,
      'compute-apps': (reading.pids ?? []).map((pid) => `${uuid}, ${pid}\n`).join(''),
      bus,
      mode: reading.mode ?? 'well',
    }
    for (const [name, text] of Object.entries(files))
      await writeFile(path.join(directory, name), text)
  }

  /** What the hook does to the next container with a GPU. */
  async hook(mode: 'inject' | 'none' | 'fail' | 'hang'): Promise<void> {
    await writeFile(path.join(this.directory, 'hook'), mode)
  }

  async toolkit(version: string): Promise<void> {
    await writeFile(path.join(this.directory, 'toolkit'), version)
  }

  async driver(state: 'loaded' | 'missing'): Promise<void> {
    await writeFile(path.join(this.directory, 'driver'), state)
  }

  async xid(gpu: FakeGpu, text: string): Promise<void> {
    const line = `4,100,200,-;NVRM: Xid (PCI:0000:${gpu.bus}:00): ${text}\n`
    await appendFile(path.join(this.directory, 'kernel-log'), line)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.engine.dispose()
    await rm(this.directory, { recursive: true, force: true })
  }
}

/** Takes the devices of a running container away, as a reload of systemd does; false where only BPF could. */
export async function revokeDevices(pid: number): Promise<boolean> {
  const groups = await readFile(`/proc/${pid}/cgroup`, 'utf8')
  const group = /^\d+:devices:(.*)$/m.exec(groups)?.[1]
  if (group === undefined || node !== fuse) return false
  await writeFile(`/sys/fs/cgroup/devices${group}/devices.deny`, `c ${fuse.replace(' ', ':')} rwm`)
  return true
}

const fuse = '10 229'
const node = usable('/dev/fuse') ? fuse : '1 5'

function usable(device: string): boolean {
  try {
    closeSync(openSync(device, 'r'))
    return true
  } catch {
    return false
  }
}

async function program(file: string, text: string): Promise<void> {
  await writeFile(file, text)
  await chmod(file, 0o755)
}

const smiScript = (directory: string): string => `#!/bin/sh
cd '${directory}' || exit 1
if [ "$(cat driver)" = missing ]; then
  echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
  exit 9
fi
while [ $# -gt 0 ]; do
  case "$1" in
  -i) only=$2; shift ;;
  --query-*) query=\${1#--query-}; query=\${query%%=*} ;;
  esac
  shift
done
for gpu in gpus/*; do
  if [ -n "$only" ] && [ "$gpu" != "gpus/$only" ]; then continue; fi
  case "$(cat "$gpu/mode")" in
  hang) exec sleep 300 ;;
  gone) continue ;;
  lost)
    echo "Unable to determine the device handle for GPU0000:$(cat "$gpu/bus"):00.0: GPU is lost.  Reboot the system to recover this GPU"
    exit 15
    ;;
  esac
  cat "$gpu/$query"
done
`

/** The OCI state comes on standard input; \`config.json\` of the bundle has what the engine asked for. */
const hookScript = (directory: string): string => `#!/bin/sh
cd '${directory}' || exit 1
if [ "$1" = --version ]; then cat toolkit; exit 0; fi
state=$(cat)
case "$(cat hook)" in
none) exit 0 ;;
fail)
  echo 'nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown' >&2
  exit 1
  ;;
hang) sleep 300 ;;
esac
pid=$(echo "$state" | sed -n 's/.*"pid":\\([0-9]*\\).*/\\1/p')
config=$(echo "$state" | sed -n 's/.*"bundle":"\\([^"]*\\)".*/\\1/p')/config.json
root=$(sed -n 's/.*"root":{"path":"\\([^"]*\\)".*/\\1/p' "$config")
wanted=$(grep -o '"NVIDIA_VISIBLE_DEVICES=[^"]*"' "$config" | tail -1 | sed 's/.*=//; s/"//; s/,/ /g')
group=$(sed -n 's/^[0-9]*:devices://p' "/proc/$pid/cgroup")
if [ -n "$group" ]; then
  echo 'c ${node.replace(' ', ':')} rwm' >"/sys/fs/cgroup/devices$group/devices.allow"
fi
n=0
for gpu in $wanted; do
  [ -d "gpus/$gpu" ] || continue
  nsenter -t "$pid" -m mknod -m 666 "$root/dev/nvidia$n" c ${node}
  n=$((n + 1))
done
`
