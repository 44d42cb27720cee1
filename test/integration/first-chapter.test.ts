import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { storedKey } from '../../src/config/key-file.ts';
import { freePort } from '../support/free-port.ts';
import { MAIN, NODE, ROOT, until } from '../support/workplace.ts';

const TEST_MS = 120_000;
const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-chapter-'));
const [sandboxPort, localPort, webhookPort] = [await freePort(), await freePort(), await freePort()];
let terminal: ChildProcess | undefined;

afterEach(async () => {
  await endTerminal();
  rmSync(directory, { recursive: true, force: true });
});

/** Returns the commands in docs/pos.md, with ports that are free here and without starting npm. */
function chapter(): { first: string; second: string } {
  const text = readFileSync(path.join(ROOT, 'docs/pos.md'), 'utf8');
  const [, part = ''] = text.split('## Develop without an account\n');
  const [first = '', second = ''] = [...part.matchAll(/```sh\n(.*?)```/gs)].map(([, script = '']) =>
    script
      .replaceAll('npm run -s tillsync --', `${NODE} ${MAIN}`)
      .replaceAll('9090', String(sandboxPort))
      .replaceAll('8787', String(webhookPort)),
  );
  return { first, second };
}

function inTerminal(script: string): ChildProcess {
  return spawn('bash', ['-c', script], {
    cwd: directory,
    // The process has a group of its own, as in a terminal.
    detached: true,
    stdio: 'ignore',
    env: {
      PATH: process.env.PATH ?? '',
      HOME: directory,
      TILLSYNC_LOCAL_LISTEN: `127.0.0.1:${localPort}`,
      TILLSYNC_WEBHOOK_LISTEN: `127.0.0.1:${webhookPort}`,
    },
  });
}

/** Ends the process group of the terminal, as Ctrl-C does, and waits until nothing listens any more. */
async function endTerminal(): Promise<void> {
  const ended = terminal;
  terminal = undefined;
  if (ended?.pid === undefined) return;
  const closed = once(ended, 'close');
  process.kill(-ended.pid, 'SIGTERM');
  await closed;
  await until('nothing listens', async () => (await answer(sandboxPort, '/_sandbox')) === undefined);
}

async function answer(port: number, what: string): Promise<string | undefined> {
  try {
    const headers = { 'x-api-key': storedKey(path.join(directory, 'dev')) ?? '' };
    return await (await fetch(`http://127.0.0.1:${port}${what}`, { headers })).text();
  } catch {
    return undefined;
  }
}

async function productNames(): Promise<string> {
  const { products } = JSON.parse((await answer(localPort, '/v1/products?limit=100')) ?? '{"products":[]}');
  return products.map(({ name }: { name: string }) => name).join(', ');
}

async function redFindings(): Promise<unknown[]> {
  const { verdict } = JSON.parse((await answer(localPort, '/v1/status')) ?? '{}');
  return verdict.findings.filter(({ level }: { level: string }) => level === 'red');
}

/**
 * Types the chapter's commands, and waits until the POS has the order of the second block. Returns the product names.
 */
async function followChapter(): Promise<string> {
  const { first, second } = chapter();
  terminal = inTerminal(first);
  await until(
    'tillsync is ready',
    async () => (await answer(localPort, '/readyz'))?.includes('"ok"') ?? false,
  );
  let names = '';
  await until('the catalogue is there', async () => {
    names = await productNames();
    return names !== '';
  });
  const before = (await answer(localPort, '/v1/orders?after=0&limit=500')) ?? '';
  const [code] = await once(inTerminal(second), 'close');
  expect(code).toBe(0);
  await until('the order came in', async () => {
    const { events } = JSON.parse((await answer(localPort, '/v1/orders?after=0&limit=500')) ?? '{}');
    return events.length > JSON.parse(before).events.length;
  });
  const { tokens } = JSON.parse((await answer(localPort, '/v1/status')) ?? '{}');
  expect(tokens.state).toBe('ok');
  expect(await redFindings()).toEqual([]);
  await endTerminal();
  return names;
}

it(
  'the chapter of the POS vendor for those without an account works, and works the next morning',
  async () => {
    const first = await followChapter();
    expect(await followChapter()).toBe(first);
  },
  TEST_MS,
);
