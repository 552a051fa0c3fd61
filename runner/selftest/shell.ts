/** Pieces of shell commands for the busybox of a sandbox, which `$b` names. */

/** Bytes for the shell's printf; as octal, so that nothing in them is taken for anything else. */
const octal = (bytes: string | Buffer): string =>
  [...Buffer.from(bytes as string, 'latin1')]
    .map((byte) => `\\${byte.toString(8).padStart(3, '0')}`)
    .join('')

export const send = (bytes: string | Buffer, address: string, port: number): string =>
  `printf '${octal(bytes)}' | $b nc -w 3 ${address} ${port}`

/** Leaves status and reason of an HTTP answer: `403 not_allowed_host`. */
export const answerOf =
  "$b tr -d '\\r' | $b sed -n '1s/^HTTP.1.1 \\([0-9]*\\).*/\\1/p;s/^x-closedbook-reason: //Ip' | $b tr '\\n' ' '"
