import { expect, it, onTestFinished } from 'vitest';
import type { DownMessage } from '../../src/link/link.ts';
import { NatsBranchLink, NatsHubLink, newKey } from '../../src/link/nats.ts';
import { downSubject } from '../../src/link/server-config.ts';
import { NatsStandIn } from './nats-stand-in.ts';

async function hubOf({ url }: NatsStandIn): Promise<NatsHubLink> {
  const link = new NatsHubLink({ url, seed: (await newKey()).seed, user: '@hub', tls: null });
  onTestFinished(() => link.close());
  return link;
}

async function branchOf({ url }: NatsStandIn, branch = 'B1'): Promise<NatsBranchLink> {
  const link = new NatsBranchLink({ url, seed: (await newKey()).seed, branch, tls: null });
  onTestFinished(() => link.close());
  return link;
}

/** Connects a hub and a branch. The branch answers support questions with these bytes. */
async function answering(answer: () => Promise<Uint8Array>) {
  const server = await NatsStandIn.start();
  const [hub, branch] = [await hubOf(server), await branchOf(server)];
  branch.answer(answer);
  // A branch connects when it asks its first question.
  await branch.ask('hello', '{}').catch(() => {});
  return { hub, server };
}

it.each([0, 512 * 1024, 512 * 1024 + 1])(
  'NatsHubLink.ask gives an answer of %i bytes whole, in parts of half a megabyte',
  async (length) => {
    const bytes = Buffer.alloc(length, 'ñ0123456789');
    const { hub, server } = await answering(async () => bytes);
    const answer = await hub.ask('B1', 'status', '');
    expect(Buffer.compare(Buffer.from(answer), bytes)).toBe(0);
    const parts = server.published.filter(({ body }) => body.length > 1_000).map(({ body }) => body.length);
    expect(parts.every((part) => part <= 512 * 1024)).toBe(true);
  },
);

it('NatsHubLink.ask throws link-down for a branch that nobody is', async () => {
  const { hub } = await answering(async () => Buffer.alloc(0));
  await expect(hub.ask('B9', 'status', '')).rejects.toMatchObject({
    code: 'link-down',
    message: 'Branch B9 does not answer.',
  });
});

it('NatsWire stands refusals while the server reads its file again, and tells of a key that stays unknown', {
  tags: ['bulk'],
}, async () => {
  const server = await NatsStandIn.start();
  server.serve('up.B1.hello', ({ reply }) => server.deliver(reply, { body: '{}' }));
  server.refusals = 2;
  await expect((await branchOf(server)).ask('hello', '{}')).resolves.toBe('{}');
  expect(server.refusals).toBe(0);
  server.refusals = Number.POSITIVE_INFINITY;
  await expect((await branchOf(server)).ask('hello', '{}')).rejects.toMatchObject({ code: 'link-refused' });
});

it('NatsHubLink answers a branch where that branch hears it, and nobody else', async () => {
  const server = await NatsStandIn.start();
  const [hub, branch] = [await hubOf(server), await branchOf(server)];
  const heard: string[] = [];
  await hub.answer(async (name, question, body) => {
    heard.push(`${name} ${question} ${Buffer.from(body).toString()}`);
    return '{"upTo":3}';
  });
  expect(await branch.ask('changes', '{"line":1}')).toBe('{"upTo":3}');
  expect(heard).toEqual(['B1 changes {"line":1}']);
  const { subject } = server.published.find(({ body }) => body.toString() === '{"line":1}') ?? {
    subject: '',
  };
  // With this reply subject, a branch would make the hub send an answer to another branch.
  server.deliver(subject, { reply: '_INBOX.B2.x' });
  await expect(branch.ask('hello', '{}')).resolves.toBe('{"upTo":3}');
  expect(heard).toEqual(['B1 changes {"line":1}', 'B1 hello {}']);
});

const CONSUMER = { stream_name: 'DOWN', name: 'B1', config: { durable_name: 'B1', ack_policy: 'all' } };

interface Sent {
  n: number;
  body?: string;
  branch?: string;
}

/** Starts a server whose JetStream returns these messages at the first fetch, and none at later fetches. */
async function feedOf(messages: Sent[]) {
  const server = await NatsStandIn.start();
  const acked: string[] = [];
  let fetches = 0;
  server.serve('$JS.API.CONSUMER.INFO.*.*', ({ reply }) =>
    server.deliver(reply, { body: JSON.stringify(CONSUMER) }),
  );
  server.serve('$JS.ACK.>', ({ subject }) => void acked.push(subject.split('.')[5] ?? ''));
  server.serve('$JS.API.CONSUMER.MSG.NEXT.*.*', ({ reply, body: wish }) => {
    fetches += 1;
    const { batch } = JSON.parse(wish.toString());
    const given = fetches === 1 ? messages : [];
    for (const [i, { n, body = `body ${n}`, branch = 'B1' }] of given.entries()) {
      server.deliver(reply, {
        subject: downSubject('B1'),
        reply: `$JS.ACK.DOWN.B1.1.${i + 1}.${i + 1}.1700000000000000000.${given.length - 1 - i}`,
        headers: { 'Nats-Msg-Id': `e1:${branch}:${n}`, e: 'e1', n: String(n), k: 'order' },
        body,
      });
    }
    const left = { 'Nats-Pending-Messages': String(batch - given.length), 'Nats-Pending-Bytes': '0' };
    server.deliver(reply, { status: '408 Request Timeout', headers: left });
  });
  const link = await branchOf(server);
  /** Follows the feed until the second fetch, which returns nothing. */
  const follow = async (accepts: boolean) => {
    const taken: DownMessage[][] = [];
    const stop = new AbortController();
    await link.follow(async (some) => {
      if (some.length === 0) stop.abort();
      taken.push(some);
      return accepts;
    }, stop.signal);
    return taken;
  };
  return { follow, acked };
}

it('NatsBranchLink.follow gives what is ready at once, acknowledges its last message, and says when nothing came', async () => {
  const { follow, acked } = await feedOf([{ n: 1 }, { n: 2 }, { n: 3 }]);
  const taken = await follow(true);
  expect(taken.map((some) => some.map(({ n, body }) => [n, body]))).toEqual([
    [
      [1, 'body 1'],
      [2, 'body 2'],
      [3, 'body 3'],
    ],
    [],
  ]);
  expect(taken[0]?.[0]).toMatchObject({ branch: 'B1', epoch: 'e1', kind: 'order' });
  expect(acked).toEqual(['3']);
});

it('NatsBranchLink.follow acknowledges nothing that was not taken, so that the server gives it again', async () => {
  const { follow, acked } = await feedOf([{ n: 4 }]);
  await follow(false);
  expect(acked).toEqual([]);
});

it('NatsBranchLink.follow leaves out what the hub did not write for this branch', async () => {
  const { follow, acked } = await feedOf([{ n: 1, branch: 'B2' }, { n: 1 }]);
  expect((await follow(true))[0]?.map(({ body }) => body)).toEqual(['body 1']);
  expect(acked).toEqual(['2']);
});

it('NatsBranchLink.follow throws link-down where the hub made no feed for it', async () => {
  const link = await branchOf(await NatsStandIn.start());
  await expect(link.follow(async () => true, new AbortController().signal)).rejects.toMatchObject({
    code: 'link-down',
    message: expect.stringContaining('The feed of the hub cannot be followed'),
  });
});
