/** `closedbook task init|lint|import|show`: what authors do with task directories. */
import type { Command } from 'commander'
import { addTaskImport } from './import.ts'
import { addTaskInit } from './init.ts'
import { addTaskLint } from './lint.ts'
import { addTaskShow } from './show.ts'

export function addTask(program: Command): void {
  const task = program.command('task').description('write, check, import and show tasks')
  for (const add of [addTaskInit, addTaskLint, addTaskImport, addTaskShow]) add(task)
}
