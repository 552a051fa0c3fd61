import t from 'tap'
import { nothingAllowed } from '../../policy/policy.ts'
void t.test('a policy that was not given allows nothing', (t) => {
  t.strictSame(nothingAllowed.connect.allow, [])
  t.end()
})
