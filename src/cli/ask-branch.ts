import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import * as z from 'zod';
import { hasCode, TillsyncError } from '../core/errors.ts';
import { isoUtc } from '../core/time.ts';
import type { BranchStatus } from '../link/branch-status.ts';
import type { SupportHead, SupportQuestion } from '../link/link.ts';
import { bundleList } from './bundle.ts';
import { EXIT, printableLines } from './cli.ts';
import { type Call, type CommandTools, command, type Result } from './command.ts';
import { requireBranch, withHub } from './hub.ts';
import { ago } from './table.ts';

export const NAME = [
  '<name>',
  'its external_id in [[branches]], or its subsidiary_id where it has none',
] as const;

const ASKED = '\nThe branch answers over its connection to the hub, without secrets.';

export const status = command({
  description: 'Show the status of a branch',
  examples: ['branch status B1', 'branch status B1 --json'],
  argument: NAME,
  more: ASKED,
  run: (call) => withHub(call, async (tools) => said(call, await ask(tools, call, 'status'))),
});

export const doctor = command({
  description: 'Check every connection of a branch',
  examples: ['branch doctor B1', 'branch doctor B1 --json'],
  argument: NAME,
  more: `${ASKED}\nExit codes: as tillsync doctor; 1 also if the branch does not answer.`,
  run: (call) => withHub(call, async (tools) => said(call, await ask(tools, call, 'doctor'))),
});

const CONTENTS = z.object({
  files: z.array(
    z.object({ name: z.string(), what: z.string(), bytes: z.number(), fault: z.string().nullable() }),
  ),
  leftOut: z.array(z.string()),
});

export const bundle = command({
  description: 'Collect diagnostics of a branch in a file here',
  examples: ['branch bundle B1', 'branch bundle B1 --file support-B1.tar.gz --force'],
  argument: NAME,
  options: {
    '--file <file>': 'File to write (default: named after the branch and the day)',
    '--force': 'Overwrite the file if it exists',
  },
  more: `${ASKED}\nThe file has no customer data.`,
  async run(call) {
    const { cli, options } = call;
    const { clock, signal } = cli;
    const day = isoUtc(clock.nowMs()).slice(0, 10);
    const { file: path = `tillsync-bundle-${call.argument}-${day}.tar.gz`, force = false } = options;
    const { makeArchive, readTar, refuseExisting } = await import('../support/archive.ts');
    // An existing file is refused first, because the branch's work may take minutes.
    refuseExisting(path, force);
    return withHub(call, async (tools): Promise<Result> => {
      const answer = await ask(tools, call, 'bundle');
      if (answer.exit !== EXIT.done) return said(call, answer);
      const contents = CONTENTS.parse(JSON.parse(answer.stdout));
      const packed = () => readTar(Readable.from([answer.file]).pipe(createGunzip()));
      const bytes = await makeArchive({ path, force, modifiedMs: clock.nowMs(), signal }, packed);
      return {
        json: { branch: call.argument, file: path, bytes, ...contents },
        text: `${bundleList(path, contents)}\n${path}: ${bytes} bytes. To look: tar -xzf ${path}\n`,
      };
    });
  },
});

type NamedCall = Call<unknown, string>;

/** Returns what the command printed at the branch as the result of this command, with the same exit code. */
function said({ options }: NamedCall, { exit, stdout, stderr }: SupportHead): Result {
  const isDocument = options.json === true && stdout !== '';
  return {
    ...(isDocument ? { json: JSON.parse(stdout) as unknown } : { text: printableLines(stdout) }),
    below: printableLines(stderr),
    exit: Object.values(EXIT).find((code) => code === exit) ?? EXIT.failed,
  };
}

/**
 * Asks a branch a support question. Throws `not-found` if the branch has not joined, and `link-down` if it does not
 * answer; the error then says what the hub knows about the branch.
 */
async function ask(
  { services, config, progress, call: { signal } }: CommandTools,
  { cli, options, argument: name }: NamedCall,
  question: SupportQuestion,
) {
  const { hub: rows } = services.state;
  const named = requireBranch(config, rows, name);
  const { branch } = named;
  const known = rows.branches().find((each) => each.branch === branch);
  if (!known || known.joinedAt === null) {
    throw new TillsyncError('not-found', `Branch ${name} has not joined.`, {
      hint: `Invite it: {tillsync} branch invite ${name}`,
    });
  }
  const { readSupport } = await import('../link/link.ts');
  const { NatsHubLink } = await import('../link/nats.ts');
  const { ownAccess } = await import('../link/server-file.ts');
  const { branchBoard } = await import('../link/branch-status.ts');
  const link = new NatsHubLink(await ownAccess(rows, config.hub, '@hub'));
  const stop = () => void link.close();
  signal.addEventListener('abort', stop, { once: true });
  progress.step(`asking branch ${name}`);
  try {
    return readSupport(await link.ask(branch, question, JSON.stringify({ json: options.json === true })));
  } catch (error) {
    if (signal.aborted) throw new TillsyncError('aborted', 'Stopped. Nothing was written.');
    if (!hasCode(error, 'link-down')) throw error;
    const nowMs = cli.clock.nowMs();
    const [last] = services.mirror.read((db) => branchBoard(db, [named], [known], nowMs));
    const message = `${error.message} ${last ? lastKnown(last, nowMs) : ''}`;
    throw new TillsyncError('link-down', message, {
      cause: error,
      hint: 'Its machine is off, has no connection, or its tillsync does not run. All branches: {tillsync} branch list',
    });
  } finally {
    signal.removeEventListener('abort', stop);
    progress.end();
    await link.close();
  }
}

function lastKnown(last: BranchStatus, nowMs: number): string {
  const { seenAt, behind, behindSince, waiting, oldestWaitingAt, version, reason, message } = last;
  if (seenAt === null || behind === null) return 'It was never seen.';
  const since = (iso: string | null) => (iso === null ? '' : `, the oldest since ${iso}`);
  const sentences = [
    `It was seen last ${ago(seenAt, nowMs)} (${seenAt}), with tillsync ${version}.`,
    ...(reason === 'absent' ? [message] : []),
    behind === 0
      ? 'It had all that the hub has for it.'
      : `Entries that wait for it here: ${behind}${since(behindSince)}.`,
    `Changes that waited there: ${waiting}${since(oldestWaitingAt)}.`,
  ];
  return sentences.join(' ');
}
