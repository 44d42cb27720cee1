import { describe, expect, it } from 'vitest';
import { inSpanish } from '../../src/health/speech.ts';
import { branchBoard } from '../../src/link/branch-status.ts';
import { type Chain, openChain } from './chain-rig.ts';

const MINUTE_MS = 60_000;

const board = ({ hub, clock }: Chain, names = ['B1', 'B2', 'B3']) =>
  hub.services.mirror.read((db) =>
    branchBoard(
      db,
      names.map((name) => ({ branch: name, name })),
      hub.services.state.hub.branches(),
      clock.nowMs(),
    ),
  );
const of = (chain: Chain, name: string) => board(chain).find(({ branch }) => branch === name);

describe('the board of branches', () => {
  it('is green where all is well, and tells of those that never joined', async () => {
    const chain = await openChain();
    await chain.settle();
    expect(board(chain).map(({ branch, level }) => `${branch} ${level}`)).toEqual([
      'B3 never-joined',
      'B1 green',
      'B2 green',
    ]);
    expect(of(chain, 'B3')).toMatchObject({ status: 'not-invited', behind: null, seenAt: null });
    expect(of(chain, 'B3')?.command).toMatch(/branch invite B3$/);
    expect(of(chain, 'B1')).toMatchObject({
      reason: null,
      message: '',
      command: null,
      behind: 0,
      waiting: 0,
    });
    chain.hub.services.state.hub.invite('B3', `U${'C'.repeat(55)}`, chain.clock.nowMs() + MINUTE_MS);
    expect(of(chain, 'B3')).toMatchObject({ status: 'invited', level: 'never-joined' });
  });

  it('tells of a branch that is away: amber, and red once orders have waited for it', async () => {
    const chain = await openChain();
    const { clock, hub, branches } = chain;
    await chain.settle();
    await clock.advance(2 * MINUTE_MS);
    await branches[1].follower.hello();
    expect(of(chain, 'B1')).toMatchObject({
      level: 'amber',
      reason: 'absent',
      commandAt: 'branch',
      behind: 0,
    });
    expect(of(chain, 'B2')).toMatchObject({ level: 'green' });
    await hub.order(1, 'B1');
    await hub.order(2, 'B1');
    const writtenAt = new Date(clock.nowMs()).toISOString();
    expect(of(chain, 'B1')).toMatchObject({ level: 'amber', behind: 2, behindSince: writtenAt });
    await clock.advance(10 * MINUTE_MS);
    expect(board(chain)[0]).toMatchObject({ branch: 'B1', level: 'red', reason: 'absent', behind: 2 });
    await chain.settle();
    expect(of(chain, 'B1')).toMatchObject({ level: 'green', behind: 0, behindSince: null });
  });

  it('is not behind by what was written since the branch told of itself', async () => {
    const chain = await openChain();
    const { clock, hub, branches } = chain;
    await chain.settle();
    await clock.advance(MINUTE_MS);
    await hub.order(1, 'B1');
    expect(of(chain, 'B1')).toMatchObject({ level: 'green', behind: 0, behindSince: null });
    await clock.advance(MINUTE_MS / 2);
    await branches[0].follower.hello();
    expect(of(chain, 'B1')).toMatchObject({ level: 'green', behind: 1 });
  });

  it('tells of a branch that is there and takes nothing', async () => {
    const chain = await openChain();
    const { clock, hub, branches } = chain;
    await chain.settle();
    await hub.order(1, 'B1');
    await clock.advance(MINUTE_MS);
    await branches[0].follower.hello();
    expect(of(chain, 'B1')).toMatchObject({ level: 'green', behind: 1 });
    await clock.advance(MINUTE_MS);
    await branches[0].follower.hello();
    expect(of(chain, 'B1')).toMatchObject({ level: 'amber', reason: 'behind' });
    await clock.advance(8 * MINUTE_MS);
    await branches[0].follower.hello();
    expect(of(chain, 'B1')).toMatchObject({ level: 'red', reason: 'behind' });
    expect(of(chain, 'B1')?.command).toMatch(/branch doctor B1$/);
  });

  it('takes over what the branch says of itself, also a word that it does not know', async () => {
    const chain = await openChain();
    const [branch] = chain.branches;
    branch.verdict = {
      level: 'red',
      findings: [
        {
          code: 'inbox.damaged',
          level: 'red',
          message: '',
          remedy: '',
          detail: null,
          count: null,
          since: null,
        },
      ],
    };
    await branch.follower.hello();
    expect(of(chain, 'B1')).toMatchObject({
      level: 'red',
      reason: 'inbox.damaged',
      message: "tillsync can't use the inbox, inbox.db. Changes from the POS don't arrive.",
    });
    chain.hub.services.state.hub.saw(
      'B1',
      {
        ...{
          instance: 'one',
          mark: 0,
          waiting: 4,
          oldestWaitingAt: null,
          rejected: 2,
          quarantined: 1,
          version: '9',
        },
        verdict: { level: 'amber', finding: 'toString' },
      },
      chain.clock.nowMs(),
    );
    expect(of(chain, 'B1')).toMatchObject({
      level: 'amber',
      reason: 'other',
      waiting: 4,
      rejected: 2,
      quarantined: 1,
      version: '9',
    });
  });

  it('counts what a guard rail of the hub holds of each branch', async () => {
    const chain = await openChain();
    await chain.settle();
    await chain.branches[0].count('A', 3, 'first');
    await chain.settle();
    await chain.hub.services.mirror.write((db) =>
      db.prepare("UPDATE _outbox SET held_guard = 'zero-items' WHERE state = 'pending'").run(),
    );
    expect(of(chain, 'B1')).toMatchObject({ level: 'amber', reason: 'outbox.held', held: 1 });
    expect(of(chain, 'B1')?.command).toMatch(/outbox list --state held$/);
    expect(of(chain, 'B2')).toMatchObject({ level: 'green', held: 0 });
  });

  it('tells of a branch that was invited for another machine as of one that works, until that one has joined', async () => {
    const chain = await openChain();
    await chain.settle();
    chain.hub.services.state.hub.invite('B1', `U${'C'.repeat(55)}`, chain.clock.nowMs() + MINUTE_MS);
    expect(of(chain, 'B1')).toMatchObject({ level: 'green', status: 'joined' });
    expect(of(chain, 'B1')?.expiresAt).not.toBeNull();
  });
});

describe('why a branch is away, as far as the hub knows', () => {
  const said = async (act: (chain: Chain) => unknown) => {
    const chain = await openChain();
    await chain.settle();
    await act(chain);
    await chain.clock.advance(2 * MINUTE_MS);
    const { message = '', command = '' } = of(chain, 'B1') ?? {};
    const spoken = inSpanish(message);
    expect(spoken, message).toBeDefined();
    return { message, command, spoken };
  };
  const rows = ({ hub }: Chain) => hub.services.state.hub;
  const ask = ({ hub }: Chain, question: 'hello', body: object) =>
    hub.hub.answer('B1', question, Buffer.from(JSON.stringify(body)));

  it('its line, its power or its tillsync failed', async () => {
    const { message, command } = await said(() => {});
    expect(message).toMatch(/^Nothing is heard of it\. It was heard last at .* did not say that it stops/);
    expect(command).toBe('sudo tillsync doctor');
  });

  it('its clock was wrong when it was heard last', async () => {
    const { message } = await said(({ branches: [branch] }) => {
      const finding = { code: 'clock.off', level: 'amber', message: '', remedy: '', detail: null } as const;
      branch.verdict = { level: 'amber', findings: [{ ...finding, count: null, since: null }] };
      return branch.follower.hello();
    });
    expect(message).toMatch(/ Its clock was wrong then\.$/);
  });

  it('it said that it stops, until it is heard again', async () => {
    const { message, spoken } = await said(({ branches }) => branches[0].follower.sayLast());
    expect(message).toMatch(/ Its tillsync said at \S+ that it stops\.$/);
    expect(spoken).toMatch(/avisó que se detiene/);
    const again = await said(async (chain) => {
      const [branch] = chain.branches;
      await branch.follower.sayLast();
      await branch.stop();
      await branch.start();
      await branch.follower.hello();
    });
    expect(again.message).toMatch(/did not say that it stops/);
  });

  it('what it asks cannot be read, or names an absurd number: since when, and not once it is heard again', async () => {
    const { message } = await said((chain) => ask(chain, 'hello', { ofAnother: 'version' }));
    expect(message).toMatch(
      / The hub cannot read what it asks since \S+: one of the two tillsyncs is too old\.$/,
    );
    const chain = await openChain();
    await chain.settle();
    await ask(chain, 'hello', {});
    const [first] = rows(chain).branches();
    await chain.clock.advance(MINUTE_MS);
    await ask(chain, 'hello', {});
    expect(rows(chain).branches()[0]?.refused).toEqual(first?.refused);
    expect(first?.refused?.why).toBe('unreadable');
    await chain.branches[0].follower.hello();
    expect(rows(chain).branches()[0]?.refused).toBeNull();
    rows(chain).noteRefused('B1', 'numbers', chain.clock.nowMs());
    await chain.clock.advance(2 * MINUTE_MS);
    expect(of(chain, 'B1')?.message).toMatch(/names a number that it cannot have given/);
  });

  it('its key is not the one that the hub knows: the command invites it', async () => {
    const { message, command } = await said((chain) =>
      rows(chain).noteRefused('B1', 'key', chain.clock.nowMs()),
    );
    expect(message).toMatch(
      / A machine that calls itself so is refused since \S+: the hub does not know its key\.$/,
    );
    expect(command).toMatch(/branch invite B1$/);
  });

  it('its new machine has said nothing yet, its key has ended, or its invitation has', async () => {
    const { message } = await said(async (chain) => {
      const key = `U${'D'.repeat(55)}`;
      await chain.clock.advance(MINUTE_MS);
      rows(chain).invite('B1', key, chain.clock.nowMs() + MINUTE_MS);
      rows(chain).join('B1', key, chain.clock.nowMs());
    });
    expect(message).toMatch(/ It joined at \S+ and its tillsync has said nothing yet\.$/);
    const removed = await said((chain) => rows(chain).remove('B1'));
    expect(removed.message).toBe('Its key has ended, and it was not invited again.');
    const late = await said((chain) => {
      rows(chain).remove('B1');
      rows(chain).invite('B1', `U${'E'.repeat(55)}`, chain.clock.nowMs() + MINUTE_MS);
    });
    expect(late.message).toBe('Its invitation has expired, and no machine joined with it.');
  });
});
