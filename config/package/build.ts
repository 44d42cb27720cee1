import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { buildDeb } from './deb.ts';
import { readPackage } from './read-package.ts';
import { publish } from './repository.ts';
import { stageTree } from './staged-tree.ts';
import { TARGETS, targetFor } from './target.ts';

// `npm run package`: writes dist/tillsync_VERSION_ARCHITECTURE.deb for each architecture and, beside each, what is in
// it as CycloneDX. `-- --architecture arm64` only that one, `-- --compression none` soon and large;
// `-- --repository DIR [--key KEY]` publishes them too.

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
try {
  const packed: Promise<void>[] = [];
  for (const target of targets) {
    const stage = mkdtempSync(path.join(tmpdir(), 'tillsync-package-'));
    stages.push(stage);
    const output = path.join(root, 'dist', `${facts.name}_${facts.version}_${target.debian}.deb`);
    debs.push(output);
    const materials = await stageTree({ root, stage, facts, target, date: new Date(epoch * 1000) });
    writeFileSync(output.replace(/\.deb$/, '.cdx.json'), materials);
    // The packing takes nearly all of the time, and has a process of its own.
    packed.push(
      buildDeb({
        stage,
        scripts: path.join(import.meta.dirname, 'debian'),
        facts,
        target,
        output,
        epoch,
        compression: values.compression,
      }),
    );
  }
  await Promise.all(packed);
} finally {
  for (const stage of stages) rmSync(stage, { recursive: true, force: true });
}
for (const deb of debs) {
  const mebibytes = (statSync(deb).size / 2 ** 20).toFixed(1);
  process.stdout.write(`${path.relative(process.cwd(), deb)} (${mebibytes} MiB)\n`);
}
if (values.repository) {
  const directory = path.resolve(values.repository);
  const date = SOURCE_DATE_EPOCH ? new Date(epoch * 1000) : new Date();
  const fingerprint = publish({ directory, debs, key: values.key, date });
  process.stdout.write(`${directory}, signed by ${fingerprint}\n`);
}
