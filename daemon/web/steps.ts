/** The steps of a trial as a list that grows: what the model said, what it ran and how that ended, what was refused. */
import type { StepDocument } from '../protocol/board-documents.ts'
import { highlighted } from './code.ts'
import { h, type Child } from './dom.ts'
import { bytes, count, dollars, duration, exitGood, exitText, timeOfDay } from './format.ts'
import { line, plain } from './hostile.ts'

export interface StepList {
  readonly element: HTMLElement
  /** `follow`: the newest is kept in sight where the last one was. */
  add(steps: readonly StepDocument[], follow: boolean): void
  show(step: number): void
}

export function stepList(onTime: ((iso: string) => void) | null): StepList {
  const list = h('ol', { class: 'steps' })
  const nothing = h('p', { class: 'empty' }, 'No step yet.')
  const element = h(
    'div',
    { class: 'steps-box', tabindex: 0, role: 'region', aria: { label: 'steps' } },
    nothing,
    list,
  )
  const items = new Map<number, HTMLElement>()
  return {
    element,
    add(steps, follow) {
      const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40
      for (const step of steps) {
        if (items.has(step.step)) continue
        const item = stepItem(step, onTime)
        items.set(step.step, item)
        list.append(item)
      }
      nothing.hidden = items.size > 0
      if (follow && atEnd && steps.length > 0) element.scrollTop = element.scrollHeight
    },
    show(number) {
      const item = items.get(number)
      if (item === undefined) return
      for (const one of items.values()) one.classList.remove('pointed')
      item.classList.add('pointed')
      item.scrollIntoView({ block: 'nearest' })
    },
  }
}

function stepItem(step: StepDocument, onTime: ((iso: string) => void) | null): HTMLElement {
  const { tokens } = step
  const when: Child =
    onTime === null
      ? h('time', { datetime: step.time }, timeOfDay(step.time))
      : h(
          'button',
          {
            type: 'button',
            class: 'link',
            title: 'show in the recording',
            on: { click: () => onTime(step.time) },
          },
          timeOfDay(step.time),
        )
  return h(
    'li',
    { class: `step ${step.denied.length > 0 ? 'with-denied' : ''}` },
    h(
      'header',
      {},
      h('span', { class: 'step-number' }, `#${step.step}`),
      when,
      tokens === null
        ? null
        : h(
            'span',
            { class: 'quiet' },
            `${count(tokens.input)} in · ${count(tokens.output)} out · ${dollars(step.costUsd)}`,
          ),
    ),
    step.text === null || step.text === '' ? null : h('p', { class: 'thought' }, plain(step.text)),
    ...step.commands.map((command) =>
      h(
        'div',
        { class: 'command' },
        h('pre', { class: 'command-line' }, ...highlighted(plain(command.command), 'bash')),
        h(
          'div',
          { class: 'command-end' },
          h(
            'span',
            { class: exitGood(command.exit) ? 'good' : command.exit === null ? 'quiet' : 'bad' },
            exitText(command.exit),
          ),
          command.cause !== null && command.cause !== 'exited'
            ? h('span', { class: 'bad' }, line(command.cause))
            : null,
          command.durationMs === null
            ? null
            : h('span', { class: 'quiet' }, duration(command.durationMs)),
          command.outputBytes === null
            ? null
            : h('span', { class: 'quiet' }, bytes(command.outputBytes)),
        ),
        output(command),
      ),
    ),
    ...step.denied.map(({ protocol, target, reason, count: times }) =>
      h(
        'p',
        { class: 'denied' },
        h('span', { class: 'sign' }, '⊘'),
        ` ${line(target, 120)} `,
        h(
          'span',
          { class: 'quiet' },
          `${protocol}, ${reason}${times > 1 ? `, ${count(times)} times` : ''}`,
        ),
      ),
    ),
  )
}

function output({ head, tail, outputBytes }: StepDocument['commands'][number]): HTMLElement | null {
  if (head === '' && tail === '') return null
  const left = (outputBytes ?? 0) - new Blob([head, tail]).size
  const whole =
    left > 0 ? `${plain(head)}\n… ${bytes(left)} left out …\n${plain(tail)}` : plain(head + tail)
  const lines = whole.split('\n').length
  return h(
    'details',
    { class: 'output', open: lines <= 6 },
    h('summary', {}, `output, ${count(lines)} ${lines === 1 ? 'line' : 'lines'}`),
    h('pre', {}, whole),
  )
}
