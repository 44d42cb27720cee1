import { createHmac } from 'node:crypto';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Webhook } from 'standardwebhooks';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../src/core/system-clock.ts';
import { type HookEvent, type HookSettings, madeUpEvent } from '../../src/hooks/hook.ts';
import { hookReceiver } from '../../src/hooks/receivers.ts';
import { eventReceiver, hook, until } from './event-receiver.ts';

const never = new AbortController().signal;

/** Makes an event of a real order, because the answer to an invented event is not anonymised. */
function realEvent(): HookEvent {
  const { test: _test, ...event } = madeUpEvent('2026-03-01T18:30:00.000Z');
  return { ...event, seq: 7, source: 'webhook' };
}

function receiverFor(settings: HookSettings, env: NodeJS.ProcessEnv = process.env) {
  const receiver = hookReceiver({ hook: settings, secrets: [], env, version: '1.2.3', clock: systemClock });
  onTestFinished(() => receiver.close());
  return receiver;
}

describe('a program', () => {
  /** Makes a shell script that is a hook's program. It gets its own directory as $1. */
  function script(text: string, timeoutMs = 5_000) {
    const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-hook-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const file = path.join(directory, 'program');
    writeFileSync(file, `#!/bin/sh\n${text}\n`);
    chmodSync(file, 0o755);
    const settings = hook('printer', { command: [file, directory], timeoutMs });
    const at = (name: string) => path.join(directory, name);
    return { settings, at, read: (name: string) => readFileSync(at(name), 'utf8') };
  }

  it('gets the event on standard input and nothing secret in its environment', async () => {
    const { settings, read } = script('cat > $1/input; env > $1/env; echo "$2" > $1/words');
    const env = {
      PATH: process.env.PATH,
      HOME: '/root',
      TILLSYNC_REFRESH_TOKEN: 'planted-1',
      TILLSYNC_HOOK_PRINTER: 'planted-2',
      CREDENTIALS_DIRECTORY: '/run/planted-3',
      NOTIFY_FD: '4',
    };
    const words = { ...settings, command: [...settings.command, '$(id); `id` "quoted"'] };
    const event = realEvent();
    expect(await receiverFor(words, env).send(event, never)).toMatchObject({ ok: true });
    expect(JSON.parse(read('input'))).toEqual(event);
    expect(read('env')).not.toMatch(/planted|NOTIFY/);
    expect(read('env')).toContain('HOME=/root');
    expect(read('words')).toBe('$(id); `id` "quoted"\n');
  });

  it('that ends with another code says why, without the customer', async () => {
    const { settings } = script('cat > /dev/null; echo "no paper for María José" >&2; exit 3');
    expect(await receiverFor(settings).send(realEvent(), never)).toEqual({
      ok: false,
      what: 'the program ended with 3',
      text: 'no paper for [customer]',
    });
  });

  it('may read nothing, and may write more than a pipe holds', async () => {
    const { settings } = script(
      'i=0; while [ $i -lt 20000 ]; do echo "line $i" >&2; echo out; i=$((i+1)); done',
    );
    const answer = await receiverFor(settings).send(realEvent(), never);
    expect(answer).toMatchObject({ ok: true, what: 'the program ended with 0' });
    expect(answer.text).toMatch(/line 19999$/);
    expect(answer.text.length).toBeLessThanOrEqual(500);
  });

  it('that takes too long is ended with all that it started', async () => {
    const { settings, read } = script('sleep 60 & echo $! > $1/pid; sleep 60', 300);
    expect(await receiverFor(settings).send(realEvent(), never)).toMatchObject({
      ok: false,
      what: 'the program was ended, for it took longer than 300 ms',
    });
    await until(() => !isAlive(Number(read('pid'))));
  });

  it('is ended when tillsync ends', async () => {
    const { settings, at, read } = script('sleep 60 & echo $! > $1/pid; touch $1/began; sleep 60');
    const stop = new AbortController();
    const sending = receiverFor(settings).send(realEvent(), stop.signal);
    await until(() => existsSync(at('began')));
    stop.abort();
    await expect(sending).rejects.toMatchObject({ code: 'aborted' });
    await until(() => !isAlive(Number(read('pid'))));
  });

  it.each([
    ['/nowhere/to/be/found', /not there/],
    ['/etc/passwd', /permission denied/],
  ])('that cannot be started is told: %s', async (program, why) => {
    const answer = await receiverFor(hook('printer', { command: [program] })).send(realEvent(), never);
    expect(answer).toMatchObject({ ok: false, what: expect.stringMatching(why) });
  });
});

/** Returns whether a process still runs. A zombie, which ended but was not reaped, does not. */
function isAlive(pid: number): boolean {
  try {
    return !/^State:\tZ/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

describe('an address', () => {
  async function serverWith(answer: Parameters<typeof createServer>[1] & {}) {
    const server = createServer(answer);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/?key=hidden-key`;
    return hook('pos', { url, timeoutMs: 500 });
  }

  it('that gives no answer in time, or is not there, fails without telling the address', async () => {
    const silent = await receiverFor(await serverWith(() => {})).send(realEvent(), never);
    expect(silent).toMatchObject({ ok: false, what: expect.stringMatching(/gave no answer within 500 ms$/) });
    const gone = await receiverFor(hook('pos', { url: 'http://127.0.0.1:1/?key=hidden-key' })).send(
      realEvent(),
      never,
    );
    expect(gone).toMatchObject({ ok: false, what: '127.0.0.1:1 cannot be reached (ECONNREFUSED)' });
    expect(JSON.stringify([silent, gone])).not.toContain('hidden-key');
  });

  it('that answers without end is not read to its end, and its words hide the customer', async () => {
    const settings = await serverWith((_request, response) => {
      response.writeHead(500);
      const more = () => {
        while (!response.destroyed && response.write('Who is María José? '.repeat(1_000)));
      };
      response.on('drain', more);
      more();
    });
    const timeoutMs = Math.round(settings.timeoutMs * Number(process.env.TILLSYNC_SLOW));
    const answer = await receiverFor({ ...settings, timeoutMs }).send(realEvent(), never);
    expect(answer.ok).toBe(false);
    expect(answer.text).toMatch(/^Who is \[customer\]\? Who/);
    expect(answer.text.length).toBeLessThanOrEqual(500);
  });

  it('that took the event has taken it, however its answer ends', async () => {
    const settings = await serverWith((_request, response) => {
      response.writeHead(202).write('so far');
      setTimeout(() => response.destroy(), 20);
    });
    expect(await receiverFor(settings).send(realEvent(), never)).toMatchObject({ ok: true, text: 'so far' });
  });

  const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  const OLD_SECRET = 'a-text-of-the-shop';

  it('is signed as Standard Webhooks says, which its own package accepts and no changed body', async () => {
    const receiver = await eventReceiver();
    const settings = hook('pos', { url: receiver.url });
    const signing = hookReceiver({
      hook: settings,
      secrets: [SECRET, OLD_SECRET],
      env: {},
      version: '1',
      clock: systemClock,
    });
    onTestFinished(() => signing.close());
    const event = realEvent();
    for (const each of [event, event, { ...event, seq: 8 }, madeUpEvent('2026-03-01T18:30:00.000Z')]) {
      expect(await signing.send(each, never)).toMatchObject({ ok: true });
    }
    const judges = [new Webhook(SECRET), new Webhook(OLD_SECRET, { format: 'raw' })];
    for (const { body, headers } of receiver.received) {
      for (const judge of judges) {
        expect(judge.verify(body, headers as Record<string, string>)).toEqual(JSON.parse(body));
        expect(() => judge.verify(`${body} `, headers as Record<string, string>)).toThrow('signature');
      }
      const old = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
      expect(headers['x-tillsync-signature']).toBe(old);
    }
    const [first, again, other, test] = receiver.received.map(({ headers }) => headers['webhook-id']);
    expect(again).toBe(first);
    expect(new Set([first, other, test]).size).toBe(3);
  });

  it('that is sent again much later by somebody else is refused by the package', async () => {
    const receiver = await eventReceiver();
    const clock = { nowMs: () => Date.now() - 3_600_000 };
    const settings = hook('pos', { url: receiver.url });
    const signing = hookReceiver({ hook: settings, secrets: [SECRET], env: {}, version: '1', clock });
    onTestFinished(() => signing.close());
    await signing.send(realEvent(), never);
    const [{ body, headers } = { body: '', headers: {} }] = receiver.received;
    const verify = () => new Webhook(SECRET).verify(body, headers as Record<string, string>);
    expect(verify).toThrow('too old');
  });
});
