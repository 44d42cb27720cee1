import { existsSync } from 'node:fs';
import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { actAsStorageUser, programVersion } from '../../app/installation.ts';
import { storagePaths } from '../../app/storage.ts';
import { readConfig, readSetup, type SetupResult } from '../../config/config.ts';
import { type Environment, readConfigFile } from '../../config/source.ts';
import { type Clock, isoUtc, type Random } from '../../core/time.ts';
import { lookInto } from '../../db/sqlite.ts';
import { makeArchive, textFile, writeTar } from '../archive.ts';
import type { CheckResult } from '../doctor/check.ts';
import { examine } from '../doctor/doctor.ts';
import { type DoctorSetup, readDoctorSetup } from '../doctor/machine.ts';
import { configSections, logSections, systemSections } from './machine-sections.ts';
import {
  EVERYBODY,
  faultOf,
  knownSecrets,
  PeopleMask,
  Redactor,
  type RenderedFile,
  renderSection,
  type Section,
} from './redact.ts';
import { mirrorSections, stateSections } from './stored-sections.ts';

export interface DoctorSectionOptions {
  setup: DoctorSetup;
  env: Environment;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
}

/** Every check that can be made on this machine alone; nothing is asked of the platform. */
export function doctorSection(options: DoctorSectionOptions): Section {
  return {
    name: 'doctor.json',
    what: 'every check of tillsync doctor that needs nobody else, with its remedy',
    mayNamePeople: true,
    make: async () => {
      const silent = { onCheck() {}, onWait() {} };
      const checks: CheckResult[] = [];
      const examination = examine({ ...options, ...silent, offline: true, only: [] });
      for await (const check of examination) checks.push(check);
      return { document: { checks } };
    },
  };
}

export interface BundleOptions {
  /** Configuration file, as `--config` gives it. */
  file: string | undefined;
  env: Environment;
  clock: Clock;
  random: Random;
  unit: string;
  logFiles: readonly string[];
  withCustomerData: boolean;
  /** Told before each file. */
  onSection(name: string): void;
  signal: AbortSignal;
}

export interface Bundle {
  files: RenderedFile[];
  /** What is not in it, each with its reason, for the person who mails it. */
  leftOut: string[];
}

const SECRETS_LEFT_OUT =
  'tokens, webhook secrets and keys, in whatever form they stand, and whatever looks like one';
const PEOPLE_LEFT_OUT =
  'customers: names, phones, addresses, e-mails and comments (--with-customer-data puts them in)';
const DEFAULT_DIRECTORY = '/var/lib/tillsync';

/** Gathers what support has to see, redacted. What cannot be read says so in its file; nothing here fails. */
export async function collectBundle(options: BundleOptions): Promise<Bundle> {
  const { file, env, clock, withCustomerData, signal } = options;
  const setup = readSetup({ file, env });
  const config = configOf(setup, { file, env });
  const doctorSetup = readDoctorSetup({ file, env });
  const directory = config?.storage.directory ?? directoryGuess(file, env);
  actAsStorageUser({ directory, configFile: setup.file, writes: false });
  const paths = storagePaths(directory);
  const known = knownSecrets({ env, configFile: setup.file, statePath: paths.state });
  const redactor = new Redactor(known);
  const leftOut = [SECRETS_LEFT_OUT];
  const people = withCustomerData ? EVERYBODY : peopleOf(paths.mirror, leftOut);
  const sections: Section[] = [
    ...systemSections({ directory }),
    ...configSections({
      file: setup.file,
      config,
      faults: 'faults' in setup ? setup.faults : [],
      handedIn: [...known.handedIn],
    }),
    ...stateSections({ paths, config, clock, signal }),
    ...mirrorSections(paths.mirror, { withCustomerData }),
    doctorSection({ ...options, setup: doctorSetup }),
    ...logSections(options),
  ];
  const files: RenderedFile[] = [];
  for (const section of sections) {
    if (signal.aborted) break;
    if (section.isForeign && known.fault !== undefined) {
      // A secret that is not known cannot be looked for.
      leftOut.push(`${section.name}, for state.db with its secrets could not be read (run it as root)`);
      continue;
    }
    options.onSection(section.name);
    files.push(await renderSection(section, { redactor, people }));
  }
  const notRead = files.filter(({ fault }) => fault !== null);
  leftOut.push(...notRead.map(({ name, fault }) => `${name}: ${fault}`));
  leftOut.push(...files.filter(({ isCut }) => isCut).map(({ name }) => `the oldest part of ${name}`));
  return { files: [readMe({ files, leftOut, clock, redactor }), ...files], leftOut };
}

/** A configuration may be in order where secrets are not. */
function configOf(setup: SetupResult, options: { file: string | undefined; env: Environment }) {
  if ('config' in setup) return setup.config;
  const read = readConfig(options);
  return 'config' in read ? read.config : undefined;
}

/** Where the files are by all that a faulty configuration tells. */
function directoryGuess(file: string | undefined, env: Environment): string {
  if (env.TILLSYNC_STORAGE_DIRECTORY) return env.TILLSYNC_STORAGE_DIRECTORY;
  const { storage } = readConfigFile(file, env).root as { storage?: { directory?: unknown } };
  return typeof storage?.directory === 'string' ? storage.directory : DEFAULT_DIRECTORY;
}

function peopleOf(mirror: string, leftOut: string[]): PeopleMask {
  const people = new PeopleMask();
  leftOut.push(PEOPLE_LEFT_OUT);
  try {
    if (existsSync(mirror)) lookInto(mirror, (db) => people.learn(db));
  } catch (error) {
    leftOut.push(`(names of customers could not be looked up: ${faultOf(error).couldNotBeRead})`);
  }
  return people;
}

function readMe(options: {
  files: readonly RenderedFile[];
  leftOut: readonly string[];
  clock: Clock;
  redactor: Redactor;
}): RenderedFile {
  const { files, leftOut, clock, redactor } = options;
  const width = Math.max(...files.map(({ name }) => name.length)) + 2;
  const text = [
    `What support needs to see of tillsync ${programVersion()}, gathered ${isoUtc(clock.nowMs())}.`,
    '',
    'In it:',
    ...files.map(({ name, what }) => `  ${name.padEnd(width)}${what}`),
    '',
    'Left out:',
    ...leftOut.map((each) => `  ${each}`),
    '',
  ].join('\n');
  return { name: 'README.txt', what: 'this list', text: redactor.known(text), fault: null, isCut: false };
}

const MODE = 0o600;
/** It unpacks into a directory of its own. */
const DIRECTORY = 'tillsync-bundle';

/** Writes a bundle under its name when it is whole. Returns its size in bytes. Throws as makeArchive does. */
export function writeBundle(
  { files }: Pick<Bundle, 'files'>,
  options: { path: string; force: boolean; modifiedMs: number; signal: AbortSignal },
): Promise<number> {
  return makeArchive(options, () => filesIn(files));
}

/** The same archive in memory. */
export async function packBundle({ files }: Pick<Bundle, 'files'>, modifiedMs: number): Promise<Buffer> {
  const packed = Readable.from(writeTar(filesIn(files), { modifiedMs, mode: MODE })).pipe(
    createGzip({ level: 6 }),
  );
  const chunks: Buffer[] = [];
  for await (const chunk of packed) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function filesIn(files: Bundle['files']) {
  return files.map(({ name, text }) => textFile(`${DIRECTORY}/${name}`, text));
}
