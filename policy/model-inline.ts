/**
 * What the model APIs share inside their messages and tools: data that must be in the request itself, since whatever a
 * provider fetches for an agent is a way out of the sandbox; names of tools; marks for the provider's cache.
 */
import { fieldsOf, no, only, quote, shaped, text, type Check } from './model-check.ts'

const inlineImage = /^data:image\/(?:png|jpe?g|gif|webp);base64,/i
const inlineFile = /^data:[a-z0-9.+-]+\/[a-z0-9.+-]+;base64,/i
/** Searches for a character that isn't base64: linear, where a match of the whole would go back and forth. */
const notBase64 = /[^A-Za-z0-9+/=]/

export const imageUrl: Check = (value, at) =>
  typeof value === 'string' && inlineImage.test(value)
    ? null
    : no(
        'remote_url_denied',
        at,
        'must be a data: URL that holds a png, jpeg, gif or webp in base64',
      )

export const base64: Check = (value, at) =>
  typeof value === 'string' && !notBase64.test(value)
    ? null
    : no('remote_url_denied', at, 'must be base64')

export const fileData: Check = (value, at) =>
  typeof value === 'string' && (inlineFile.test(value) || !notBase64.test(value))
    ? null
    : no('remote_url_denied', at, 'must be a data: URL or base64')

/** Providers give names outside this grammar (`$web_search`, `openrouter:web_search`) to tools of their own. */
const nameGrammar = /^[A-Za-z0-9_.-]{1,128}$/

export const toolName: Check = (value, at) =>
  typeof value === 'string' && nameGrammar.test(value)
    ? null
    : no('tool_denied', at, `${quote(value)} is not a name for a tool of the sandbox`)

/** Writes that are kept for longer than the provider's shortest time have another price, which no table here has. */
export const cacheControl: Check = shaped(
  fieldsOf({ type: text, ttl: only(['5m'], 'may only be "5m": longer ones have another price') }),
)

/** Without a word, and with these, a request has the provider's standard price. */
export const serviceTier: Check = only(
  ['auto', 'default', 'standard_only'],
  'may only be auto, default or standard_only: the others have another price',
)
