/** What a request may do, once its credential was accepted; and what is thrown where it was not. */
import { ClosedbookError } from '../../protocol/errors.ts'
import type { Role } from '../../protocol/auth.ts'

export interface Access {
  readonly role: Role
  /** For logs and people: `socket`, or the name of a token. */
  readonly name: string
  /** Id of the token or session behind it; null for the unix socket. */
  readonly credential: string | null
  /** Aborts when that token or session is revoked or expires: a socket that stands on it must be closed (4001). */
  readonly over: AbortSignal
}

/** `anyone`: no credential is asked for; what it serves must be no secret. */
export type Need = Role | 'anyone'

export type AuthErrorCode =
  | 'unauthenticated'
  | 'forbidden'
  | 'host_refused'
  | 'origin_refused'
  | 'ticket_refused'
  | 'too_many_requests'

export class AuthError extends ClosedbookError {
  declare readonly code: AuthErrorCode

  constructor(code: AuthErrorCode, message: string) {
    super(code, 'caller', message)
  }
}

/** Where a request came in. The unix socket is open to root alone, so whoever speaks there is an admin. */
export type Door =
  | { readonly kind: 'socket' }
  | {
      readonly kind: 'network'
      readonly secure: boolean
      /** Names and addresses, without ports, that a Host header may have. */
      readonly names: ReadonlySet<string>
      /** Origins beside the door's own, where a proxy in front of it has another scheme or port. */
      readonly origins: ReadonlySet<string>
    }

export const never: AbortSignal = new AbortController().signal

export const socketAccess: Access = { role: 'admin', name: 'socket', credential: null, over: never }
