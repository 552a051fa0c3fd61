/** Environment, labels and history of an image: what was baked in without being a file. */
import type { Findings } from '../finding.ts'
import { proxyIn, secretInSetting, secretsIn, urlPasswords } from '../secrets.ts'
import type { ImageConfig } from './saved-image.ts'

export function checkImageSettings(findings: Findings, { config, history }: ImageConfig): void {
  for (const setting of config?.Env ?? []) {
    const equals = setting.indexOf('=')
    const name = setting.slice(0, equals)
    const value = setting.slice(equals + 1)
    check(findings, 'image:env', `the environment of the image sets ${name}`, name, value)
  }
  for (const [name, value] of Object.entries(config?.Labels ?? {}))
    for (const { kind, shown } of secretsIn(value))
      findings.add(
        'baked-secret',
        'image:labels',
        `label ${name} holds ${kind} ${shown}: rebuild without it`,
      )
  for (const [index, { created_by: command = '', comment = '' }] of (history ?? []).entries()) {
    const where = `step ${index + 1} of the history`
    for (const { kind, shown } of [...secretsIn(`${command} ${comment}`), ...urlPasswords(command)])
      findings.add(
        'baked-secret',
        'image:history',
        `${where} holds ${kind} ${shown}: use RUN --mount=type=secret, and revoke it if it was real`,
      )
    // Build arguments stand before the command: |2 NAME=value NAME=value /bin/sh -c …
    const [, counted = '0', rest = ''] = /^\|(\d+) (.*)$/s.exec(command) ?? []
    for (const word of rest.split(' ').slice(0, Number(counted))) {
      const equals = word.indexOf('=')
      if (equals > 0)
        check(
          findings,
          'image:history',
          `${where} keeps the build argument ${word.slice(0, equals)}`,
          word.slice(0, equals),
          word.slice(equals + 1),
        )
    }
  }
}

function check(findings: Findings, file: string, what: string, name: string, value: string): void {
  if (secretInSetting(name, value) || secretsIn(value).length > 0 || urlPasswords(value).length > 0)
    findings.add(
      'baked-secret',
      file,
      `${what}, which holds a secret: rebuild without it, and revoke it if it was real`,
    )
  if (proxyIn(name, value))
    findings.add(
      'baked-proxy',
      file,
      `${what}: the sandbox has no such host, and programs will try it; rebuild without it`,
    )
}
