import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { externalIdOf } from './catalog-samples.ts';
import { onCore } from './http-load.ts';
import '../support/api-key.ts';

/** Number of changes per request. All requests together stay below a branch's maximum of waiting changes. */
const PER_REQUEST = 2_500;
const PER_COMMIT = 500;
/** Number of first requests to each program that are not measured, so that both programs run optimised code. */
const WARM_UP = 3;

/**
 * Measures bulk changes over HTTP, which are durable when answered, against a bare loop of upserts into the same
 * schema.
 */
export async function measureAccepting(parent: string, options: BenchOptions): Promise<BenchResult[]> {
  const rounds = options.quick ? 1 : 7;
  const requests = WARM_UP + (options.quick ? 2 : 4);
  const ours: { fresh: number[]; again: number[] }[] = [];
  const bare: { fresh: number[]; again: number[] }[] = [];
  for (let round = 0; round < rounds; round++) {
    options.progress(`changes over HTTP, round ${round + 1} of ${rounds}`);
    ours.push(split(await overHttp(mkdtempSync(path.join(parent, 'http-')), requests), requests));
    bare.push(split(await bareLoop(mkdtempSync(path.join(parent, 'bare-')), requests), requests));
  }
  const figure = (which: 'fresh' | 'again', name: string): BenchResult => {
    const perSecond = (times: number[]) => PER_REQUEST / (median(times) / 1000);
    return {
      name,
      ratio: median(ours.map((each, i) => median(bare[i]?.[which] ?? []) / median(each[which]))),
      bound: '>= 0.5',
      detail:
        `requests of ${PER_REQUEST}, commits of ${PER_COMMIT}: ` +
        `${Math.round(median(ours.map((each) => perSecond(each[which]))))}/s over HTTP, ` +
        `${Math.round(median(bare.map((each) => perSecond(each[which]))))}/s in the loop`,
    };
  };
  return [
    figure('fresh', 'stock changes over HTTP, durable / bare upsert loop; new targets'),
    figure('again', 'stock changes over HTTP, durable / bare upsert loop; newer values'),
  ];
}

function split(times: number[], requests: number) {
  return { fresh: times.slice(WARM_UP, requests), again: times.slice(requests + WARM_UP) };
}

async function overHttp(directory: string, requests: number): Promise<number[]> {
  const args = [here('change-server.ts'), directory, String(requests * PER_REQUEST)];
  const child = spawn(...onCore(0, process.execPath, args), { stdio: ['pipe', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  const first = await Promise.race([once(child.stdout, 'data'), exit]);
  if (!Buffer.isBuffer(first[0])) throw new Error('The server ended before it listened.');
  const url = `${String(first[0]).trim()}/v1/stock`;
  try {
    const times: number[] = [];
    for (let round = 1; round <= 2; round++) {
      for (let request = 0; request < requests; request++) {
        times.push(await post(url, bodyOf(request * PER_REQUEST, round)));
      }
    }
    return times;
  } finally {
    child.stdin.end();
    await exit;
  }
}

function bodyOf(from: number, qty: number): string {
  return JSON.stringify(
    Array.from({ length: PER_REQUEST }, (_, n) => ({ externalId: externalIdOf(from + n), qty })),
  );
}

async function post(url: string, body: string): Promise<number> {
  const beganMs = performance.now();
  const answer = await fetch(url, { method: 'POST', body, headers: { 'content-type': 'application/json' } });
  const text = await answer.text();
  const tookMs = performance.now() - beganMs;
  if ((JSON.parse(text) as { pending?: number }).pending !== PER_REQUEST) {
    throw new Error(`Not everything was taken: ${text.slice(-200)}`);
  }
  return tookMs;
}

async function bareLoop(directory: string, requests: number): Promise<number[]> {
  const args = [here('upsert-loop.ts'), directory, requests * PER_REQUEST, PER_REQUEST, PER_COMMIT];
  const { stdout } = await promisify(execFile)(...onCore(0, process.execPath, args.map(String)));
  return JSON.parse(stdout) as number[];
}

const here = (name: string) => path.join(import.meta.dirname, name);
