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
  return path === '' ? issue.message : `${path}: ${issue.message}`
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
