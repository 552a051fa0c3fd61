/** What a GPU, its driver or its tools did instead of answering. It never leaves daemon/gpu but as a reason. */
export class GpuFault extends Error {
  readonly kind: 'hang' | 'failed' | 'unreadable'

  constructor(kind: GpuFault['kind'], message: string) {
    super(message)
    this.name = 'GpuFault'
    this.kind = kind
  }
}
