/** The OpenAPI 3.1 document of the API, made from what each route declares: role, schemas, content types. */
import { z } from 'zod'
import { packageVersion } from '../protocol/version.ts'
import { wireErrorSchema } from '../protocol/lease.ts'
import type { Need } from './auth/access.ts'
import type { Route, Router, RouteSpec } from './router.ts'

type Json = { [key: string]: unknown }

export function openApi(router: Pick<Router, 'routes' | 'upgrades'>): Json {
  const paths: Record<string, Json> = {}
  for (const route of router.routes) {
    const { method, path } = route
    // the pages themselves are not the API
    if (!/^\/(v1\/|health$|metrics$)/.test(path)) continue
    ;(paths[braced(path)] ??= {})[method.toLowerCase()] = operation(route)
  }
  for (const route of router.upgrades) {
    const at = (paths[braced(route.path)] ??= {})
    const method = route.path.endsWith('/exec') ? 'post' : 'get'
    const switches = { 101: { description: `switches protocols: ${route.summary}` } }
    // one path may answer as it is asked: with what there is, or by a socket
    const plain = at[method] as { responses: Json } | undefined
    if (plain === undefined)
      at[method] = {
        ...common(route, route.path),
        responses: { ...switches, default: failure },
      }
    else plain.responses = { ...switches, ...plain.responses }
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'closedbookd',
      version: packageVersion,
      description:
        'Sealed sandboxes, their audit, their terminals, and what runners publish. Errors: {code, message, blame}.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    paths,
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer' },
        session: { type: 'apiKey', in: 'cookie', name: 'closedbook-8480' },
      },
      schemas: { Error: schemaOf(wireErrorSchema) },
    },
  }
}

const failure: Json = {
  description: 'refused or failed',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
}

const braced = (path: string): string => path.replaceAll(/:(\w+)/g, '{$1}')

function common({ role, summary, query }: RouteSpec, path: string): Json {
  const names = [...path.matchAll(/:(\w+)/g)].map(([, name]) => name ?? '')
  return {
    summary,
    description: role === 'anyone' ? 'Needs no credential.' : `Needs the role ${role}.`,
    'x-closedbook-role': role satisfies Need,
    security: role === 'anyone' ? [] : [{ token: [] }, { session: [] }],
    parameters: [
      ...names.map((name) => ({
        name,
        in: 'path',
        required: true,
        schema: { type: 'string' },
      })),
      ...queryParameters(query),
    ],
  }
}

function operation(route: Route): Json {
  const { body, bodyType, answer, type, status = 200 } = route
  const content =
    type !== undefined
      ? { content: { [type]: {} } }
      : answer !== undefined
        ? { content: { 'application/json': { schema: schemaOf(answer) } } }
        : {}
  const accepted =
    body !== undefined
      ? { 'application/json': { schema: schemaOf(body, 'input') } }
      : bodyType !== undefined
        ? { [bodyType]: {} }
        : null
  return {
    ...common(route, route.path),
    ...(accepted === null ? {} : { requestBody: { required: true, content: accepted } }),
    responses: { [status]: { description: 'as asked', ...content }, default: failure },
  }
}

function queryParameters(query: z.ZodType | undefined): Json[] {
  if (query === undefined) return []
  const { properties = {}, required = [] } = schemaOf(query, 'input') as {
    properties?: Record<string, Json>
    required?: string[]
  }
  return Object.entries(properties).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema,
  }))
}

/** OpenAPI 3.1 takes JSON Schema as it is; what has no schema (a transform) is left open. */
function schemaOf(schema: z.ZodType, io: 'input' | 'output' = 'output'): Json {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { unrepresentable: 'any', io }) as Json
  return rest
}
