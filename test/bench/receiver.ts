import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ordersInMirror } from './bench-keeper.ts';
import { type BenchOptions, type BenchResult, median } from './bench-result.ts';
import { LOADER, type LoadReport, loadHttp } from './http-load.ts';
import { measureLone } from './lone-callback.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET, startServer } from './server-process.ts';

const MODES = ['bare', 'tillsync', 'per-request'] as const;
type Mode = (typeof MODES)[number];
const CONNECTIONS = 50;

/** Callbacks: durable and visible when answered, against storing nothing and against a commit for each. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-bench-'));
  try {
    const results: BenchResult[] = [];
    for (const newConnections of [false, true]) {
      results.push(...(await compare(directory, newConnections, options)));
    }
    results.push(...(await measureLone(directory, options)));
    return results;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

async function compare(
  directory: string,
  newConnections: boolean,
  options: BenchOptions,
): Promise<BenchResult[]> {
  const rounds = options.quick ? 3 : 7;
  const seconds = options.quick ? 2 : 5;
  const reports: Record<Mode, LoadReport[]> = { bare: [], tillsync: [], 'per-request': [] };
  const kind = newConnections ? 'a new connection each' : 'kept-alive';
  for (let round = 0; round < rounds; round++) {
    for (const mode of MODES) {
      options.progress(`${kind}, round ${round + 1} of ${rounds}: ${mode}`);
      reports[mode].push(await loadOnce(directory, mode, newConnections, seconds));
    }
  }
  const ratios = (than: Mode) =>
    reports.tillsync.map((ours, i) => ours.requestsPerSecond / (reports[than][i]?.requestsPerSecond ?? 0));
  const figures = (mode: Mode) =>
    `${mode} ${Math.round(median(reports[mode].map((r) => r.requestsPerSecond)))}/s ` +
    `(p50 ${median(reports[mode].map((r) => r.p50Ms)).toFixed(1)}, p99 ${median(reports[mode].map((r) => r.p99Ms)).toFixed(1)} ms)`;
  const of = `${CONNECTIONS} connections, ${kind}`;
  return [
    {
      name: `durable callbacks / the same without storing, ${of}`,
      ratio: median(ratios('bare')),
      bound: '>= 0.40',
      detail: `${figures('tillsync')}, ${figures('bare')}; ${LOADER}`,
    },
    {
      name: `durable callbacks / a commit for each, ${of}`,
      ratio: median(ratios('per-request')),
      bound: '>= 4',
      detail: figures('per-request'),
    },
  ];
}

/** One server, one load, and the proof that every acknowledged order is in the mirror. */
async function loadOnce(
  parent: string,
  mode: Mode,
  newConnections: boolean,
  seconds: number,
): Promise<LoadReport> {
  const directory = mkdtempSync(path.join(parent, `${mode}-`));
  const bodyFile = path.join(directory, 'order.json');
  writeFileSync(bodyFile, sampleOrder('ORDER_ID', 1234));
  const server = await startServer(mode, directory);
  const load = { url: server.url, secret: SECRET, bodyFile, connections: CONNECTIONS, newConnections };
  try {
    await loadHttp({ ...load, idPrefix: 'warm', seconds: 1 });
    const before = mode === 'bare' ? 0 : ordersInMirror(directory);
    const report = await loadHttp({ ...load, idPrefix: 'load', seconds });
    await server.stop();
    if (report.failed > 0 && mode !== 'per-request')
      throw new Error(`${mode}: ${report.failed} deliveries failed`);
    if (mode !== 'bare' && ordersInMirror(directory) - before < report.acknowledged) {
      throw new Error(`${mode}: acknowledged orders are missing in the mirror`);
    }
    return report;
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true });
  }
}
