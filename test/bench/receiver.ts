import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type BenchOptions, type BenchResult, median, spread } from './bench-result.ts';
import { LOADER, type LoadReport, loadHttp } from './http-load.ts';
import { measureLone } from './lone-callback.ts';
import { type Candidate, type Missing, openCandidates, TILLSYNC } from './receiver-candidates.ts';
import { sampleOrder } from './sample-order.ts';
import { SECRET } from './server-process.ts';
import { measureStatusChanges } from './status-changes.ts';

const CONNECTIONS = 50;

export const expectedSeconds = { quick: 50, full: 560 };

/**
 * Measures callbacks that are durable and visible when answered, against storing nothing and against other solutions.
 */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-bench-'));
  const { candidates, missing } = await openCandidates();
  try {
    const results: BenchResult[] = [];
    for (const newConnections of [false, true]) {
      results.push(...(await compare(directory, { candidates, missing, newConnections }, options)));
    }
    results.push(...(await measureLone(directory, options)));
    results.push(await measureStatusChanges(directory, options));
    return results;
  } finally {
    for (const candidate of candidates) candidate.close?.();
    rmSync(directory, { recursive: true });
  }
}

interface Comparing {
  candidates: readonly Candidate[];
  missing: readonly Missing[];
  newConnections: boolean;
}

/** Runs short rounds of all candidates in changing order, so that a noisy moment spoils a round and not the median. */
async function compare(
  directory: string,
  { candidates, missing, newConnections }: Comparing,
  options: BenchOptions,
): Promise<BenchResult[]> {
  const rounds = options.quick ? 1 : 9;
  const seconds = options.quick ? 1 : 3;
  const reports = new Map<Candidate, LoadReport[]>(candidates.map((candidate) => [candidate, []]));
  const kind = newConnections ? 'a new connection each' : 'kept-alive';
  for (let round = 0; round < rounds; round++) {
    const turn = round % candidates.length;
    for (const candidate of [...candidates.slice(turn), ...candidates.slice(0, turn)]) {
      options.progress(`${kind}, round ${round + 1} of ${rounds}: ${candidate.label}`);
      reports.get(candidate)?.push(await loadOnce(directory, candidate, newConnections, seconds));
    }
  }
  const ways = candidates.map((candidate) => figures(candidate.label, reports.get(candidate) ?? []));
  const of = `${CONNECTIONS} connections, ${kind}`;
  const name = (what: string) => `durable callbacks / ${what}, ${of}`;
  const results = candidates.flatMap(({ against, about }, n): BenchResult[] => {
    if (!against) return [];
    const theirs = reports.get(candidates[n] as Candidate) ?? [];
    const ratios = (reports.get(TILLSYNC) ?? []).map(
      (ours, i) => ours.requestsPerSecond / (theirs[i]?.requestsPerSecond ?? 0),
    );
    const shown = [ways[0], ways[n]].map((way) => way && inWords(way)).join(', ');
    return [
      {
        name: name(against.what),
        ratio: median(ratios),
        bound: against.bound,
        detail: `${shown}; ${spread(ratios)}; ${LOADER}; ${about}`,
      },
    ];
  });
  const [first] = results;
  if (first) first.comparison = { title: of, ways };
  const absent = missing.map(({ what, reason }) => ({
    name: name(what),
    ratio: null,
    bound: '',
    detail: `skipped: ${reason}`,
  }));
  return [...results, ...absent];
}

function figures(label: string, reports: readonly LoadReport[]) {
  return {
    label,
    perSecond: median(reports.map((report) => report.requestsPerSecond)),
    p50Ms: median(reports.map((report) => report.p50Ms)),
    p99Ms: median(reports.map((report) => report.p99Ms)),
  };
}

function inWords({ label, perSecond, p50Ms, p99Ms }: ReturnType<typeof figures>): string {
  return `${label} ${Math.round(perSecond)}/s (p50 ${p50Ms.toFixed(1)}, p99 ${p99Ms.toFixed(1)} ms)`;
}

/** Puts load on one server once, and checks that every acknowledged order is in its store. */
async function loadOnce(
  parent: string,
  candidate: Candidate,
  newConnections: boolean,
  seconds: number,
): Promise<LoadReport> {
  const { label, stored, mayFail } = candidate;
  const directory = mkdtempSync(path.join(parent, 'load-'));
  const bodyFile = path.join(directory, 'order.json');
  writeFileSync(bodyFile, sampleOrder('ORDER_ID', 1234));
  const server = await candidate.start(directory);
  const load = { url: server.url, secret: SECRET, bodyFile, connections: CONNECTIONS, newConnections };
  try {
    await loadHttp({ ...load, idPrefix: 'warm', seconds: 1 });
    const before = (await stored?.(directory)) ?? 0;
    const report = await loadHttp({ ...load, idPrefix: 'load', seconds });
    if (report.failed > 0 && !mayFail) throw new Error(`${label}: ${report.failed} deliveries failed`);
    if (report.acknowledged === 0) throw new Error(`${label}: nothing was acknowledged`);
    if (stored && (await stored(directory)) - before < report.acknowledged) {
      throw new Error(`${label}: acknowledged orders are missing in its store`);
    }
    return report;
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true });
  }
}
