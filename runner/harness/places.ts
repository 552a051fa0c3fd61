/** Where a harness inside the task's container finds what is mounted for it, read-only. */
export const insidePlaces = {
  /** Static, and of no image: the shell and the tools of our own scripts. */
  busybox: '/.closedbook/busybox',
  /** The file system of the harness's image, or the harness's directory. */
  harness: '/closedbook/harness',
  config: '/closedbook/config',
  /** The one place that it may write, in the task's container. */
  scratch: '/tmp/closedbook-harness',
} as const
