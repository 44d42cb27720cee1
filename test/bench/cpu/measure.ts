import { readdirSync, readFileSync } from 'node:fs';

/** Processor time of one thing that tillsync does, compared with a bare loop of its indispensable parts. */
export interface CpuMeasure {
  /** Name of the measure in `kept.json`. */
  name: string;
  /** Description of the bare loop. */
  beside: string;
  /** Least number of rounds. */
  rounds: number;
  open(directory: string): Promise<Sides>;
}

/** `ours` and `bare` each run a round and return the CPU time of one unit in microseconds. */
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

/** A side's minimum is accepted once its three lowest values lie within this factor. */
const MET = 1.02;
/** Maximum number of rounds, as a multiple of the least number. A busy machine needs more rounds. */
const LONGER = 2;

/**
 * Alternates short rounds of both sides and takes each side's minimum, because the machine's other work only adds time.
 * Such work adds more time to the side that uses more memory, so a mean would depend on the machine.
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

/** Returns the CPU time of all threads of this process during `action`, in microseconds per unit. */
export async function ownCpu(units: number, action: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await action();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / units;
}

/**
 * Returns the CPU time of another process during `action`, in microseconds per unit; Infinity if one of its threads
 * ended meanwhile, because the time of that thread is then unknown.
 */
export async function cpuOf(pid: number, units: number, action: () => unknown): Promise<number> {
  const before = spent(pid);
  await action();
  const after = spent(pid);
  if (before.threads.size === 0) return (after.us - before.us) / units;
  if ([...before.threads.keys()].some((id) => !after.threads.has(id))) return Number.POSITIVE_INFINITY;
  return (sumOf(after.threads) - sumOf(before.threads)) / units;
}

/** Returns the CPU time of a process since its start, in microseconds. */
export function spentUs(pid: number): number {
  const { us, threads } = spent(pid);
  return Math.max(us, sumOf(threads));
}

/** Unit of the CPU times in /proc/PID/stat, which is a hundredth of a second on every machine. */
const TICK_US = 10_000;

interface Spent {
  /** Time of all threads, including ended ones, in whole ticks. */
  us: number;
  /** Exact time of each present thread; empty if the kernel does not report it. */
  threads: Map<string, number>;
}

function spent(pid: number): Spent {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The program's name is in brackets and may contain blanks.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const us = (Number(fields[11]) + Number(fields[12])) * TICK_US;
  const threads = new Map<string, number>();
  for (const id of readdirSync(`/proc/${pid}/task`)) {
    try {
      const [ns] = readFileSync(`/proc/${pid}/task/${id}/schedstat`, 'utf8').split(' ');
      threads.set(id, Number(ns) / 1000);
    } catch {
      // The process has just ended, or this kernel has no such file.
    }
  }
  return { us, threads };
}

function sumOf(threads: ReadonlyMap<string, number>): number {
  return [...threads.values()].reduce((sum, us) => sum + us, 0);
}
