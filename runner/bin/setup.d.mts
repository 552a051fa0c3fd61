export const root: string
export function which(name: string): string | undefined
export function setUp(say: (what: string) => void, options?: { readonly browser?: boolean }): string
