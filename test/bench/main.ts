import { readdirSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { parseArgs } from 'node:util';
import { type BenchModule, type BenchOptions, type BenchResult, keepsBound } from './bench-result.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
  },
});

if (values.help) {
  process.stdout.write('npm run bench [-- --quick] [--json] [NAME …]   NAME: a file of test/bench\n');
  process.exit(0);
}

const options: BenchOptions = {
  quick: values.quick,
  progress: (message) => process.stderr.write(`  ${message}\n`),
};
const sections: { name: string; results: BenchResult[] }[] = [];
for (const name of moduleNames()) {
  const module: Partial<BenchModule> = await import(`./${name}.ts`);
  if (!module.run) continue;
  process.stderr.write(`${name}\n`);
  sections.push({ name, results: await module.run(options) });
}

if (values.json) process.stdout.write(`${JSON.stringify({ machine: machine(), sections }, null, 2)}\n`);
else process.stdout.write(table());

/** The modules by name; helpers beside them export no `run`, and some are programs, so they are named apart. */
function moduleNames(): string[] {
  const names = readdirSync(import.meta.dirname)
    .filter((file) => file.endsWith('.ts') && file !== 'main.ts' && !file.includes('-'))
    .map((file) => file.slice(0, -3));
  const wanted = positionals.length === 0 ? names : positionals;
  for (const name of wanted) {
    if (!names.includes(name))
      throw new Error(`No bench is called "${name}"; there are: ${names.join(', ')}`);
  }
  return wanted;
}

function machine(): string {
  const cores = cpus();
  return `${cores.length} × ${cores[0]?.model ?? 'unknown'}, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`;
}

function table(): string {
  const lines = [`\n${machine()}${options.quick ? ', quick run' : ''}`];
  for (const { name, results } of sections) {
    lines.push('', name);
    for (const result of results) {
      const kept = keepsBound(result.ratio, result.bound);
      const verdict = kept === undefined ? '-' : kept ? 'pass' : 'MISS';
      const ratio = result.ratio === null ? 'n/a' : result.ratio.toFixed(2);
      lines.push(
        `  ${verdict.padEnd(5)}${ratio.padStart(7)}  ${result.bound.padEnd(8)}${result.name}\n${' '.repeat(24)}${result.detail}`,
      );
    }
  }
  return `${lines.join('\n')}\n`;
}
