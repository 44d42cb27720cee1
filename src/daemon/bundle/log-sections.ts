import { execFile } from 'node:child_process';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { basename } from 'node:path';
import { asRoot } from '../storage/storage-user.ts';
import type { Section } from './section.ts';

const JOURNAL_LINES = 5_000;
const LOG_BYTES_MAX = 2 * 1024 * 1024;
const PROGRAM_TIMEOUT_MS = 10_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;
const SHOWN =
  'LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,NRestarts,ActiveEnterTimestamp,InactiveEnterTimestamp,StatusText,MemoryCurrent,User,Group,FragmentPath,DropInPaths,UnitFileState';

/** The service and what it wrote. */
export function logSections(options: { unit: string; logFiles: readonly string[] }): Section[] {
  const { unit } = options;
  const tail = ['--unit', unit, '--lines', String(JOURNAL_LINES), '--no-pager', '--output', 'short-iso'];
  return [
    {
      name: 'service.txt',
      what: `the state of the systemd unit ${unit}`,
      mayNamePeople: false,
      isForeign: true,
      make: async () => ({
        text: await outputOf('systemctl', ['show', unit, '--no-pager', '--property', SHOWN]),
      }),
    },
    {
      name: 'journal.txt',
      what: `the last ${JOURNAL_LINES} lines that ${unit} wrote`,
      mayNamePeople: true,
      isForeign: true,
      make: async () => ({ text: await outputOf('journalctl', tail) }),
    },
    ...options.logFiles.map(
      (path, i): Section => ({
        name: `log-${i + 1}.txt`,
        what: `the end of ${basename(path)}`,
        mayNamePeople: true,
        isForeign: true,
        make: () => ({ text: asRoot(() => endOf(path)) }),
      }),
    ),
  ];
}

/** What a program says; also what it says when it fails, for that is why somebody looks. */
function outputOf(program: string, words: string[]): Promise<string> {
  return new Promise((resolve) => {
    const options = {
      timeout: PROGRAM_TIMEOUT_MS,
      maxBuffer: OUTPUT_BYTES_MAX,
      env: { PATH: process.env.PATH ?? '', LC_ALL: 'C' },
    };
    // Not everybody may read the journal.
    asRoot(() =>
      execFile(program, words, options, (error, stdout, stderr) => {
        const failed =
          error === null ? '' : `${program} failed: ${'code' in error ? error.code : 'unknown'}\n`;
        resolve(`${failed}${stderr}${stdout}`);
      }),
    );
  });
}

/** From the first whole line of the last part. */
function endOf(path: string): string {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    const start = Math.max(0, size - LOG_BYTES_MAX);
    const end = Buffer.alloc(size - start);
    const bytes = readSync(file, end, 0, end.length, start);
    const text = end.toString('utf8', 0, bytes);
    return start === 0 ? text : text.slice(text.indexOf('\n') + 1);
  } finally {
    closeSync(file);
  }
}
