import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { has, onCore } from './http-load.ts';
import { inherited } from './packaged-program.ts';
import type { Candidate, Missing } from './receiver-candidates.ts';
import { freePort, SECRET, type ServerProcess, untilListening } from './server-process.ts';

const WHAT = 'a command for each (webhook and sqlite3)';

/**
 * Returns Debian's `webhook` as a candidate, set up as in its manual, with a script that stores the body before the
 * answer.
 */
export function openWebhookRival(): Candidate | Missing {
  const absent = ['webhook', 'sqlite3'].filter((program) => !has(program));
  if (absent.length > 0) return { what: WHAT, reason: `${absent.join(' and ')} not installed` };
  return {
    label: 'webhook + sqlite3',
    against: { what: WHAT, bound: '' },
    about: "Debian's webhook runs a script for each; the sqlite3 command stores the body, WAL and FULL",
    start,
    stored: (directory) => Number(sqlite(directory, 'SELECT count(*) FROM callbacks')),
    mayFail: true,
  };
}

// The program webhook puts the body into a temporary file, so that no quoting and no limit on an argument's length
// matters.
const SCRIPT = `#!/bin/sh
exec sqlite3 -bail -cmd '.timeout 10000' -cmd 'PRAGMA synchronous=FULL' "$DATABASE" \\
  "INSERT INTO callbacks (received_at, body) VALUES (datetime('now'), CAST(readfile('$BODY') AS TEXT))"
`;

async function start(directory: string): Promise<ServerProcess> {
  sqlite(
    directory,
    'PRAGMA journal_mode=WAL; CREATE TABLE callbacks (id INTEGER PRIMARY KEY, received_at TEXT, body TEXT)',
  );
  const script = path.join(directory, 'store.sh');
  writeFileSync(script, SCRIPT);
  chmodSync(script, 0o755);
  const bodies = path.join(directory, 'bodies');
  mkdirSync(bodies);
  const hooks = path.join(directory, 'hooks.json');
  writeFileSync(hooks, JSON.stringify([hook(script, bodies)]));
  const port = await freePort();
  const args = ['-ip', '127.0.0.1', '-port', String(port), '-hooks', hooks];
  const child = spawn(...onCore(0, 'webhook', args), {
    env: { ...inherited(), DATABASE: databaseIn(directory) },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const exit = once(child, 'exit');
  await Promise.race([untilListening(port), exit.then(() => Promise.reject(new Error('webhook ended.')))]);
  return {
    url: `http://127.0.0.1:${port}/hooks/orders`,
    async stop() {
      child.kill('SIGTERM');
      await exit;
    },
  };
}

function hook(script: string, bodies: string) {
  return {
    id: 'orders',
    'http-methods': ['POST'],
    'execute-command': script,
    'command-working-directory': bodies,
    'pass-file-to-command': [{ source: 'raw-request-body', envname: 'BODY' }],
    // Without this setting, webhook answers 200 before the command ends, whatever the command's result.
    'include-command-output-in-response': true,
    'trigger-rule': {
      match: { type: 'value', value: SECRET, parameter: { source: 'header', name: 'X-Webhook-Secret' } },
    },
    'trigger-rule-mismatch-http-response-code': 401,
  };
}

const databaseIn = (directory: string) => path.join(directory, 'callbacks.db');

function sqlite(directory: string, statement: string): string {
  // The timeout is for commands of the load that may still be running.
  const args = ['-cmd', '.timeout 10000', databaseIn(directory), statement];
  return execFileSync('sqlite3', args, { encoding: 'utf8' }).trim();
}
