/**
 * The schema `closedbook`, as steps that are applied in order and never changed afterwards. pg-boss keeps its own
 * tables in a schema beside it. Facts that must hold whatever a program does are constraints here: one live execution
 * and one standing result a trial, one holder an endpoint slot.
 */
import { RunnerError } from '../errors.ts'
import type { Database } from './database.ts'

const steps: readonly string[] = [
  `
  create table workers (
    worker text primary key,
    host text not null,
    boot_id text not null,
    pid int not null,
    start_time text not null,
    daemon text not null,
    classes text[] not null,
    slots int not null,
    state text not null default 'up' check (state in ('up', 'draining', 'down')),
    started_at timestamptz not null default now(),
    seen_at timestamptz not null default now()
  );
  create table plans (
    job text primary key,
    name text not null,
    plan jsonb not null,
    sources jsonb not null,
    digest text not null,
    job_dir text not null,
    host text not null,
    state text not null default 'open' check (state in ('open', 'paused', 'cancelled', 'done')),
    trials_at_once int not null check (trials_at_once > 0),
    per_configuration int check (per_configuration > 0),
    per_endpoint int check (per_endpoint > 0),
    budget_usd double precision check (budget_usd > 0),
    runner text references workers,
    created_at timestamptz not null default now()
  );
  create table trials (
    trial text primary key,
    job text not null references plans,
    task text not null,
    configuration text not null,
    run int not null,
    position int not null,
    hardware text not null,
    image text not null,
    harness_image text,
    endpoint text,
    ceiling_usd double precision not null,
    scheduling_group text not null,
    queue_job uuid unique,
    queued_at timestamptz,
    /** Faults of infrastructure before it no longer count: a void trial was given another chance. */
    allowance_from timestamptz not null default '-infinity',
    unique (job, task, configuration, run)
  );
  create index trials_of_job on trials (job);
  create table executions (
    trial text not null references trials,
    execution text not null,
    queue_job uuid not null,
    attempt int not null,
    worker text not null references workers,
    leases text[] not null,
    started_at timestamptz not null default now(),
    ended_at timestamptz,
    blame text check (blame in ('agent', 'infra', 'task', 'operator')),
    reason jsonb,
    cost_usd double precision not null default 0,
    primary key (trial, execution),
    unique (queue_job, attempt),
    check ((ended_at is null) = (reason is null))
  );
  create unique index one_live_execution on executions (trial) where ended_at is null;
  create index executions_of_worker on executions (worker) where ended_at is null;
  create table results (
    trial text not null references trials,
    execution text not null,
    verdict text not null check (verdict in ('passed', 'failed', 'void')),
    blame text,
    digest text not null,
    cost_usd double precision not null,
    wall_time_ms double precision not null,
    /** result.json as it is on disk. */
    body text not null,
    recorded_at timestamptz not null default now(),
    superseded_at timestamptz,
    primary key (trial, recorded_at)
  );
  create unique index one_standing_result on results (trial) where superseded_at is null;
  create table endpoint_slots (
    endpoint text not null,
    slot int not null,
    trial text not null,
    execution text not null,
    primary key (endpoint, slot),
    unique (trial, execution),
    foreign key (trial, execution) references executions
  );
  create table events (
    seq bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    kind text not null,
    job text,
    trial text,
    execution text,
    worker text,
    body jsonb not null default '{}'
  );
  create index events_of_job on events (job, seq);
  `,
  `
  create table packs (
    digest text primary key,
    bytes bytea not null
  );
  /** Its tasks and configurations, by digest; null in plans of before. */
  alter table plans add column packs jsonb;
  `,
  `
  /** What the values are sealed with that its tasks take from the host; null where they take none. */
  alter table plans add column host_key text;
  `,
]

/** One at a time over all processes; the second finds nothing to do. */
const lockKey = 7_220_231

export async function migrate(database: Database): Promise<void> {
  const [found] = await database.rows<{ ready: string | null }>(
    `select to_regclass('closedbook.migrations') as ready`,
  )
  if (found?.ready !== null && (await versionOf(database)) === steps.length) return
  await database.transaction(async (sql) => {
    await sql.rows('select pg_advisory_xact_lock($1)', [lockKey])
    await sql.rows('create schema if not exists closedbook')
    await sql.rows(
      'create table if not exists closedbook.migrations (version int primary key, at timestamptz not null default now())',
    )
    const version = await versionOf(sql)
    if (version > steps.length)
      throw new RunnerError(
        'store_newer',
        'operator',
        `the store was last used by a newer Closedbook (schema ${version}, this one knows ${steps.length}); use that version`,
      )
    await sql.rows('set local search_path to closedbook')
    for (const [index, step] of steps.entries()) {
      if (index < version) continue
      await sql.rows(step)
      await sql.rows('insert into closedbook.migrations (version) values ($1)', [index + 1])
    }
  })
}

async function versionOf(sql: Pick<Database, 'rows'>): Promise<number> {
  const [row] = await sql.rows<{ version: number | null }>(
    'select max(version) as version from closedbook.migrations',
  )
  return row?.version ?? 0
}
