import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type HookEvent, madeUpEvent, type PreparationMessage } from '../../src/hooks/hook.ts';
import { timesOf } from '../../src/hooks/prepared-orders.ts';
import { httpStandIn } from './http-stand-in.ts';

const RECIPES = path.join(import.meta.dirname, 'hooks');
const hasPython = existsSync('/usr/bin/python3') || runs('python3');
if (!hasPython) console.warn('Not tested: the recipes of hooks. Install it: apt install python3');
const tried = it.skipIf(!hasPython);

function runs(program: string): boolean {
  try {
    execFileSync(program, ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** Makes the event of a customer's order (not of a test) with characters that are difficult for code pages. */
function realEvent(): HookEvent {
  const { test: _test, ...event } = madeUpEvent('2026-03-01T18:30:00.000Z');
  const [item] = event.order?.items ?? [];
  if (!event.order || !item) throw new Error('no order');
  const order = {
    ...event.order,
    orderId: '65a1',
    code: 1005,
    customerFirstName: 'Ñusta Ávila',
    customerLastName: 'Güell',
    items: [{ ...item, productName: 'Té ¿negro? ¡sí! 💥 Ł', comment: 'sin azúcar\u001b@\u0007' }],
  };
  return { ...event, seq: 77, orderId: '65a1', source: 'webhook', order };
}

type Order = NonNullable<HookEvent['order']>;

/** Makes an event of a preparation of a customer's order. */
function kitchenEvent(order: Partial<Order>, event: Partial<PreparationMessage> = {}): PreparationMessage {
  const sample = realEvent().order as Order;
  const whole = { ...sample, createdAt: '2026-03-01T15:10:00.000Z', ...order };
  const observedAt = '2026-03-01T18:30:00.000Z';
  return {
    ...{ event: 'order.prepare', seq: 7, id: 'prepare_1', orderId: whole.orderId, status: whole.status },
    ...{ reason: null, changes: null, observedAt },
    ...timesOf(whole, observedAt, 'America/Santiago'),
    order: whole,
    ...event,
  };
}

/** Makes a line of an order, with options by name and quantity. */
function orderLine(
  productName: string,
  quantity: number | null,
  options: Record<string, number | null> = {},
) {
  const [item] = realEvent().order?.items ?? [];
  if (!item) throw new Error('no line');
  const modifiers = Object.entries(options).map(([optionName, count]) => ({
    ...{ name: 'Extra', shortName: null, description: null, optionId: null, optionExternalId: null },
    ...{ optionName, optionPrice: null, quantity: count, modifierExternalId: null },
  }));
  return { ...item, productName, quantity, productPrice: 13.75, comment: null, modifiers };
}

async function run(
  recipe: string,
  words: string[],
  event: HookEvent | PreparationMessage,
  env: Record<string, string> = {},
) {
  const child = spawn('python3', [path.join(RECIPES, recipe), ...words], {
    // The environment is the same as under the service.
    env: { PATH: process.env.PATH ?? '', ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (text) => {
    said += text;
  });
  child.stdin.end(JSON.stringify(event));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, said };
}

function secretFile(secret: string): string {
  const directory = mkdtempSync(path.join(tmpdir(), 'tillsync-recipe-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = path.join(directory, 'secret');
  writeFileSync(file, `${secret}\n`);
  return file;
}

/** Starts a printer on its own port. It answers questions about its paper and records the bytes that it prints. */
async function printer(paper: number | null): Promise<{ port: string; printed: () => Buffer }> {
  const chunks: Buffer[] = [];
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('data', (data) => {
      if (data.equals(Buffer.from([0x10, 0x04, 0x04]))) {
        if (paper !== null) socket.write(Buffer.from([paper]));
      } else chunks.push(data);
    });
    socket.on('end', () => socket.end());
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  return {
    port: String(typeof address === 'object' ? address?.port : ''),
    printed: () => Buffer.concat(chunks),
  };
}

tried(
  'print-order prints Spanish by the code page, cuts, and lets no customer command the printer',
  async () => {
    for (const paper of [0x12, null]) {
      const { port, printed } = await printer(paper);
      expect(await run('print-order', ['127.0.0.1', port], realEvent())).toEqual({ code: 0, said: '' });
      const bytes = printed();
      expect(bytes.subarray(0, 5).toString('latin1')).toBe('\x1b@\x1bt\x02');
      expect(bytes.subarray(-4).toString('latin1')).toBe('\x1dV\x42\x00');
      // The expected bytes are ñ, á, ü, é, ¿, ¡ and í in code page 850.
      const text = bytes.toString('latin1');
      expect(text).toContain('#1005');
      expect(text).toContain('\xa5usta \xb5vila G\x81ell');
      expect(text).toContain('T\x82 \xa8negro? \xads\xa1! ? ?');
      expect(text).toContain('$12.990');
      expect(text.split('\x1b@')).toHaveLength(2);
      expect(text).not.toContain('\x07');
    }
  },
);

async function ticket(event: HookEvent | PreparationMessage): Promise<string> {
  const { port, printed } = await printer(0x12);
  expect(await run('print-order', ['127.0.0.1', port], event)).toEqual({ code: 0, said: '' });
  // The rows as printed: the commands for large letters are left out.
  return printed().toString('latin1').replaceAll('\x1d!\x11', '').replaceAll('\x1d!\x00', '');
}

tried('print-order says when in the shop, how many of each option, and the exact money', async () => {
  const items = [
    orderLine('Pizza', 2, { Queso: 2, Oliva: 1, Ajo: null, Nada: 0 }),
    orderLine('Jugo', 0),
    orderLine('Jamon', 0.5),
  ];
  const due = { isScheduled: true, scheduledFor: '2026-03-01T23:30:00.000Z' };
  const text = await ticket(kitchenEvent({ items, amountToPay: 1013.75, deliveryType: 'pickup', ...due }));
  expect(text).toContain('#1005\nPARA HOY 20:30\n');
  expect(text).toMatch(/Pedido de las 12:10 +2026-03-01\n/);
  expect(text).toContain('RETIRO\n');
  expect(text).toMatch(/2 x Pizza +\$13,75\n {4}2 x Queso\n {4}Oliva\n {4}Ajo\n0,5 x Jamon/);
  expect(text).toMatch(/TOTAL +\$1\.013,75\n/);
  expect(text).not.toMatch(/Jugo|Nada|1 x/);
  const later = { isScheduled: true, scheduledFor: '2026-03-03T23:30:00.000Z' };
  expect(await ticket(kitchenEvent(later))).toContain('PARA 03-03 20:30\n');
  // A long name is not cut off.
  const long = 'Hamburguesa doble con palta y tomate sin gluten';
  expect((await ticket(kitchenEvent({ items: [orderLine(long, 1)] }))).replace(/\s+/g, ' ')).toMatch(
    /1 x Hamburguesa .* sin gluten/,
  );
});

tried(
  'print-order marks what changed, and prints a slip for what is not to be prepared any more',
  async () => {
    const side = (name: string, quantity: number) => ({ name, quantity, options: [] });
    const line = { what: 'line' } as const;
    const text = await ticket(
      kitchenEvent(
        {
          items: [orderLine('Pizza', 3), orderLine('Torta', 1), orderLine('Agua', 1)],
          ...{ isScheduled: true, scheduledFor: '2026-03-01T23:30:00.000Z' },
        },
        {
          event: 'order.changed',
          changes: [
            { ...line, change: 'changed', line: 1, before: side('Pizza', 2), after: side('Pizza', 3) },
            { ...line, change: 'new', line: 2, before: null, after: side('Torta', 1) },
            { ...line, change: 'removed', line: null, before: side('Jugo', 1), after: null },
            { what: 'dueAt', before: null, after: '2026-03-01T23:30:00.000Z' },
          ],
        },
      ),
    );
    expect(text).toContain('PARA HOY 20:30 (NUEVA HORA)\n*** CAMBIO ***\n');
    expect(text).toMatch(
      />> CAMBIA\n3 x Pizza .*\n {4}\(antes 2 x Pizza\)\n>> NUEVO\n1 x Torta .*\n1 x Agua/,
    );
    expect(text).toContain('>> QUITAR 1 x Jugo\n');
    const slip = { event: 'order.undone', reason: 'cancel' } as const;
    expect(await ticket(kitchenEvent({}, slip))).toContain('#1005\n*** ANULADO: NO PREPARAR ***\n');
    expect(await ticket(kitchenEvent({}, { ...slip, reason: 'moved' }))).toContain(
      '*** EN OTRA SUCURSAL: NO PREPARAR ***\n',
    );
  },
);

tried('the recipes of messages say what is to be done, and no line of quantity 0', async () => {
  const server = await httpStandIn();
  const items = [orderLine('Pizza', 2), orderLine('Jugo', 0)];
  const event = kitchenEvent({ items }, { event: 'order.undone', reason: 'cancel' });
  expect(await run('tell-ntfy', [server.url, 'shop-x'], event)).toMatchObject({ code: 0 });
  expect(JSON.parse(server.calls[0]?.body ?? '')).toMatchObject({
    title: 'Pedido 1005: anulado',
    message: '2 x Pizza',
  });
  const words = [`${server.url}/api/sales`, secretFile('pos-key')];
  expect(await run('post-to-pos', words, kitchenEvent({ items }))).toMatchObject({ code: 0 });
  expect(server.calls[1]?.headers).toMatchObject({ 'idempotency-key': 'prepare_1' });
  expect(JSON.parse(server.calls[1]?.body ?? '').lines).toHaveLength(1);
});

tried('print-order fails without paper and without a printer, so that the hook tries again', async () => {
  const { port, printed } = await printer(0x72);
  expect(await run('print-order', ['127.0.0.1', port], realEvent())).toMatchObject({
    code: 1,
    said: 'the printer has no paper\n',
  });
  expect(printed()).toHaveLength(0);
  expect((await run('print-order', ['127.0.0.1', '1'], realEvent())).code).toBe(1);
});

tried('tell-ntfy publishes the order to the topic', async () => {
  const server = await httpStandIn();
  const token = secretFile('tk_secret');
  expect(await run('tell-ntfy', [server.url, 'shop-x', token], realEvent())).toMatchObject({ code: 0 });
  const [call] = server.calls;
  expect(call?.headers.authorization).toBe('Bearer tk_secret');
  expect(JSON.parse(call?.body ?? '')).toMatchObject({
    topic: 'shop-x',
    title: 'Pedido 1005: payment-approved',
    message: expect.stringContaining('2 x Té ¿negro?'),
  });
  server.status = 500;
  expect(await run('tell-ntfy', [server.url, 'shop-x'], realEvent())).toMatchObject({ code: 1 });
});

tried('tell-telegram sends the message, and never tells the token', async () => {
  const server = await httpStandIn();
  const token = secretFile('12345:AAtoken');
  const words = ['-100777', token, server.url];
  expect(await run('tell-telegram', words, realEvent())).toMatchObject({ code: 0 });
  expect(server.calls[0]?.path).toBe('/bot12345:AAtoken/sendMessage');
  expect(JSON.parse(server.calls[0]?.body ?? '')).toMatchObject({
    chat_id: '-100777',
    text: expect.stringMatching(/^Pedido 1005: payment-approved\n2 x Té/),
  });
  server.status = 429;
  for (const to of [server.url, 'http://127.0.0.1:1']) {
    const failed = await run('tell-telegram', ['-100777', token, to], realEvent());
    expect(failed.code).toBe(1);
    expect(failed.said).toMatch(/^Telegram /);
    expect(failed.said).not.toContain('AAtoken');
  }
});

tried('mail-order hands msmtp a whole mail, and fails when msmtp does', async () => {
  const directory = path.dirname(secretFile(''));
  const stub = path.join(directory, 'msmtp');
  writeFileSync(
    stub,
    `#!/bin/sh\necho "$@" > ${directory}/words\ncat > ${directory}/mail\nexit \${END:-0}\n`,
  );
  chmodSync(stub, 0o755);
  const env = { PATH: `${directory}:${process.env.PATH}` };
  const words = ['shop@example.com', 'kitchen@example.com', 'owner@example.com'];
  expect(await run('mail-order', words, realEvent(), env)).toEqual({ code: 0, said: '' });
  expect(readFileSync(path.join(directory, 'words'), 'utf8')).toBe(
    '--from shop@example.com -- kitchen@example.com owner@example.com\n',
  );
  const mail = readFileSync(path.join(directory, 'mail'), 'utf8');
  expect(mail).toMatch(/^Subject: Pedido 1005: payment-approved$/m);
  expect(mail).toMatch(/^Message-ID: <77\.65a1@tillsync\.local>$/m);
  expect(mail).toMatch(/^Content-Type: text\/plain; charset="utf-8"$/m);
  expect(await run('mail-order', words, realEvent(), { ...env, END: '75' })).toMatchObject({ code: 75 });
});

/** Starts a mail server that records the lines it gets. It accepts each mail, or defers it while `isFull` is true. */
async function mailServer(): Promise<{ port: string; told: string[]; isFull: boolean }> {
  const told: string[] = [];
  const server = createServer((socket) => {
    let rest = '';
    let isMail = false;
    const say = (line: string) => socket.write(`${line}\r\n`);
    say('220 mail.test ESMTP');
    socket.on('error', () => {});
    socket.on('data', (data) => {
      rest += data.toString();
      for (let end = rest.indexOf('\r\n'); end >= 0; end = rest.indexOf('\r\n')) {
        const line = rest.slice(0, end);
        rest = rest.slice(end + 2);
        told.push(line);
        if (isMail) {
          isMail = line !== '.';
          if (!isMail) say('250 taken');
        } else if (line === 'DATA') {
          isMail = true;
          say('354 go on');
        } else if (line === 'QUIT') {
          say('221 bye');
          socket.end();
        } else say(state.isFull && line.startsWith('RCPT') ? '452 no room' : '250 mail.test');
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const address = server.address();
  const state = { port: String(typeof address === 'object' ? address?.port : ''), told, isFull: false };
  return state;
}

const hasMsmtp = runs('msmtp');
if (!hasMsmtp) console.warn('Not tested: mail-order with the real msmtp. Install it: apt install msmtp');
it.skipIf(!hasPython || !hasMsmtp)(
  'mail-order mails through the real msmtp, once for each event',
  async () => {
    const server = await mailServer();
    const home = path.dirname(secretFile(''));
    writeFileSync(
      path.join(home, '.msmtprc'),
      `account default\nhost 127.0.0.1\nport ${server.port}\ntls off\nauth off\n`,
      { mode: 0o600 },
    );
    const words = ['shop@example.com', 'kitchen@example.com', 'owner@example.com'];
    expect(await run('mail-order', words, realEvent(), { HOME: home })).toEqual({ code: 0, said: '' });
    const envelope = server.told.filter((line) => /^(MAIL|RCPT)/.test(line));
    expect(envelope).toEqual([
      expect.stringMatching(/^MAIL FROM:<shop@example\.com>/),
      'RCPT TO:<kitchen@example.com>',
      'RCPT TO:<owner@example.com>',
    ]);
    const mail = server.told.join('\n');
    expect(mail).toMatch(/^Subject: Pedido 1005: payment-approved$/m);
    expect(mail).toMatch(/^Message-ID: <77\.65a1@tillsync\.local>$/m);
    const [, encoding, body = ''] =
      /^Content-Transfer-Encoding: (\S+)[\s\S]*?\n\n([\s\S]*?)\n\.$/m.exec(mail) ?? [];
    const text = encoding === 'base64' ? Buffer.from(body, 'base64').toString() : body;
    expect(text).toContain('2 x Té ¿negro? ¡sí!');
    // The server has no room now, so the recipe must fail; then the hook runs it again later.
    server.isFull = true;
    const failed = await run('mail-order', words, realEvent(), { HOME: home });
    expect(failed.code).not.toBe(0);
    expect(failed.said).toContain('452');
  },
);

tried('post-to-pos sells in the shape of the POS, once for each event, and nothing for a test', async () => {
  const server = await httpStandIn();
  const words = [`${server.url}/api/sales`, secretFile('pos-key')];
  expect(await run('post-to-pos', words, realEvent())).toMatchObject({ code: 0 });
  expect(server.calls[0]).toMatchObject({ method: 'POST', path: '/api/sales' });
  expect(server.calls[0]?.headers).toMatchObject({ 'x-api-key': 'pos-key', 'idempotency-key': '77' });
  expect(JSON.parse(server.calls[0]?.body ?? '')).toMatchObject({
    number: 1005,
    reference: '65a1',
    lines: [{ article: 'test', quantity: 2, price: 5495 }],
  });
  server.status = 409;
  expect(await run('post-to-pos', words, realEvent())).toMatchObject({ code: 0 });
  server.status = 422;
  expect(await run('post-to-pos', words, realEvent())).toMatchObject({ code: 1 });
  server.status = 200;
  expect(await run('post-to-pos', words, madeUpEvent('2026-03-01T18:30:00.000Z'))).toMatchObject({ code: 0 });
  expect(server.calls.at(-1)?.method).toBe('HEAD');
});
