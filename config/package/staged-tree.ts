import { chmodSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { billOfMaterials } from './bill-of-materials.ts';
import { bundle } from './bundle.ts';
import { commandTree } from './command-tree.ts';
import { bashCompletion, fishCompletion, zshCompletion } from './completion.ts';
import { licences, shippedPackages } from './licences.ts';
import { manPage } from './man-page.ts';
import type { PackageFacts } from './read-package.ts';
import { shippedNode, type Target } from './target.ts';

export interface StagedTreeOptions {
  /** Root directory of the repository. */
  root: string;
  /**
   * An empty directory for the files of the package. It stands for the root directory of the machine on which they are
   * installed.
   */
  stage: string;
  facts: PackageFacts;
  /** Date of the man page and of the bill of materials. */
  date: Date;
}

const HOME = 'usr/lib/tillsync';
const UNITS = ['tillsync.service', 'tillsync.socket', 'tillsync@.service', 'tillsync@.socket'];
/** Warnings of lintian that are switched off, because the package contains a complete Node as its makers built it. */
const OVERRIDES = `tillsync: embedded-library *
tillsync: missing-dep-for-interpreter node *
tillsync: unstripped-binary-or-object *
tillsync: copyright-file-contains-full-apache-2-license
tillsync: copyright-not-using-common-license-for-gpl
`;
const PLAIN = 0o644;
const PROGRAM = 0o755;

/** Writes every file of the package `tillsync`, with its mode, into `stage`. Returns the bill of materials. */
export async function stageTree(options: StagedTreeOptions & { target: Target }): Promise<string> {
  const { root, stage, facts, target, date } = options;
  const { put, copy } = tools(options);
  const home = path.join(stage, HOME);
  const bundled = await bundle({ root, directory: home, target });
  put(`${HOME}/node`, shippedNode(root, target), PROGRAM);
  copy('systemd/notify-exec', `${HOME}/notify-exec`, PROGRAM);
  copy('config/package/debian/launcher', 'usr/bin/tillsync', PROGRAM);
  // `tillsync init` writes the configuration here. The package has only the directory, so that no upgrade asks what to
  // do with a changed file.
  mkdirSync(path.join(stage, 'etc/tillsync'), { recursive: true });
  copy('config/tillsync.sample.toml', 'usr/share/doc/tillsync/config.sample.toml');
  copy('config/tillsync-hub.sample.toml', 'usr/share/doc/tillsync/config-hub.sample.toml');

  for (const unit of UNITS) copy(`systemd/${unit}`, `lib/systemd/system/${unit}`);
  copy('systemd/tillsync-generator', 'lib/systemd/system-generators/tillsync-generator', PROGRAM);
  copy('systemd/tillsync.tmpfiles', 'usr/lib/tmpfiles.d/tillsync.conf');

  const commands = commandTree();
  put('usr/share/man/man1/tillsync.1.gz', zipped(manPage({ program: commands, facts, date })));
  put('usr/share/bash-completion/completions/tillsync', bashCompletion(commands));
  put('usr/share/zsh/vendor-completions/_tillsync', zshCompletion());
  put('usr/share/fish/vendor_completions.d/tillsync.fish', fishCompletion(commands));
  const packages = shippedPackages(root, target, bundled);
  put('usr/share/doc/tillsync/copyright', licences(root, packages));
  put('usr/share/doc/tillsync/changelog.gz', zipped(facts.changelog));
  for (const file of ['prometheus/alerts.yml', 'prometheus/scrape.yml', 'grafana/tillsync.json']) {
    copy(`config/${file}`, `usr/share/tillsync/${file}`);
  }
  put('usr/share/lintian/overrides/tillsync', OVERRIDES);
  copy('README.md', 'usr/share/doc/tillsync/README.md');
  const docs = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' });
  for (const name of docs.filter((each) => each.endsWith('.md'))) {
    put(
      `usr/share/doc/tillsync/docs/${name}`,
      Buffer.from(packagedLinks(readFileSync(path.join(root, 'docs', name), 'utf8'))),
    );
  }
  for (const folder of ['php', 'csharp', 'pascal', 'python', 'typescript', 'proxy', 'tunnel', 'hooks']) {
    // Python leaves the folder `__pycache__` behind when it runs a recipe.
    const names = readdirSync(path.join(root, 'test/recipes', folder)).filter(
      (name) => name !== '__pycache__',
    );
    for (const name of names) {
      copy(`test/recipes/${folder}/${name}`, `usr/share/doc/tillsync/recipes/${folder}/${name}`);
    }
  }
  return billOfMaterials({ facts, architecture: target.debian, packages, date });
}

/**
 * Writes every file of the package `tillsync-hub`, which has the unit of the nats-server beside a hub, into `stage`.
 * Returns the bill of materials.
 */
export function stageHubTree(options: StagedTreeOptions): string {
  const { root, facts, date } = options;
  const { put, copy } = tools(options);
  copy('systemd/tillsync-nats.service', 'lib/systemd/system/tillsync-nats.service');
  put('usr/share/doc/tillsync-hub/copyright', licences(root, []));
  put('usr/share/doc/tillsync-hub/changelog.gz', zipped(facts.changelog));
  return billOfMaterials({ facts, architecture: 'all', packages: [], date });
}

function tools({ root, stage }: StagedTreeOptions) {
  const put = (place: string, content: string | Uint8Array, mode = PLAIN) => {
    const file = path.join(stage, place);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
    chmodSync(file, mode);
  };
  const copy = (source: string, place: string, mode = PLAIN) =>
    put(place, readFileSync(path.join(root, source)), mode);
  return { put, copy };
}

/**
 * Changes the links in a file of docs/, because the recipes and the sample configurations have other places in the
 * package than in the repository.
 */
function packagedLinks(text: string): string {
  return text
    .replaceAll('](../test/recipes/', '](../recipes/')
    .replaceAll(/\]\(\.\.\/config\/tillsync(-hub)?\.sample\.toml/g, '](../config$1.sample.toml');
}

function zipped(text: string): Uint8Array {
  return gzipSync(text, { level: 9 });
}
