import { afterEach, describe, expect, it, vi } from 'vitest';
import { Hub } from '../../../../src/link/hub.ts';
import type { DownMessage } from '../../../../src/link/link.ts';
import { InProcessServer } from '../../../link/in-process.ts';
import { type Sabotage, simulateChain } from './chain-days.ts';

const SEEDS_MAX = 60;

/** Returns the first matching fault that a simulation reports. */
async function noticed(what: RegExp, sabotage?: Sabotage): Promise<string> {
  for (let seed = 1; seed <= SEEDS_MAX; seed++) {
    const { faults } = await simulateChain(seed, sabotage);
    const found = faults.find((fault) => what.test(fault));
    if (found !== undefined) return found;
  }
  return '';
}

const atHub =
  (sql: string): Sabotage =>
  (world) =>
    world.hub.services.mirror.write((db) => void db.exec(sql));

describe('the simulation notices', { timeout: 600_000 }, () => {
  afterEach(() => {
    vi.restoreAllMocks();
  });

  it('a mark that moves though nothing was applied', async () => {
    const sql = `CREATE TRIGGER sabotage BEFORE INSERT ON _orders WHEN NEW.code % 3 = 0 BEGIN SELECT RAISE(IGNORE); END`;
    const sabotage: Sabotage = async ({ branches }) => {
      for (const branch of branches) await branch.services.mirror.write((db) => void db.exec(sql));
    };
    expect(await noticed(/is lost/, sabotage)).not.toBe('');
  });

  it('a snapshot without its orders', async () => {
    const hub = InProcessServer.prototype.hub;
    vi.spyOn(InProcessServer.prototype, 'hub').mockImplementation(function (this: InProcessServer) {
      const link = hub.call(this);
      const emptied = (each: DownMessage) =>
        each.body.includes('"isWhole":true') ? { ...each, kind: 'overtaken' } : each;
      return { ...link, publish: (messages) => link.publish(messages.map(emptied)) };
    });
    expect(await noticed(/is lost|shows/)).not.toBe('');
  });

  it('an order in the feed of another branch', async () => {
    const sabotage = atHub("INSERT INTO _feed_stores (store_id, branch) VALUES ('B9', 'B1')");
    expect(await noticed(/has bytes of order \w+ of B9/, sabotage)).not.toBe('');
  });

  it('a hub that acknowledges what it has not written', async () => {
    const answer = Hub.prototype.answer;
    let asked = 0;
    vi.spyOn(Hub.prototype, 'answer').mockImplementation(function (this: Hub, branch, question, body) {
      asked += 1;
      const { items } = JSON.parse(Buffer.from(body).toString()) as { items?: { u: number }[] };
      if (question !== 'changes' || asked % 3 > 0) return answer.call(this, branch, question, body);
      return Promise.resolve(JSON.stringify({ upTo: items?.at(-1)?.u ?? 0 }));
    });
    expect(await noticed(/is sending|the platform sells/)).not.toBe('');
  });

  it('a change that gets no final word', async () => {
    const sabotage = atHub('DROP TRIGGER handed_up_settles');
    expect(await noticed(/is sending/, sabotage)).not.toBe('');
  });
});
