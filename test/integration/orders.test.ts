import { afterEach, describe, expect, it } from 'vitest';
import { CALLBACKS_SILENT } from '../../src/core/alarm.ts';
import { silentLog } from '../../src/core/log.ts';
import { systemClock, systemRandom } from '../../src/core/system-clock.ts';
import { type Daemon, startDaemon } from '../../src/daemon/daemon.ts';
import { sandboxSettings } from '../../src/sandbox/settings.ts';
import { limitMs } from '../support/shared-config.ts';
import { openWorkplace, SECRET, until, type Workplace } from '../support/workplace.ts';

const { envelope: ENVELOPE, record: RECORD } = sandboxSettings.shape.shape.shape;

let place: Workplace;
let daemon: Daemon | undefined;

async function start(tokens: { refreshToken?: string } = {}): Promise<Daemon> {
  daemon = await startDaemon({
    config: place.config,
    secrets: { refreshToken: place.refreshToken, webhookSecrets: [SECRET], ...tokens },
    clock: systemClock,
    random: systemRandom,
    log: silentLog,
  });
  return daemon;
}

async function stop(): Promise<void> {
  await daemon?.stop();
  daemon = undefined;
}

const equal = () => until('mirror and platform are equal', () => place.differences().length === 0);
const stateOf = (subject: string) =>
  daemon?.services.mirror.health.freshness().find((each) => each.subject === subject);

afterEach(async () => {
  await stop();
  await place.close();
});

describe('orders, end to end', () => {
  it.each(
    ENVELOPE.options.map((envelope, i) => [envelope, RECORD.options[i % RECORD.options.length]] as const),
  )('come in by polls alone from an answer of the shape %s with %s records', async (envelope, record) => {
    place = await openWorkplace(1, { shape: { envelope, ...(record && { record }) } });
    place.sandbox.control.setWebhookBehaviour({ drop: 1 });
    for (let i = 0; i < 5; i++) place.sandbox.control.createOrder();
    await start();
    await equal();
    const [first] = place.sandbox.control.orders();
    place.sandbox.control.advanceOrder(first?.internalOrderId as string, 'cancel');
    await equal();
  });

  it('come in by webhook at once, in the state that the last poll or callback says', async () => {
    place = await openWorkplace(2);
    await start();
    const { control } = place.sandbox;
    await until('the webhook is registered', () => control.webhook()?.active === true);
    const order = control.createOrder();
    await control.settled();
    expect(place.mirrorRows().map((row) => row.status)).toEqual(['pending']);
    for (const status of ['payment-approved', 'inProcess', 'a-status-of-tomorrow', 'ready']) {
      control.advanceOrder(order.internalOrderId, status);
      await control.settled();
      // A status that the document does not name replaces none that it does.
      const expected = status === 'a-status-of-tomorrow' ? 'inProcess' : status;
      expect(place.mirrorRows()[0]?.status).toBe(expected);
    }
    control.setWebhookBehaviour({
      duplicate: 1,
      reorder: 0.5,
      reorderMs: 50,
      delay: 0.5,
      delayMs: [10, 200],
    });
    for (let i = 0; i < 30; i++) {
      const { internalOrderId } = control.createOrder({}, { hidden: i % 5 === 0 });
      for (let step = 0; step < 4; step++) control.advanceOrder(internalOrderId);
    }
    await control.settled();
    await equal();
  });

  it('are the same order by webhook and by poll when its id is a number too large for JavaScript', async () => {
    place = await openWorkplace(3);
    const { webhookUrl } = await start();
    const body = '\u{FEFF}{"internalOrderId":12345678901234567891,"internalStatus":"pending"}';
    const headers = { 'x-webhook-secret': SECRET, 'content-type': 'application/json' };
    expect((await fetch(webhookUrl as string, { method: 'POST', headers, body })).status).toBe(200);
    expect(place.mirrorRows().map((row) => row.order_id)).toEqual(['12345678901234567891']);
  });

  it(
    'survive failing, garbled, cut and refused answers',
    async () => {
      place = await openWorkplace(3);
      const { control } = place.sandbox;
      const kinds = ['status', 'html', 'truncated-json', 'drop', 'cut-body', 'wrong-content-type'] as const;
      for (const kind of kinds) control.setFault({ kind, endpoint: 'order.all', times: 1 });
      control.setWebhookBehaviour({ drop: 1 });
      control.createOrder();
      await start();
      await until('it was tried often enough', () => control.calls('order.all').length >= 4);
      await equal();
      expect(control.violations()).toEqual([]);
    },
    limitMs(40_000),
  );

  it('keep the old state when an answer has no list, and keep that answer for a person', async () => {
    place = await openWorkplace(4);
    const { control } = place.sandbox;
    control.createOrder();
    await start();
    await equal();
    control.setFault({ kind: 'not-success', endpoint: 'order.all', times: 1 });
    await until('the poll has failed', () => stateOf('orders.poll')?.state === 'failing');
    expect(place.mirrorRows()).toHaveLength(1);
    await until('it healed by itself', () => stateOf('orders.poll')?.state === 'ok');
  });

  it(
    'go on after access tokens expired, each refresh token used once',
    async () => {
      place = await openWorkplace(5, { accessTokenLifetimeMs: 2_500 });
      const { control } = place.sandbox;
      await start();
      await until('three refreshes were needed', () => control.calls('token.refresh').length >= 3, 20_000);
      control.createOrder({}, { hidden: true });
      control.expireAccessTokens();
      await equal();
      expect(control.deadRefreshUses()).toEqual([]);
      expect(control.violations()).toEqual([]);
    },
    limitMs(30_000),
  );

  it(
    'stop when only a person can help, say so, and go on by themselves with new tokens',
    async () => {
      place = await openWorkplace(6, { accessTokenLifetimeMs: 2_500 });
      const { control } = place.sandbox;
      await start();
      await until('the webhook is registered', () => control.webhook()?.active === true);
      await equal();
      control.revokeRefreshTokens();
      await until('the lock-out is told', () => stateOf('orders.poll')?.state === 'locked-out');
      expect(stateOf('auth')?.state).toBe('locked-out');
      const calls = control.calls().length;
      const order = control.createOrder();
      await control.settled();
      expect(place.mirrorRows().map((row) => row.order_id)).toEqual([order.internalOrderId]);
      await systemClock.sleep(1_500);
      expect(control.calls()).toHaveLength(calls);
      const { refreshToken } = place.sandbox.issueTokens();
      await daemon?.services.platform.tokens.set({ refreshToken });
      await until('it healed by itself', () => stateOf('orders.poll')?.state === 'ok');
      await until('the tokens work', () => stateOf('auth')?.state === 'ok');
    },
    limitMs(40_000),
  );

  it(
    'leave a blocked token alone, also after a restart',
    async () => {
      place = await openWorkplace(7);
      const { control } = place.sandbox;
      await start();
      await equal();
      control.setFault({ kind: 'block', endpoint: 'order.all', times: 1 });
      await until('the block is told', () => stateOf('orders.poll')?.state === 'blocked');
      // A call sent before the block may still arrive.
      await systemClock.sleep(300);
      const calls = control.calls().length;
      await stop();
      await start();
      await systemClock.sleep(1_000);
      expect(control.calls()).toHaveLength(calls);
    },
    limitMs(40_000),
  );

  it(
    'are found although the webhook is silent, and the silence is told',
    async () => {
      place = await openWorkplace(8);
      const { control } = place.sandbox;
      await start();
      await until('the webhook is registered', () => control.webhook()?.active === true);
      await until('two polls passed', () => control.calls('order.all').length >= 2);
      for (let i = 0; i < 4; i++) {
        control.createOrder({}, { hidden: true });
        await systemClock.sleep(500);
      }
      await equal();
      await until('it is told', () => stateOf('orders.webhook')?.failure?.code === CALLBACKS_SILENT);
      control.createOrder();
      await until('it is over', () => stateOf('orders.webhook')?.state === 'ok');
    },
    limitMs(40_000),
  );
});
