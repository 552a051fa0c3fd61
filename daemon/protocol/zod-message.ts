/** One line for people from a failed parse: every issue with its path. */
import type { z } from 'zod'

export function zodMessage(error: z.ZodError): string {
  return error.issues.map(issueText).join('; ')
}

function issueText(issue: z.core.$ZodIssue): string {
  const path = pathText(issue.path)
  if (issue.code === 'unrecognized_keys') {
    const at = path === '' ? '' : ` in ${path}`
    const keys = issue.keys.map((key) => `"${key}"`).join(', ')
    return `unknown key${issue.keys.length > 1 ? 's' : ''} ${keys}${at}; remove it or correct its spelling`
  }
  if (issue.code === 'invalid_union' && issue.message === 'Invalid input') {
    const nested = issue.errors.flat().map(issueText)
    return `${path === '' ? 'value' : path}: ${nested.length > 0 ? nested.join(' or ') : issue.message}`
  }
  const text = plainText(issue)
  return path === '' ? text : `${path}: ${text}`
}

/** zod's own words where a schema has none of its own, said the way people say them. */
function plainText(issue: z.core.$ZodIssue): string {
  if (!/^(Invalid|Too (small|big))/.test(issue.message)) return issue.message
  if (issue.code === 'invalid_type')
    return issue.message.endsWith('received undefined')
      ? `is missing (${issue.expected})`
      : issue.message.replace('Invalid input: expected', 'must be').replace(', received', ', not')
  if (issue.code === 'too_small')
    return bound(
      issue.origin,
      String(issue.minimum),
      issue.inclusive === false ? 'above' : 'or more',
    )
  if (issue.code === 'too_big')
    return bound(
      issue.origin,
      String(issue.maximum),
      issue.inclusive === false ? 'below' : 'at most',
    )
  if (issue.code === 'invalid_union' && 'options' in issue && issue.options !== undefined)
    return `must be ${issue.options.map(String).join(' or ')}`
  if (issue.code === 'invalid_value') return `must be ${issue.values.map(String).join(' or ')}`
  return issue.message
}

function bound(origin: string, limit: string, how: string): string {
  const unit = origin === 'string' ? ' characters' : origin === 'array' ? ' entries' : ''
  return how === 'or more' ? `must be ${limit}${unit} or more` : `must be ${how} ${limit}${unit}`
}

/** `a.b[2].c` */
export function pathText(path: readonly PropertyKey[]): string {
  let text = ''
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`
    else text += text === '' ? String(part) : `.${String(part)}`
  }
  return text
}
