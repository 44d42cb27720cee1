import { existsSync } from 'node:fs';
import { Readable } from 'node:stream';
import { createGzip } from 'node:zlib';
import { actAsStorageUser, findInstallation, programVersion } from '../../app/installation.ts';
import { storagePaths } from '../../app/storage.ts';
import { readConfig, readSetup } from '../../config/config.ts';
import type { Environment } from '../../config/source.ts';
import { type Clock, isoUtc, type Random } from '../../core/time.ts';
import { lookInto } from '../../db/sqlite.ts';
import { makeArchive, textFile, writeTar } from '../archive.ts';
import type { CheckResult } from '../doctor/check.ts';
import { type DoctorOptions, examine } from '../doctor/doctor.ts';
import { readDoctorSetup } from '../doctor/machine.ts';
import { faultOf, knownSecrets, PeopleMask, Redactor } from './redact.ts';
import { logSections, machineSections, mirrorSections, type Section, stateSections } from './sections.ts';

export interface BundleOptions {
  /** Path given with `--config`; undefined if the option is left out. */
  file: string | undefined;
  env: Environment;
  clock: Clock;
  random: Random;
  unit: string;
  logFiles: readonly string[];
  withCustomerData: boolean;
  /** Called before each file. */
  onSection(name: string): void;
  signal: AbortSignal;
}

/** A file as it is put into the bundle. */
interface RenderedFile {
  name: string;
  what: string;
  text: string;
  /** Reason why the part could not be read; null if it was. */
  fault: string | null;
  /** Whether the text was cut to the size limit. */
  isCut: boolean;
}

export interface Bundle {
  files: RenderedFile[];
  /** Parts that the bundle leaves out, each with its reason, for the person who mails it. */
  leftOut: string[];
}

const SECRETS_LEFT_OUT =
  'tokens, webhook secrets and keys, in whatever form they stand, and whatever looks like one';
const PEOPLE_LEFT_OUT =
  'customers: names, phones, addresses, e-mails and comments (--with-customer-data puts them in)';

/**
 * Collects the redacted files that support needs. It never fails, because the file of an unreadable part contains the
 * error.
 */
export async function collectBundle(options: BundleOptions): Promise<Bundle> {
  const { file, env, withCustomerData, signal } = options;
  const source = { file, env };
  const setup = readSetup(source);
  // If the secrets are invalid, the configuration may still be valid, so it is read without them.
  const read = 'config' in setup ? setup : readConfig(source);
  const config = 'config' in read ? read.config : undefined;
  const doctorSetup = readDoctorSetup(source);
  const directory = config?.storage.directory ?? findInstallation(file, env).storage;
  actAsStorageUser({ directory, configFile: setup.file, writes: false });
  const paths = storagePaths(directory);
  const known = knownSecrets({ env, configFile: setup.file, statePath: paths.state });
  const redactor = new Redactor(known);
  const leftOut = [SECRETS_LEFT_OUT];
  const people = withCustomerData ? undefined : peopleOf(paths.mirror, leftOut);
  const faults = 'faults' in setup ? setup.faults : [];
  const subject = {
    ...options,
    configFile: setup.file,
    config,
    faults,
    handedIn: [...known.handedIn],
    directory,
    paths,
  };
  const sections: Section[] = [
    ...machineSections(subject),
    ...stateSections(subject),
    ...mirrorSections(subject),
    {
      name: 'doctor.json',
      what: 'every check of tillsync doctor that needs nobody else, with its remedy',
      make: () => checksHere({ ...options, setup: doctorSetup }),
    },
    ...logSections(subject),
  ];
  const files: RenderedFile[] = [];
  for (const section of sections) {
    if (signal.aborted) break;
    if (section.isForeign && known.fault !== undefined) {
      // Without state.db not all secrets are known, so an unknown one could stay in text that others wrote.
      leftOut.push(`${section.name}, for state.db with its secrets could not be read (run it as root)`);
      continue;
    }
    options.onSection(section.name);
    files.push(await render(section, redactor, people));
  }
  const notRead = files.filter(({ fault }) => fault !== null);
  leftOut.push(...notRead.map(({ name, fault }) => `${name}: ${fault}`));
  leftOut.push(...files.filter(({ isCut }) => isCut).map(({ name }) => `the oldest part of ${name}`));
  return { files: [readMe(files, leftOut, options.clock, redactor), ...files], leftOut };
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

/** Runs every check that needs only this machine; the platform is not called. */
async function checksHere(options: Pick<DoctorOptions, 'setup' | 'clock' | 'random' | 'signal'>) {
  const checks: CheckResult[] = [];
  const alone = { offline: true, only: [], onCheck() {}, onWait() {} };
  for await (const check of examine({ ...options, ...alone })) checks.push(check);
  return { checks };
}

/**
 * Maximum length of a file's text, in characters. Twenty such files fit into a mail even before they are compressed.
 */
const TEXT_LENGTH_MAX = 1024 * 1024;

/**
 * Renders one file. The text is redacted before it is cut, because a secret that is cut in two would not be recognised.
 */
async function render(section: Section, redactor: Redactor, people?: PeopleMask): Promise<RenderedFile> {
  const { what, isWithoutPeople } = section;
  const name = redactor.known(section.name);
  const mask = (text: string) => (people && !isWithoutPeople ? people.text(text) : text);
  const clean = (value: unknown) => redactor.document(value, mask);
  let fault: string | null = null;
  let written: string;
  try {
    const made = await section.make();
    if (name.endsWith('.txt')) written = mask(redactor.text(String(made)));
    else if (name.endsWith('.json')) written = `${JSON.stringify(clean(made), null, 2)}\n`;
    else written = (made as unknown[]).map((line) => `${JSON.stringify(clean(line))}\n`).join('');
  } catch (error) {
    const document = faultOf(error);
    fault = redactor.text(document.couldNotBeRead);
    written = `${JSON.stringify(clean(document), null, 2)}\n`;
  }
  const whole = redactor.known(written);
  const text = newestOf(whole, name.endsWith('.ndjson'));
  return { name, what, text, fault, isCut: text.length < whole.length };
}

/** Returns the newest complete lines of the text that fit into the size limit. */
function newestOf(text: string, newestFirst: boolean): string {
  if (text.length <= TEXT_LENGTH_MAX) return text;
  if (newestFirst) return text.slice(0, text.lastIndexOf('\n', TEXT_LENGTH_MAX) + 1);
  const end = text.slice(-TEXT_LENGTH_MAX);
  return end.slice(end.indexOf('\n') + 1);
}

function readMe(
  files: readonly RenderedFile[],
  leftOut: readonly string[],
  clock: Clock,
  redactor: Redactor,
): RenderedFile {
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

/** Writes a bundle under its name when it is complete. Returns its size in bytes. Throws as makeArchive does. */
export function writeBundle(
  bundle: Bundle,
  options: { path: string; force: boolean; modifiedMs: number; signal: AbortSignal },
): Promise<number> {
  return makeArchive(options, () => filesIn(bundle));
}

/** Returns a bundle's archive as bytes, for standard output. */
export async function packBundle(bundle: Bundle, modifiedMs: number): Promise<Buffer> {
  const packed = Readable.from(writeTar(filesIn(bundle), { modifiedMs, mode: 0o600 })).pipe(createGzip());
  return Buffer.concat(await packed.toArray());
}

/** Returns the files of a bundle's archive, below one directory, so that unpacking makes only that directory. */
function filesIn({ files }: Bundle) {
  return files.map(({ name, text }) => textFile(`tillsync-bundle/${name}`, text));
}
