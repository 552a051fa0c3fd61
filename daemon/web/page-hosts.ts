/** The host of this daemon: what it has, what it lends to whom, and what is left. */
import type { GpuReport, GpuView } from '../protocol/gpu.ts'
import type { HostLoad } from '../protocol/host-load.ts'
import type { HostFacts, LeaseView } from '../protocol/lease.ts'
import { json } from './api.ts'
import { fill, h } from './dom.ts'
import { bytes, duration, instant } from './format.ts'
import { line } from './hostile.ts'
import { poll, type Page } from './page.ts'
import { table } from './table.ts'

export function hostsPage(page: Page): void {
  const { root, signal } = page
  page.title('Host')
  const head = h('p', { class: 'quiet' })
  const meters = h('div', { class: 'tiles' })
  const gpuNote = h('p', { class: 'quiet' })
  const gpus = gpuTable()
  const leases = leaseTable()
  root.append(
    h('h1', {}, 'Host'),
    head,
    meters,
    h('section', { class: 'card' }, h('h2', {}, 'GPUs'), gpuNote, gpus.element),
    h('section', { class: 'card' }, h('h2', {}, 'Open leases'), leases.element),
  )
  poll(
    async () => {
      const [host, load, report, open] = await Promise.all([
        json<HostFacts>('/v1/host', { signal }),
        json<HostLoad>('/v1/host/load', { signal }),
        json<GpuReport>('/v1/gpus', { signal }),
        json<{ leases: LeaseView[] }>('/v1/leases', { signal }),
      ])
      fill(
        head,
        h('strong', {}, host.name),
        ` · ${host.cpus} CPUs · ${bytes(host.memoryBytes)} · engine ${host.engine} · kernel ${host.kernel} · cgroup ${host.cgroupVersion} · closedbookd ${host.closedbookVersion}, up ${duration(load.uptimeSeconds * 1000)}`,
      )
      const cpus = open.leases.reduce((total, lease) => total + lease.resources.cpus, 0)
      const lent = open.leases.reduce((total, lease) => total + lease.resources.memoryBytes, 0)
      fill(
        meters,
        meter('load', load.load, load.cpus, `${load.load.toFixed(2)} of ${load.cpus} CPUs`),
        meter(
          'memory in use',
          load.memoryBytes - load.freeMemoryBytes,
          load.memoryBytes,
          `${bytes(load.memoryBytes - load.freeMemoryBytes)} of ${bytes(load.memoryBytes)}`,
        ),
        meter(
          'memory lent',
          lent,
          load.memoryBytes,
          `${bytes(lent)}, ${cpus} CPUs, ${open.leases.length} leases`,
        ),
        ...load.disks.map((disk) =>
          meter(
            // the end of a path tells two of them apart
            `disk of ${line(disk.path.split('/').slice(-2).join('/'), 60)}`,
            disk.bytes - disk.freeBytes,
            disk.bytes,
            `${bytes(disk.freeBytes)} free of ${bytes(disk.bytes)}`,
          ),
        ),
      )
      fill(
        gpuNote,
        report.refusal !== null
          ? `No GPU is lent: ${report.refusal}`
          : report.gpus.length === 0
            ? 'This host has no GPU, or lends none.'
            : `Passed by ${report.mode === 'cdi' ? 'device specs (CDI)' : "NVIDIA's hook"}, container toolkit ${report.toolkit ?? 'of an unknown version'}.`,
      )
      gpus.element.hidden = report.gpus.length === 0
      gpus.update(report.gpus)
      leases.update(open.leases)
    },
    2_000,
    page,
  )
}

function meter(title: string, value: number, all: number, below: string): HTMLElement {
  const part = all === 0 ? 0 : Math.min(1, value / all)
  const fillBar = h('span', { class: `bar-fill ${part > 0.9 ? 'full' : ''}` })
  fillBar.style.width = `${part * 100}%`
  return h(
    'div',
    { class: 'tile' },
    h('span', { class: 'tile-title' }, title),
    h('span', { class: 'bar wide', aria: { hidden: true } }, fillBar),
    h('span', { class: 'quiet' }, below),
  )
}

function gpuTable() {
  return table<GpuView>({
    label: 'GPUs',
    key: ({ uuid }) => uuid,
    empty: '',
    columns: [
      { key: 'name', title: 'GPU', value: (gpu) => gpu.name },
      {
        key: 'uuid',
        title: 'UUID',
        value: (gpu) => gpu.uuid,
        show: (gpu) => h('span', { class: 'mono' }, gpu.uuid),
      },
      {
        key: 'state',
        title: 'state',
        value: (gpu) => gpu.state,
        show: (gpu) => h('span', { class: `badge gpu-${gpu.state}` }, gpu.state),
      },
      {
        key: 'memory',
        title: 'memory',
        number: true,
        value: (gpu) => gpu.memoryUsedBytes,
        show: (gpu) => `${bytes(gpu.memoryUsedBytes)} / ${bytes(gpu.memoryBytes)}`,
      },
      { key: 'lease', title: 'lease', value: (gpu) => gpu.lease },
      {
        key: 'reason',
        title: 'reason',
        value: (gpu) => (gpu.reason === null ? null : line(gpu.reason)),
      },
    ],
  })
}

function leaseTable() {
  return table<LeaseView>({
    label: 'open leases',
    key: ({ lease }) => lease,
    empty: 'No lease is open.',
    sort: { key: 'created', down: true },
    columns: [
      {
        key: 'lease',
        title: 'lease',
        value: (one) => one.lease,
        show: (one) =>
          h(
            'a',
            { class: 'mono', href: `/audit?lease=${encodeURIComponent(one.lease)}` },
            one.lease,
          ),
      },
      {
        key: 'state',
        title: 'state',
        value: (one) => one.state,
        show: (one) => h('span', { class: `badge lease-${one.state}` }, one.state),
      },
      {
        key: 'trial',
        title: 'trial',
        value: (one) => one.trial,
        show: (one) =>
          one.trial === null
            ? '–'
            : h(
                'a',
                { class: 'mono', href: `/trials/${encodeURIComponent(one.trial)}` },
                line(one.trial, 40),
              ),
      },
      { key: 'owner', title: 'owner', value: (one) => line(one.owner, 60) },
      { key: 'network', title: 'network', value: (one) => one.network },
      {
        key: 'image',
        title: 'image',
        value: (one) => one.image,
        show: (one) =>
          h('span', { class: 'mono' }, line(one.image.replace(/^sha256:/, '').slice(0, 40), 24)),
      },
      { key: 'cpus', title: 'CPUs', number: true, value: (one) => one.resources.cpus },
      {
        key: 'memory',
        title: 'memory',
        number: true,
        value: (one) => one.resources.memoryBytes,
        show: (one) => bytes(one.resources.memoryBytes),
      },
      { key: 'gpus', title: 'GPUs', number: true, value: (one) => one.gpus.length },
      {
        key: 'created',
        title: 'created',
        value: (one) => one.createdAt,
        show: (one) => instant(one.createdAt),
      },
      {
        key: 'expires',
        title: 'expires',
        value: (one) => one.expiresAt,
        show: (one) => instant(one.expiresAt),
      },
    ],
  })
}
