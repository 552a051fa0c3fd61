import t from 'tap'
import { claimOf, findTests, withContradiction } from '../../../runner/trial/contradiction.ts'

const first = (): number => 0
const copy = (source: string): string | null => withContradiction(source, 'test_new', first)

t.test('a copy asserts what the test asserts, and at its end the contrary', async (t) => {
  const source = `import pytest

from product import work


@pytest.mark.parametrize(
    "value",
    [1, (2)],
)
def test_work(value, tmp_path):
    """Says so."""
    result = work(value)
    assert result  # early
    assert result.text == "a, b (c)", f"of {value}"
    result.close()


VALUES = [1]
`
  t.equal(
    copy(source),
    `${source}

@pytest.mark.parametrize(
    "value",
    [1, (2)],
)
def test_new(value, tmp_path):
    """Says so."""
    result = work(value)
    assert result  # early
    seen = (result.text == "a, b (c)")
    assert seen
    result.close()
    assert not seen
`,
  )
})

t.test('a method of a class is copied into its class', async (t) => {
  const source = `class TestWork(unittest.TestCase):
    def test_work(self):
        self.assertEqual(work(1, 2), [3])

    def helper(self):
        return 1


class Other:
    pass
`
  t.equal(
    copy(source),
    `class TestWork(unittest.TestCase):
    def test_work(self):
        self.assertEqual(work(1, 2), [3])

    def helper(self):
        return 1

    def test_new(self):
        seen = (work(1, 2), [3],)
        self.assertEqual(*seen)
        self.assertNotEqual(*seen)


class Other:
    pass
`,
  )
})

t.test('a test that leaves asserting to others gets what is false anyhow', async (t) => {
  const source = 'def test_work():\n    check(work(), [1])\n'
  t.equal(
    copy(source),
    `${source}

def test_new():
    check(work(), [1])
    seen = list(range(2))
    assert len(seen) == 3
`,
  )
})

t.test('a test that asserts is preferred to one that does not', async (t) => {
  t.match(
    copy('def test_a():\n    check()\n\n\ndef test_b():\n    assert b()\n'),
    /seen = \(b\(\)\)/,
  )
})

t.test('the name of the value is one that the file does not have', async (t) => {
  t.match(
    copy('seen = 1\n\n\ndef test_a():\n    assert found(seen)\n'),
    /observed = \(found\(seen\)\)/,
  )
})

t.test('what might be misread is not copied', async (t) => {
  const cases: readonly (readonly [string, string])[] = [
    ['it may end early', 'def test_a():\n    if x:\n        return\n    assert a()\n'],
    ['it may be skipped', 'def test_a():\n    pytest.skip("no")\n    assert a()\n'],
    ['it is a generator', 'def test_a():\n    yield 1\n    assert a()\n'],
    ['its head has several lines', 'def test_a(\n    x,\n):\n    assert a()\n'],
    [
      'a text over several lines seems to end it',
      'def test_a():\n    x = """\nassert\n"""\n    assert a()\n',
    ],
    ['a line goes on', 'def test_a():\n    x = 1 + \\\n        2\n    assert a()\n'],
    ['tabs', 'def test_a():\n\tassert a()\n'],
    ['what stands before it is no decorator', 'x = 1\ndef test_a():\n    assert a()\n'],
    ['a decorator that does not close', '@mark(\ndef test_a():\n    assert a()\n'],
    ['a function that is no test', 'def check():\n    assert a()\n'],
    ['a function within a function', 'def outer():\n    def test_a():\n        assert a()\n'],
  ]
  for (const [why, source] of cases) t.equal(copy(source), null, why)
  t.strictSame(findTests([]), [])
})

t.test('only plain assertions of one line are taken', async (t) => {
  const cases: readonly (readonly [string, string | null])[] = [
    ['    assert a == b', 'a == b'],
    ['    assert a(1, 2), "why, so"', 'a(1, 2)'],
    ['    assert "#, (" in a  # a comment, (', '"#, (" in a'],
    ['    assert (a,', null],
    ['    assert a == "b', null],
    ['    assert f(lambda x, y: x)', null],
    ['    assert (x := a())', null],
    ['        assert a', null],
    ['    assertion = a', null],
    ['    assert', null],
    ['    self.assertIn(a, b)', 'a, b,'],
    ['    self.assertEqual(a, b, msg="c")', null],
    ['    self.assertEqual(*pair)', null],
    ['    self.assertRaises(ValueError)', null],
  ]
  for (const [line, what] of cases) t.equal(claimOf(line, 0)?.what ?? null, what, line)
})
