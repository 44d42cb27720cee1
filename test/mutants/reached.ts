import diagnostics from 'node:diagnostics_channel';
import { appendFileSync, readFileSync } from 'node:fs';
import { type Profiler, Session } from 'node:inspector';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach } from 'vitest';

/** The lines to watch, and the file to which each test file appends the lines it ran through. */
const { lines, noteTo } = JSON.parse(readFileSync(process.env.TILLSYNC_REACHED ?? '', 'utf8')) as {
  lines: { file: string; line: number }[];
  noteTo: string;
};
const ROOT = path.resolve(import.meta.dirname, '../..');
/** Lines that a test file ran, as one line of JSON. */
export interface Reached {
  test: string;
  /** Duration of the test file. */
  ms: number;
  /** Indexes of the watched lines that the test file ran inside functions. */
  lines: number[];
  /**
   * Indexes of the watched lines outside functions. They run once per process, during whichever test file comes first.
   */
  outer: number[];
  /** Sources of the programs that the test file started; "" stands for an unknown source or a worker thread. */
  started: string[];
}

const spots = lines.map(({ file, line }) => {
  const text = readFileSync(path.join(ROOT, file), 'utf8').split('\n');
  const start = text.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  const offsets = [...(text[line - 1] ?? '')].flatMap((char, at) => (/\S/.test(char) ? [start + at] : []));
  return { file: path.join(ROOT, file), offsets };
});

/** Watches the lines in one process. The test files of the process run one after another and share this object. */
class Watch {
  readonly #session = new Session();
  #lines = new Set<number>();
  #outer = new Set<number>();
  #started = new Set<string>();
  #childrenTicks = childrenTicks();
  #sinceMs = performance.now();
  test = '';

  constructor() {
    this.#session.connect();
    this.#session.post('Profiler.enable');
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
    diagnostics.subscribe('child_process', (message) => {
      const { spawnargs = [] } = (message as { process: { spawnargs?: string[] } }).process;
      this.#start(spawnargs.find((each) => /\/src\/.*\.ts$/.test(each)) ?? '');
    });
    diagnostics.subscribe('worker_threads', () => this.#start(''));
    // Vitest ends its processes by SIGTERM, so the last test file is recorded here.
    process.once('SIGTERM', () => {
      this.note();
      process.exit();
    });
  }

  #start(program: string): void {
    this.#started.add(program && path.relative(ROOT, program.replace(/^file:\/\//, '')));
  }

  #take(): void {
    this.#session.post('Profiler.takePreciseCoverage', (_error, { result }) => {
      const files = new Map(
        result.filter(({ url }) => url.startsWith('file:')).map((each) => [pathOf(each), each]),
      );
      for (const [at, { file, offsets }] of spots.entries()) {
        const script = files.get(file);
        if (!script) continue;
        const seen = offsets.map((offset) => innermost(script, offset));
        if (seen.some((each) => each?.isOuter)) this.#outer.add(at);
        if (seen.some((each) => each && each.count > 0 && !each.isOuter)) this.#lines.add(at);
      }
    });
  }

  note(): void {
    if (this.test === '') return;
    this.#take();
    // The channel does not report a synchronous child process, so the children's CPU time shows whether one ran.
    const ticks = childrenTicks();
    if (ticks !== this.#childrenTicks && this.#started.size === 0) this.#started.add('');
    this.#childrenTicks = ticks;
    const ms = performance.now() - this.#sinceMs;
    const reached: Reached = {
      test: this.test,
      ms,
      lines: [...this.#lines],
      outer: [...this.#outer],
      started: [...this.#started],
    };
    appendFileSync(noteTo, `${JSON.stringify(reached)}\n`);
    this.test = '';
    this.#lines = new Set();
    this.#started = new Set();
    this.#sinceMs = performance.now();
  }
}

const pathOf = ({ url }: { url: string }) => fileURLToPath(new URL(url.replace(/[?#].*$/, '')));

/** Returns the smallest range of V8's coverage that contains the offset. */
function innermost(
  { functions }: Profiler.ScriptCoverage,
  offset: number,
): { count: number; isOuter: boolean } | undefined {
  let found: { count: number; isOuter: boolean; length: number } | undefined;
  for (const { functionName, ranges } of functions) {
    for (const { startOffset, endOffset, count } of ranges) {
      const length = endOffset - startOffset;
      if (offset < startOffset || offset >= endOffset || (found && found.length < length)) continue;
      found = { count, isOuter: functionName === '' && (ranges[0]?.startOffset ?? 1) === 0, length };
    }
  }
  return found;
}

function childrenTicks(): number {
  const [, fields = ''] = readFileSync('/proc/self/stat', 'utf8').split(') ');
  const [user, system] = fields.split(' ').slice(13, 15).map(Number);
  return (user ?? 0) + (system ?? 0);
}

const shared = globalThis as { watchOfReached?: Watch };
shared.watchOfReached ??= new Watch();
const watch = shared.watchOfReached;
watch.note();
afterEach(({ task }) => {
  watch.test = task.file.name;
});
