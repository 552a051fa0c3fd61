/**
 * What an agent made, for people's eyes: control characters are shown, not obeyed, and neither are the marks that
 * turn the direction of text or hide in it. Titles and addresses are cut. Pure.
 */
const unsafe =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g

/** Of several lines; tabs and newlines stay. Colours and other sequences of terminals are taken out. */
export function plain(text: string): string {
  return text.replaceAll('\r\n', '\n').replaceAll(sequences, '').replaceAll(unsafe, shownControl)
}

const sequences =
  // eslint-disable-next-line no-control-regex
  /\u001b(?:\[[0-9;:?<=>!]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[PX^_][^\u001b]*\u001b\\|[ -/]*[0-~])/g

function shownControl(character: string): string {
  const code = character.codePointAt(0) ?? 0
  if (code < 0x20) return String.fromCodePoint(0x2400 + code)
  return `\\u${code.toString(16).padStart(4, '0')}`
}

/** One line. */
export const line = (text: string, limit = 300): string => {
  const one = plain(text).replaceAll(/\s+/g, ' ').trim()
  return one.length > limit ? `${one.slice(0, limit)}…` : one
}

/** An address that may be offered to a person, or null. */
export function webAddress(text: string): URL | null {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol) || text.length > 2000) return null
  return url.username === '' && url.password === '' ? url : null
}
