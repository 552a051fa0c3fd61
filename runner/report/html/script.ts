/** What the page can do by itself: sort a table, filter trials, choose light or dark, open all for paper. No requests. */
export const script = `
'use strict'
for (const button of document.querySelectorAll('th button')) button.addEventListener('click', () => {
  const head = button.closest('th'), table = head.closest('table'), body = table.tBodies[0]
  const down = head.getAttribute('aria-sort') === 'ascending'
  for (const other of table.querySelectorAll('th[aria-sort]')) other.setAttribute('aria-sort', 'none')
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending')
  const at = head.cellIndex
  const rows = [...body.rows].map((row, index) => {
    const cell = row.cells[at], sort = cell ? cell.dataset.sort : undefined
    return { row, index, text: cell ? cell.textContent.trim() : '', number: sort === undefined ? NaN : Number(sort) }
  })
  const sign = down ? -1 : 1
  rows.sort((a, b) => sign * (Number.isNaN(a.number) || Number.isNaN(b.number)
    ? a.text.localeCompare(b.text, 'en', { numeric: true }) : a.number - b.number) || a.index - b.index)
  body.append(...rows.map(({ row }) => row))
})
const text = document.getElementById('filter'), verdict = document.getElementById('verdict'), told = document.getElementById('told')
if (text) {
  const rows = [...document.querySelectorAll('#trials tbody tr')].map((row) => ({ row, all: row.textContent.toLowerCase() }))
  const apply = () => {
    let count = 0
    for (const { row, all } of rows) {
      const show = all.includes(text.value.toLowerCase()) && (verdict.value === '' || row.dataset.verdict === verdict.value)
      row.hidden = !show
      if (show) count += 1
    }
    told.textContent = count + ' of ' + rows.length + ' trials'
  }
  text.addEventListener('input', apply)
  verdict.addEventListener('change', apply)
}
const theme = document.getElementById('theme')
theme.hidden = false
theme.addEventListener('click', () => {
  const root = document.documentElement
  const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  root.dataset.theme = dark ? 'light' : 'dark'
})
addEventListener('beforeprint', () => { for (const one of document.querySelectorAll('details')) one.open = true })
`
