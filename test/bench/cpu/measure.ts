import { readdirSync, readFileSync } from 'node:fs';

/** Processor time of one thing that tillsync does, beside a bare loop that does what cannot be left out of it. */
export interface CpuMeasure {
  /** As `kept.json` has it. */
  name: string;
  /** What the bare loop beside it does. */
  beside: string;
  /** At least. */
  rounds: number;
  open(directory: string): Promise<Sides>;
}

/** Each takes a round and gives the microseconds of processor time of one unit. */
export interface Sides {
  ours(): Promise<number>;
  bare(): Promise<number>;
  close(): Promise<void> | void;
}

export interface CpuFigure {
  ratio: number;
  oursUs: number;
  bareUs: number;
}

/** The least of a side counts once it was met three times within so much. */
const MET = 1.02;
/** On a busy machine so many times the rounds. */
const LONGER = 2;

/**
 * Short rounds in turns, and of each side the least: what else runs on the machine takes caches and only ever adds to
 * what a round takes, and it adds more to the side that uses more memory, so a mean would follow the machine.
 */
export async function measureCpu(sides: Sides, rounds: number): Promise<CpuFigure> {
  const ours: number[] = [];
  const bare: number[] = [];
  for (let round = 0; round < LONGER * rounds; round++) {
    if (round >= rounds && isMet(ours) && isMet(bare)) break;
    const isFirst = round % 2 === 0;
    if (isFirst) ours.push(await sides.ours());
    bare.push(await sides.bare());
    if (!isFirst) ours.push(await sides.ours());
  }
  const least = { oursUs: Math.min(...ours), bareUs: Math.min(...bare) };
  return { ratio: least.oursUs / least.bareUs, ...least };
}

function isMet(times: readonly number[]): boolean {
  const [least = 0, , third = Number.POSITIVE_INFINITY] = times.toSorted((a, b) => a - b);
  return third <= least * MET;
}

/** Microseconds of all threads of this process while `action` runs, for each of its `units`. */
export async function ownCpu(units: number, action: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await action();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / units;
}

/** The same of another process; Infinity where one of its threads ended meanwhile, whose part nobody knows. */
export async function cpuOf(pid: number, units: number, action: () => unknown): Promise<number> {
  const before = spent(pid);
  await action();
  const after = spent(pid);
  if (before.threads.size === 0) return (after.us - before.us) / units;
  if ([...before.threads.keys()].some((id) => !after.threads.has(id))) return Number.POSITIVE_INFINITY;
  return (sumOf(after.threads) - sumOf(before.threads)) / units;
}

/** Microseconds since a process was started. */
export function spentUs(pid: number): number {
  const { us, threads } = spent(pid);
  return Math.max(us, sumOf(threads));
}

/** Linux counts in hundredths of a second, whatever the machine. */
const TICK_US = 10_000;

interface Spent {
  /** Of all threads, also those that have ended; in whole ticks. */
  us: number;
  /** Exact, of each thread that is there; none where the kernel does not tell. */
  threads: Map<string, number>;
}

function spent(pid: number): Spent {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name of the program comes in brackets and may have blanks in it.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const us = (Number(fields[11]) + Number(fields[12])) * TICK_US;
  const threads = new Map<string, number>();
  for (const id of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ns] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ');
      threads.set(id, Number(ns) / 1000);
    } catch {
      // It has just ended, or this kernel keeps no such file.
    }
  }
  return { us, threads };
}

function sumOf(threads: ReadonlyMap<string, number>): number {
  return [...threads.values()].reduce((sum, us) => sum + us, 0);
}
