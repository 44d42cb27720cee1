import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { buildDeb, type DebOptions } from './deb.ts';
import { readPackage } from './read-package.ts';
import { publish } from './repository.ts';
import { stageHubTree, stageTree } from './staged-tree.ts';
import { TARGETS, targetFor } from './target.ts';

// `npm run package` writes dist/tillsync_VERSION_ARCHITECTURE.deb for each architecture,
// dist/tillsync-hub_VERSION_all.deb, and beside each package its bill of materials as CycloneDX. Options, after `--`:
// `--architecture arm64` builds `tillsync` only for that one, `--compression none` is quick and makes large files,
// `--repository DIR [--key KEY]` also publishes the packages.

const root = path.resolve(import.meta.dirname, '../..');
const { values } = parseArgs({
  options: {
    architecture: { type: 'string' },
    compression: { type: 'string', default: 'xz' },
    repository: { type: 'string' },
    key: { type: 'string' },
  },
});
const facts = readPackage(root);
const { SOURCE_DATE_EPOCH } = process.env;
const epoch = Number(SOURCE_DATE_EPOCH ?? facts.releasedAt);
const targets = values.architecture ? [targetFor(values.architecture)] : TARGETS;
mkdirSync(path.join(root, 'dist'), { recursive: true });
const stages: string[] = [];
const debs: string[] = [];
const date = new Date(epoch * 1000);
const packed: Promise<void>[] = [];

type Deb = Pick<DebOptions, 'scripts' | 'facts' | 'architecture' | 'depends' | 'about'>;
/** Starts to build one package. `stageIn` writes its files into a directory and returns the bill of materials. */
async function build(deb: Deb, stageIn: (stage: string) => Promise<string> | string): Promise<void> {
  const { name, version } = deb.facts;
  const stage = mkdtempSync(path.join(tmpdir(), 'tillsync-package-'));
  stages.push(stage);
  const output = path.join(root, 'dist', `${name}_${version}_${deb.architecture}.deb`);
  debs.push(output);
  writeFileSync(output.replace(/\.deb$/, '.cdx.json'), await stageIn(stage));
  // Not awaited here, so that packages are packed in parallel. Packing takes nearly all of the time, and has its own
  // process.
  packed.push(buildDeb({ ...deb, stage, output, epoch, compression: values.compression }));
}

try {
  const scripts = path.join(import.meta.dirname, 'debian');
  for (const target of targets) {
    const deb = {
      scripts,
      facts,
      architecture: target.debian,
      depends: 'libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 9), passwd',
      about: `A service that polls the ordering platform, receives its callbacks and keeps
a local SQLite mirror that the point of sale reads at any time. It carries its
own Node.`,
    };
    await build(deb, (stage) => stageTree({ root, stage, facts, target, date }));
  }
  const hubFacts = {
    ...facts,
    name: `${facts.name}-hub`,
    description: 'The server between a tillsync and its branches',
  };
  const hub = {
    scripts: path.join(scripts, 'tillsync-hub'),
    facts: hubFacts,
    architecture: 'all',
    depends: `${facts.name} (= ${facts.version}), nats-server (>= 2.10.27)`,
    about: `For a company with a tillsync in each branch, on the machine whose tillsync
talks to the platform. It runs nats-server for it, with the configuration that
"tillsync hub server-config" writes.`,
  };
  await build(hub, (stage) => stageHubTree({ root, stage, facts: hubFacts, date }));
  await Promise.all(packed);
} finally {
  for (const stage of stages) rmSync(stage, { recursive: true, force: true });
}
for (const deb of debs) {
  const kibibytes = Math.ceil(statSync(deb).size / 1024);
  const size = kibibytes < 1024 ? `${kibibytes} KiB` : `${(kibibytes / 1024).toFixed(1)} MiB`;
  process.stdout.write(`${path.relative(process.cwd(), deb)} (${size})\n`);
}
if (values.repository) {
  const directory = path.resolve(values.repository);
  // apt rejects an index that is older than the one it already has.
  const indexDate = SOURCE_DATE_EPOCH ? date : new Date();
  const fingerprint = publish({ directory, debs, key: values.key, date: indexDate });
  process.stdout.write(`${directory}, signed by ${fingerprint}\n`);
}
